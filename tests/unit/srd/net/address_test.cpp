// Owns the tests of IPv4 addresses among the 16 bytes.
#include "srd/net/address.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

namespace weft::srd {
namespace {

TEST(Address, V4IsMapped) {
  constexpr Address address = Address::v4(10, 1, 2, 255);
  static_assert(address.is_v4());
  const std::array<unsigned, 16> expected{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 10, 1, 2, 255};
  EXPECT_TRUE(std::ranges::equal(address.bytes, expected, {},
                                 [](std::byte byte) { return std::to_integer<unsigned>(byte); }));
  EXPECT_TRUE(std::ranges::equal(address.v4_bytes(), std::span(address.bytes).last(4)));
}

TEST(Address, V4FromBytesIsTheSame) {
  const std::array<std::byte, 4> bytes{std::byte{127}, std::byte{77}, std::byte{0}, std::byte{1}};
  EXPECT_EQ(Address::v4(bytes.data()), Address::v4(127, 77, 0, 1));
}

// All of the 12 bytes: an IPv6 address that shares a part of them with a mapped one is still IPv6.
TEST(Address, OnlyTheWholePrefixIsV4) {
  for (std::size_t i = 0; i < 12; ++i) {
    Address address = Address::v4(10, 0, 0, 1);
    address.bytes[i] ^= std::byte{1};
    EXPECT_FALSE(address.is_v4()) << i;
  }
  EXPECT_FALSE(Address{}.is_v4());
}

}  // namespace
}  // namespace weft::srd
