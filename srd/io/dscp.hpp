// Owns which class of service a packet asks of the network.
#pragma once

#include <cstddef>
#include <cstdint>

#include "srd/net/envelope.hpp"
#include "srd/net/machine.hpp"
#include "srd/wire/srd_header.hpp"

namespace weft::srd {

// [wire 2.4] Short answers go before data. `type` is the second byte of a packet's header.
[[nodiscard]] inline std::uint8_t dscp_of(std::byte type) {
  return type >= static_cast<std::byte>(wire::PacketType::ack) ? net::kDscpControl : net::kDscpData;
}
[[nodiscard]] inline std::uint8_t dscp_of(const TxPacket& packet) {
  return dscp_of(packet.header[1]);
}

}  // namespace weft::srd
