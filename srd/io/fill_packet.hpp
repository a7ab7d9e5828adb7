// Owns the step from a frame that a carrier has accepted to the packet in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "srd/net/envelope.hpp"
#include "srd/net/frame_codec.hpp"
#include "srd/net/machine.hpp"

namespace weft::srd {

// Fills in all of `packet` but its time of arrival, which not every carrier knows. The envelope is
// that of the frame, and good; the packet is a part of the frame.
template <net::FrameCodec Codec>
inline void fill_packet(std::span<const std::byte> frame, const net::Envelope& envelope,
                        RxPacket& packet, std::uint8_t to = 0) {
  packet.from = envelope.source();
  packet.to = to;
  packet.path = envelope.path();
  packet.ecn = envelope.ecn();
  packet.trimmed = Codec::is_trimmed(envelope.dscp());
  packet.bytes = envelope.packet();
  packet.envelope_size = static_cast<std::uint8_t>(packet.bytes.data() - frame.data());
  packet.more = {};
}

}  // namespace weft::srd
