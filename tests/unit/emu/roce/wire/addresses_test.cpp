// Owns the tests of the addresses that follow from a NIC's.
#include "emu/roce/wire/addresses.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "srd/base/rng.hpp"
#include "srd/net/address_text.hpp"
#include "srd/net/envelope.hpp"

namespace weft::roce::wire {
namespace {

TEST(Addresses, AreThoseOfTheInterface) {
  const srd::Address nic = srd::Address::v4(127, 78, 1, 2);
  const auto all = addresses_of(nic);
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(all[0], *srd::parse_address("fe80::7fff:fe4e:102"));
  EXPECT_EQ(all[1], nic);
  EXPECT_EQ(all[kIpv6Gid], *srd::parse_address("fd77:6566:7400:0:0:7fff:fe4e:102"));
}

// By whichever a NIC is called, there is one, and it has one Ethernet address.
TEST(Addresses, NameTheirNic) {
  Rng rng{7};
  std::set<std::string> seen;
  for (int i = 0; i < 2000; ++i) {
    const auto random = static_cast<std::uint32_t>(rng.next());
    const srd::Address nic = srd::Address::v4(1 + (random >> 24) % 223, random >> 16 & 0xFF,
                                              random >> 8 & 0xFF, random & 0xFF);
    for (const srd::Address& address : addresses_of(nic)) {
      EXPECT_EQ(nic_of(address), nic) << srd::to_text(address);
      EXPECT_EQ(srd::net::mac_of(address), srd::net::mac_of(nic)) << srd::to_text(address);
      EXPECT_TRUE(srd::net::is_host(address));
      EXPECT_EQ(is_link_local(address), address == addresses_of(nic).front());
    }
  }
}

TEST(Addresses, OfOthersNameThemselves) {
  for (const char* text : {"2001:db8::1", "fe80::1", "fe80::5054:ff:fe00:1", "fd77:6566:7400::1",
                           "fe80::1:7fff:fe4e:102", "ff02::1", "::1", "10.0.0.1"}) {
    const srd::Address address = *srd::parse_address(text);
    EXPECT_EQ(nic_of(address), address) << text;
  }
  const srd::Address six = *srd::parse_address("2001:db8::1");
  EXPECT_EQ(addresses_of(six), std::vector{six});
}

}  // namespace
}  // namespace weft::roce::wire
