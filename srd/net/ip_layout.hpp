// Owns where the fields of Ethernet, IP and UDP lie, and reading and writing them as bytes.
#pragma once

#include <boost/endian/conversion.hpp>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace weft::srd::net {

inline constexpr std::uint16_t kEtherTypeV4 = 0x0800;
inline constexpr std::uint16_t kEtherTypeArp = 0x0806;
inline constexpr std::uint16_t kEtherTypeV6 = 0x86DD;
inline constexpr std::size_t kEtherType = 12;
inline constexpr std::size_t kEthernetSize = 14;
inline constexpr std::size_t kIpV4Size = 20;  // without options
inline constexpr std::size_t kIpV6Size = 40;
inline constexpr std::size_t kUdpSize = 8;
inline constexpr std::uint8_t kUdp = 17;
inline constexpr std::uint8_t kPlainV4 = 0x45;  // version 4, a header without options
inline constexpr std::uint16_t kDontFragment = 0x4000;

// Offsets within the IP header.
inline constexpr std::size_t kV4TrafficClass = 1;
inline constexpr std::size_t kV4Length = 2;
inline constexpr std::size_t kV4Fragment = 6;
inline constexpr std::size_t kV4Hops = 8;
inline constexpr std::size_t kV4Protocol = 9;
inline constexpr std::size_t kV4Checksum = 10;
inline constexpr std::size_t kV4Source = 12;
inline constexpr std::size_t kV4Destination = 16;
inline constexpr std::size_t kV6FlowLabel = 2;
inline constexpr std::size_t kV6Length = 4;
inline constexpr std::size_t kV6NextHeader = 6;
inline constexpr std::size_t kV6Hops = 7;
inline constexpr std::size_t kV6Source = 8;
inline constexpr std::size_t kV6Destination = 24;
// Within an ARP message.
inline constexpr std::size_t kArpSender = 14;
// Within the UDP header.
inline constexpr std::size_t kUdpSourcePort = 0;
inline constexpr std::size_t kUdpDestinationPort = 2;
inline constexpr std::size_t kUdpLength = 4;
inline constexpr std::size_t kUdpChecksum = 6;

[[nodiscard]] inline std::uint8_t load8(const std::byte* at) {
  return std::to_integer<std::uint8_t>(*at);
}
[[nodiscard]] inline std::uint16_t load16(const std::byte* at) {
  std::uint16_t value;
  std::memcpy(&value, at, sizeof value);
  return boost::endian::big_to_native(value);
}
inline void store8(std::byte* at, unsigned value) { *at = static_cast<std::byte>(value); }
inline void store16(std::byte* at, std::size_t value) {
  const std::uint16_t big = boost::endian::native_to_big(static_cast<std::uint16_t>(value));
  std::memcpy(at, &big, sizeof big);
}

// The ones' complement sum of 16-bit words, not yet folded.
[[nodiscard]] inline std::uint32_t sum_words(const std::byte* at, std::size_t size) {
  std::uint32_t sum = 0;
  for (std::size_t i = 0; i < size; i += 2) {
    sum += load16(at + i);
  }
  return sum;
}
[[nodiscard]] inline std::uint16_t fold(std::uint32_t sum) {
  sum = (sum & 0xFFFF) + (sum >> 16);
  sum += sum >> 16;
  return static_cast<std::uint16_t>(sum);
}

}  // namespace weft::srd::net
