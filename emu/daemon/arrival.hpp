// Owns what weftd knows of a frame on its way to a NIC.
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

// A frame that has come through, perhaps changed. Empty if a bit got wrong that no checksum inside
// would show: on a wire Ethernet's own would have.
struct Arrival {
  fabric::PortId port = 0;
  std::uint32_t block = 0;  // which process on that NIC
  srd::RecordInfo record;   // in which it came, or will go on
  bool management = false;
  // Number of the port to the outside that it is for, if not negative, and which one of those that
  // have had that number.
  std::int16_t outside = -1;
  std::uint32_t outside_serial = 0;
  FrameSource source{};
  bool damaged = false;  // a bit of it got wrong on the way
  std::span<const std::byte> frame;
};

}  // namespace weft::daemon
