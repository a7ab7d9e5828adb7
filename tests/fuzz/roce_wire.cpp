// Owns the fuzz target of what looks at arriving RoCEv2 bytes: datagram and transport packet.
//
// What parses must be consistent in itself and survive being written and parsed again: a field that
// is read from one place and written to another one would be found so.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "emu/roce/wire/datagram.hpp"
#include "emu/roce/wire/icrc.hpp"
#include "emu/roce/wire/packet.hpp"
#include "srd/base/check.hpp"

namespace weft::roce::wire {
namespace {

// What parses, written again, parses to the same bytes, but for reserved bits.
void look_at_packet(std::span<const std::byte> bytes, std::size_t more) {
  Packet packet;
  if (parse_packet(bytes, more, packet) != PacketFault::none) {
    return;
  }
  WEFT_CHECK(packet.header_size == header_size_of(packet.opcode));
  WEFT_CHECK(packet.header_size + packet.payload_size + packet.pad == bytes.size() + more);
  WEFT_CHECK(packet.has(kPayload) || packet.payload_size == 0);
  std::array<std::byte, kLargestHeader> once{};
  std::array<std::byte, kLargestHeader> twice{};
  WEFT_CHECK(write_headers(packet, once.data()) == packet.header_size);
  Packet again;
  WEFT_CHECK(parse_packet(std::span(once).first(packet.header_size),
                          packet.payload_size + packet.pad, again) == PacketFault::none);
  WEFT_CHECK(write_headers(again, twice.data()) == packet.header_size && once == twice);
}

void look_at_frame(std::span<const std::byte> frame) {
  Datagram datagram;
  if (parse_datagram(frame, datagram) != DatagramFault::none) {
    return;
  }
  static_cast<void>(icrc_is_right(datagram));
  look_at_packet(datagram.packet, 0);
  std::array<std::byte, kEthernetHeader + kLargestIpUdp> outer{};
  const std::size_t size = write_datagram_header(datagram.header, datagram.packet.size(), outer);
  WEFT_CHECK(size <= frame.size());
  std::vector<std::byte> again(outer.begin(), outer.begin() + static_cast<std::ptrdiff_t>(size));
  again.insert(again.end(), datagram.packet.begin(), datagram.packet.end());
  again.resize(again.size() + kIcrcSize);
  Datagram reread;
  const DatagramFault fault = parse_datagram(again, reread);
  // An IPv6 source may be a mapped IPv4 address; written, it is another family's packet.
  WEFT_CHECK(fault == DatagramFault::none);
  WEFT_CHECK(std::ranges::equal(reread.packet, datagram.packet));
}

}  // namespace
}  // namespace weft::roce::wire

// The first byte: bit 0 set: a frame; clear: a packet with that many bytes elsewhere (upper seven
// bits).
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) {
    return 0;
  }
  const auto bytes = std::as_bytes(std::span{data, size}).subspan(1);
  if ((data[0] & 1) != 0) {
    weft::roce::wire::look_at_frame(bytes);
  } else {
    weft::roce::wire::look_at_packet(bytes, data[0] >> 1);
  }
  return 0;
}
