// Owns the ICRC of whole frames.
#include "emu/roce/wire/roce_codec.hpp"

#include <boost/endian/conversion.hpp>

#include "emu/roce/wire/icrc.hpp"

namespace weft::roce::wire {

srd::net::PacketFault RoceCodec::check(std::span<const std::byte> frame) {
  Datagram datagram;
  if (parse_datagram(frame, datagram) != DatagramFault::none) {
    return srd::net::PacketFault::malformed;
  }
  return icrc_is_right(datagram) ? srd::net::PacketFault::none : srd::net::PacketFault::corrupted;
}

// For frames that were made here; one that is not RoCEv2 stays as it is.
void RoceCodec::seal(std::span<std::byte> frame) {
  Datagram datagram;
  if (parse_datagram(frame, datagram) != DatagramFault::none) {
    return;
  }
  const std::uint32_t sum = boost::endian::native_to_little(icrc(datagram.ip_udp, datagram.packet));
  const auto end =
      static_cast<std::size_t>(datagram.packet.data() - frame.data()) + datagram.packet.size();
  std::memcpy(&frame[end], &sum, sizeof sum);
}

}  // namespace weft::roce::wire
