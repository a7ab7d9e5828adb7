// Owns the transport packet as numbers: parsing of any bytes, and writing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "emu/roce/wire/headers.hpp"
#include "emu/roce/wire/opcode.hpp"

namespace weft::roce::wire {

// Why bytes are no packet that we speak.
enum class PacketFault : std::uint8_t {
  none = 0,
  too_short,    // for the headers of its opcode
  bad_version,  // TVer is not 0
  unknown_opcode,
  unaligned,   // headers and payload are not a multiple of four bytes
  bad_pad,     // more pad than payload
  no_payload,  // a packet that has no payload brings one
};

// Fields in the order of the machine, but for the immediate data, which is handed on as the
// application stored it. Only the headers that the opcode has are meaningful.
struct Packet {
  std::uint8_t opcode = 0;
  bool solicited = false;
  bool migrated = false;
  bool forward_congestion = false;
  bool backward_congestion = false;
  bool ack_request = false;
  std::uint8_t pad = 0;
  std::uint16_t pkey = 0xFFFF;
  std::uint32_t destination_qpn = 0;
  std::uint32_t psn = 0;

  std::uint64_t address = 0;  // RETH, AtomicETH
  std::uint32_t rkey = 0;     // RETH, AtomicETH
  std::uint32_t length = 0;   // RETH: of the whole message
  std::uint64_t swap_or_add = 0;
  std::uint64_t compare = 0;
  std::uint8_t syndrome = 0;
  std::uint32_t msn = 0;
  std::uint64_t original = 0;  // what an atomic has found
  std::uint32_t qkey = 0;
  std::uint32_t source_qpn = 0;
  std::uint32_t immediate = 0;
  std::uint32_t invalidate = 0;  // IETH

  // Set by parse_packet(): where the payload begins and how long it is, without pad.
  std::uint16_t header_size = 0;
  std::uint32_t payload_size = 0;

  [[nodiscard]] bool has(Trait trait) const { return (traits_of(opcode) & trait) != 0; }
};

// `bytes` begins with BTH and holds all headers; `more_size` further bytes of payload and pad lie
// elsewhere. Neither has the ICRC. The headers are copied once before they are looked at.
[[nodiscard]] PacketFault parse_packet(std::span<const std::byte> bytes, std::size_t more_size,
                                       Packet& packet);

[[nodiscard]] std::size_t header_size_of(std::uint8_t opcode);

// Writes the headers of packet.opcode, which must be known, to `to`, kLargestHeader bytes; returns
// their size.
std::size_t write_headers(const Packet& packet, std::byte* to);

[[nodiscard]] constexpr std::uint8_t pad_of(std::size_t payload) {
  return static_cast<std::uint8_t>((4 - payload % 4) % 4);
}

}  // namespace weft::roce::wire
