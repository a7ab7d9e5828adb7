// Owns the frames and addresses that the tests of the envelope are made of.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "srd/net/envelope.hpp"
#include "tests/unit/srd/wire/golden.hpp"

namespace weft::srd::net::test {

using Bytes = std::vector<std::byte>;

// SRD's own, as docs/wire.md has them.
inline constexpr UdpPorts kPorts{.destination = 0xEF00, .first_source = 0xF000, .paths = 256};

inline Address address4(unsigned a, unsigned b, unsigned c, unsigned d) {
  return Address::v4(a, b, c, d);
}

// 32 hexadecimal digits.
inline Address address6(std::string_view hex) {
  Address address;
  std::ranges::copy(wire::test::from_hex(hex), address.bytes.begin());
  return address;
}

// An envelope around `packet`, as EnvelopeWriter makes it.
inline Bytes frame_of(const Address& from, const Address& to, unsigned path, Ecn ecn,
                      std::uint8_t dscp, const Bytes& packet) {
  const auto writer = EnvelopeWriter::make(from, kPorts);
  EXPECT_TRUE(writer.has_value());
  Bytes frame(writer->size());
  EXPECT_TRUE(writer->write(frame.data(), to, PathId{static_cast<std::uint16_t>(path)}, ecn, dscp,
                            packet.size()));
  frame.insert(frame.end(), packet.begin(), packet.end());
  return frame;
}

// Makes the checksum right again where there is an IPv4 header; the plain way of RFC 791.
inline void fix_ipv4_checksum(Bytes& frame) {
  if (frame.size() < 34 || frame[12] != std::byte{0x08} || frame[13] != std::byte{0}) {
    return;
  }
  frame[24] = frame[25] = std::byte{0};
  unsigned sum = 0;
  for (std::size_t i = 14; i < 34; i += 2) {
    sum += std::to_integer<unsigned>(frame[i]) << 8 | std::to_integer<unsigned>(frame[i + 1]);
  }
  while (sum >> 16 != 0) {
    sum = (sum & 0xFFFF) + (sum >> 16);
  }
  frame[24] = static_cast<std::byte>(~sum >> 8);
  frame[25] = static_cast<std::byte>(~sum);
}

}  // namespace weft::srd::net::test
