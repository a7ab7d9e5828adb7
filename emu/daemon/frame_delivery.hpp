// Owns what weftd knows of a frame on its way to a NIC or to the outside.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "emu/fabric/topology.hpp"
#include "srd/io/spsc_ring.hpp"
#include "srd/net/address.hpp"
#include "srd/net/packet_io.hpp"

namespace weft::daemon {

// Which process of this machine has sent a frame, if one has.
struct FrameSource {
  static constexpr fabric::PortId kNone = UINT32_MAX;

  fabric::PortId nic = kNone;
  std::uint16_t attachment = 0;
  srd::Life life{};
};

// A frame that leaves the modelled network, perhaps changed. It is empty if the network flipped a
// bit that no checksum inside the frame covers: on a wire, Ethernet's own would have made it a
// loss.
struct FrameDelivery {
  fabric::PortId port = 0;
  std::uint32_t block = 0;  // which process on that NIC: the upper bits of the queue pair number
  srd::RecordInfo record;   // of the ring record that it came in, or will be written to
  bool management = false;
  bool group = false;  // for all members on that NIC
  // If not negative, the number of the port to the outside that it is for. Numbers are used again:
  // the serial tells whether it is still the same port.
  std::int16_t outside = -1;
  std::uint32_t outside_serial = 0;
  FrameSource source{};
  bool damaged = false;  // the network flipped a bit of it
  std::span<const std::byte> frame;
};

}  // namespace weft::daemon
