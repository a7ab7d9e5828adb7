// Tests that addresses survive the way through text.
#include "srd/net/address_text.hpp"

#include <gtest/gtest.h>

namespace weft::srd {
namespace {

TEST(AddressText, IsReadAsItIsWritten) {
  // The shortest text of each: it is what people compare in outputs.
  for (const char* text : {"10.77.1.1", "0.0.0.0", "fd00::1", "fe80::12:34ff:fe56:7890", "::1"}) {
    const auto address = parse_address(text);
    ASSERT_TRUE(address) << text;
    EXPECT_EQ(to_text(*address), text);
  }
  // Both texts mean one NIC, so they must be one address.
  EXPECT_EQ(*parse_address("10.1.2.3"), *parse_address("::ffff:10.1.2.3"));
}

TEST(AddressText, WhatIsNoAddressIsRefused) {
  for (const char* text : {"", "10.1.2", "10.1.2.3.4", "10.1.2.256", "fd00::1::2", "h1"}) {
    const auto address = parse_address(text);
    ASSERT_FALSE(address) << text;
    // The error quotes what it could not read.
    EXPECT_NE(address.error().message.find(text), std::string::npos);
  }
}

}  // namespace
}  // namespace weft::srd
