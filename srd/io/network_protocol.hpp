// Owns a protocol as a value, for code that learns only at run time which one to speak: a process
// that attaches to weftd for a device of some kind.
//
// A carrier is a template over its protocol's frame codec. Code that knows the codec names
// kNetworkProtocol<Codec>; all other code passes that reference on, and calls the functions in it
// once per attachment. Packets then go through the carrier that was made, which is compiled for one
// codec.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "srd/base/result.hpp"
#include "srd/io/loopback_io.hpp"
#include "srd/io/ring_io.hpp"
#include "srd/net/frame_codec.hpp"

namespace weft::srd {

struct NetworkProtocol {
  std::uint16_t udp_port;  // weftd tells protocols apart by it
  std::uint32_t qpn_bits;  // an attachment has 2^qpn_bits queue pair numbers
  // The rings of a process, of which the uplink leads to weftd.
  Result<std::unique_ptr<RingPorts>> (*open_rings)(const RingPorts::Config& config,
                                                   RingPort uplink);
  // A network without weftd, of which that address is the only NIC.
  Result<std::unique_ptr<PacketIo>> (*open_loopback)(const Address& own, std::size_t mtu);
};

template <net::FrameCodec Codec>
Result<std::unique_ptr<RingPorts>> open_rings(const RingPorts::Config& config, RingPort uplink) {
  auto rings = RingIo<Codec>::create(config, std::move(uplink));
  if (!rings) {
    return tl::unexpected(rings.error());
  }
  return std::unique_ptr<RingPorts>(std::move(*rings));
}

template <net::FrameCodec Codec>
Result<std::unique_ptr<PacketIo>> open_loopback(const Address& own, std::size_t mtu) {
  auto addresses = OwnAddresses<Codec>::make(own);
  if (!addresses) {
    return tl::unexpected(addresses.error());
  }
  return std::unique_ptr<PacketIo>(std::make_unique<LoopbackIo<Codec>>(std::move(*addresses), mtu));
}

template <net::FrameCodec Codec>
inline constexpr NetworkProtocol kNetworkProtocol{
    .udp_port = Codec::kPorts.destination,
    .qpn_bits = Codec::kQpnBits,
    .open_rings = &open_rings<Codec>,
    .open_loopback = &open_loopback<Codec>,
};

}  // namespace weft::srd
