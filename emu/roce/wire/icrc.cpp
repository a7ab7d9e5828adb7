// Owns the masks of the ICRC, and CRC-32 by eight tables.
//
// The ICRC is Ethernet's CRC over eight bytes of ones, the IP, UDP and transport headers with all
// bytes masked that a router may change, and the payload (annex 17 of the specification).
#include "emu/roce/wire/icrc.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "emu/roce/wire/headers.hpp"

namespace weft::roce::wire {
namespace {

constexpr std::uint32_t kPolynomial = 0xEDB88320;

// table[k][b]: what byte b does to the checksum when k more bytes follow it.
constexpr auto kTables = [] {
  std::array<std::array<std::uint32_t, 256>, 8> tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) {
      value = (value >> 1) ^ ((value & 1) != 0 ? kPolynomial : 0);
    }
    tables[0][byte] = value;
  }
  for (std::size_t k = 1; k < tables.size(); ++k) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t before = tables[k - 1][byte];
      tables[k][byte] = (before >> 8) ^ tables[0][before & 0xFF];
    }
  }
  return tables;
}();

// Bytes that routers may change count as ones.
constexpr std::byte kMasked{0xFF};
constexpr std::size_t kUdp = 8;
constexpr std::size_t kIpv4 = 20;
constexpr std::size_t kIpv6 = 40;
constexpr std::size_t kLead = 8;  // in the place of the local routing header

}  // namespace

// Eight bytes per step: the first four are mixed with the checksum so far, and each byte has the
// table for the number of bytes behind it.
std::uint32_t crc32(std::uint32_t crc, std::span<const std::byte> bytes) {
  std::uint32_t state = ~crc;
  const std::byte* at = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 8; left -= 8, at += 8) {
    std::uint32_t low = 0;
    std::uint32_t high = 0;
    std::memcpy(&low, at, 4);
    std::memcpy(&high, at + 4, 4);
    low ^= state;
    state = kTables[7][low & 0xFF] ^ kTables[6][(low >> 8) & 0xFF] ^
            kTables[5][(low >> 16) & 0xFF] ^ kTables[4][low >> 24] ^ kTables[3][high & 0xFF] ^
            kTables[2][(high >> 8) & 0xFF] ^ kTables[1][(high >> 16) & 0xFF] ^
            kTables[0][high >> 24];
  }
  for (; left != 0; --left, ++at) {
    state = (state >> 8) ^ kTables[0][(state ^ std::to_integer<std::uint32_t>(*at)) & 0xFF];
  }
  return ~state;
}

std::uint32_t icrc(std::span<const std::byte> ip_udp, std::span<const std::byte> packet,
                   std::span<const std::byte> payload, std::span<const std::byte> more_payload) {
  std::array<std::byte, kLead + kIpv6 + kUdp + sizeof(Bth)> masked;
  std::fill_n(masked.begin(), kLead, kMasked);
  const std::size_t outer = std::min(ip_udp.size(), kIpv6 + kUdp);
  std::byte* const ip = masked.data() + kLead;
  std::memcpy(ip, ip_udp.data(), outer);
  if (outer == kIpv4 + kUdp) {
    ip[1] = ip[8] = ip[10] = ip[11] = kMasked;  // TOS, TTL, header checksum
  } else {
    ip[0] |= std::byte{0x0F};  // traffic class, flow label, hop limit
    ip[1] = ip[2] = ip[3] = ip[7] = kMasked;
  }
  std::byte* const udp = ip + outer - kUdp;
  udp[6] = udp[7] = kMasked;  // checksum
  std::memcpy(udp + kUdp, packet.data(), sizeof(Bth));
  udp[kUdp + kCongestionOffset] = kMasked;
  std::uint32_t crc = crc32(0, std::span(masked).first(kLead + outer + sizeof(Bth)));
  crc = crc32(crc, packet.subspan(sizeof(Bth)));
  crc = crc32(crc, payload);
  return crc32(crc, more_payload);
}

}  // namespace weft::roce::wire
