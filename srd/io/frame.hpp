// Owns the few bytes around a transport packet: Ethernet, IPv4 or IPv6, UDP.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "srd/engine/types.hpp"

namespace weft::srd {

inline constexpr std::uint16_t kSrdUdpPort = 4793;
inline constexpr std::uint16_t kRoceUdpPort = 4791;
inline constexpr std::uint16_t kFirstSourcePort = 49152;
inline constexpr std::size_t kEthernetBytes = 14;
inline constexpr std::size_t kIpv4Bytes = 20;
inline constexpr std::size_t kIpv6Bytes = 40;
inline constexpr std::size_t kUdpBytes = 8;
inline constexpr std::size_t kMaxEnvelopeBytes = kEthernetBytes + kIpv6Bytes + kUdpBytes;

struct FrameInfo {
  Address from;
  Address to;
  std::uint16_t source_port = 0;
  std::uint16_t destination_port = 0;
  Ecn ecn = Ecn::not_capable;
  std::span<const std::byte> packet;  // what UDP carries
};

[[nodiscard]] inline bool is_ipv4(const Address& address) {
  static constexpr std::array<std::byte, 12> kPrefix{
      {{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, std::byte{0xFF}, std::byte{0xFF}}};
  return std::memcmp(address.bytes.data(), kPrefix.data(), kPrefix.size()) == 0;
}
[[nodiscard]] inline std::size_t envelope_bytes(const Address& to) {
  return kEthernetBytes + kUdpBytes + (is_ipv4(to) ? kIpv4Bytes : kIpv6Bytes);
}

// Writes envelope_bytes(info.to) bytes for a packet of `packet_size`. The UDP checksum is left zero.
void write_envelope(std::byte* to, const FrameInfo& info, std::size_t packet_size);
// False if this is no whole, unfragmented UDP frame.
[[nodiscard]] bool parse_frame(std::span<const std::byte> frame, FrameInfo& info);

}  // namespace weft::srd
