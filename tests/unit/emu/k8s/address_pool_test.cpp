// Owns which addresses a range has, and in which order they are given. The argument of size() is up
// to where it counts: ranges of IPv6 have more addresses than any number holds.
#include "emu/k8s/address_pool.hpp"

#include <gtest/gtest.h>

#include <string>

namespace weft::k8s {
namespace {

AddressPool pool(const std::string& subnet, const std::string& start = "",
                 const std::string& end = "") {
  auto made = AddressPool::of(*parse_subnet(subnet), parse_address(start), parse_address(end));
  EXPECT_TRUE(made);
  return *made;
}

TEST(AddressPool, GivesTheAddressesOfHostsInOrder) {
  AddressPool small = pool("192.168.2.8/30");
  EXPECT_EQ(small.size(100), 2U);
  EXPECT_EQ(small.take(), "192.168.2.9/30");
  EXPECT_EQ(small.take(), "192.168.2.10/30");
  EXPECT_EQ(small.take(), std::nullopt);
  EXPECT_EQ(small.take(), std::nullopt);
  EXPECT_EQ(pool("10.0.0.7/32").take(), "10.0.0.7/32");
  EXPECT_EQ(pool("10.0.0.6/31").size(100), 2U);
  EXPECT_EQ(pool("fd00::/64").take(), "fd00::1/64");
  EXPECT_EQ(pool("0.0.0.0/0").size(7), 7U);
}

TEST(AddressPool, HasBoundsAndGaps) {
  AddressPool some = pool("10.0.0.0/24", "10.0.0.10", "10.0.0.14");
  some.exclude(*parse_address("10.0.0.12"), *parse_address("10.0.0.13"));
  some.exclude(*parse_address("10.0.0.10"), *parse_address("10.0.0.10"));
  EXPECT_EQ(some.size(100), 2U);
  EXPECT_EQ(some.take(), "10.0.0.11/24");
  EXPECT_EQ(some.take(), "10.0.0.14/24");
  EXPECT_EQ(some.take(), std::nullopt);
  // The last addresses that there are: what is one further would begin again at zero.
  AddressPool top = pool("ffff::/16", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe",
                         "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff");
  top.exclude(*parse_address("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
              *parse_address("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"));
  EXPECT_EQ(top.size(100), 1U);
  EXPECT_TRUE(top.take());
  EXPECT_EQ(top.take(), std::nullopt);
  AddressPool last = pool("255.255.255.252/30", "255.255.255.253", "255.255.255.255");
  EXPECT_EQ(last.size(100), 3U);
}

TEST(AddressPool, WrongTextsAreNone) {
  for (const char* text : {"", "10.0.0.0", "10.0.0.0/33", "10.0.0.0/-1", "10.0.0/8", "fd00::/129",
                           "fd00::/", "10.0.0.256/24", "a/8", "10.0.0.0/8 "}) {
    EXPECT_FALSE(parse_subnet(text)) << text;
  }
  EXPECT_FALSE(AddressPool::of(*parse_subnet("10.0.0.0/24"), parse_address("10.0.1.1"), {}));
  EXPECT_FALSE(AddressPool::of(*parse_subnet("10.0.0.0/24"), parse_address("fd00::1"), {}));
  EXPECT_FALSE(AddressPool::of(*parse_subnet("10.0.0.0/24"), parse_address("10.0.0.9"),
                               parse_address("10.0.0.8")));
}

TEST(AddressPool, TwoOverlapIfTheyShareAnAddress) {
  EXPECT_TRUE(pool("10.0.0.0/24").overlaps(pool("10.0.0.128/25")));
  EXPECT_FALSE(pool("10.0.0.0/24").overlaps(pool("10.0.1.0/24")));
  EXPECT_FALSE(pool("10.0.0.0/24").overlaps(pool("fd00::/64")));
}

}  // namespace
}  // namespace weft::k8s
