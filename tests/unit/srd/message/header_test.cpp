// Owns the test of the message header: its layout, and what is not one.
#include "srd/message/header.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

namespace weft::srd::message {
namespace {

std::vector<std::byte> bytes_of(const Header& header, std::size_t payload = 0) {
  std::vector<std::byte> bytes(sizeof header + payload);
  std::memcpy(bytes.data(), &header, sizeof header);
  return bytes;
}

Header eager(std::uint32_t length) {
  Header header;
  header.kind = static_cast<std::uint8_t>(Kind::eager);
  header.length = length;
  return header;
}

// Each byte has its own offset as its value, so a field that moved shows itself.
TEST(MessageHeader, HasGoldenBytes) {
  Header header;
  header.kind = 2;
  header.flags = kHasImmediate;
  header.status = 3;
  header.immediate = 0x04050607;
  header.tag = 0x08090A0B0C0D0E0F;
  header.source_life = 0x10111213;
  header.destination_life = 0x14151617;
  header.epoch = 0x18191A1B;
  header.sequence = 0x1C1D1E1F;
  header.length = 0x20212223;
  header.message = 0x24252627;
  header.region = 0x28292A2B;
  header.qkey = 0x2C2D2E2F;
  const std::vector<std::byte> bytes = bytes_of(header);
  EXPECT_EQ(bytes[0], std::byte{2}) << "version";
  EXPECT_EQ(bytes[1], std::byte{2}) << "kind";
  EXPECT_EQ(bytes[2], std::byte{1}) << "flags";
  for (std::size_t i = 3; i < bytes.size(); ++i) {
    EXPECT_EQ(bytes[i], static_cast<std::byte>(i)) << i;
  }
}

TEST(MessageHeader, IsParsed) {
  EXPECT_TRUE(parse_header(bytes_of(eager(0))).has_value());
  const auto parsed = parse_header(bytes_of(eager(5), 5));
  ASSERT_TRUE(parsed.has_value());
  EXPECT_EQ(parsed->length.value(), 5U);
}

// The header comes from a peer. What is refused here cannot surprise the code behind it.
TEST(MessageHeader, RefusesWhatNoMessengerSends) {
  const auto refused = [](const Header& header, std::size_t payload = 0) {
    return !parse_header(bytes_of(header, payload)).has_value();
  };
  const std::vector<std::byte> whole = bytes_of(eager(0));
  // A header has 48 bytes.
  EXPECT_FALSE(parse_header(std::span{whole}.first(47)).has_value());
  EXPECT_FALSE(parse_header({}).has_value());
  EXPECT_TRUE(refused(eager(5), 4)) << "too few bytes";
  EXPECT_TRUE(refused(eager(5), 6)) << "too many";
  Header header = eager(0);
  header.version = 1;
  EXPECT_TRUE(refused(header));
  header = eager(0);
  header.flags = 4;
  EXPECT_TRUE(refused(header));
  for (const int kind : {0, 4, 255}) {
    header = eager(0);
    header.kind = static_cast<std::uint8_t>(kind);
    EXPECT_TRUE(refused(header));
  }
  header.kind = static_cast<std::uint8_t>(Kind::request);
  header.length = 1U << 30;
  EXPECT_FALSE(refused(header));
  EXPECT_TRUE(refused(header, 1)) << "a request has no bytes";
  header.length = (1U << 30) + 1;
  EXPECT_TRUE(refused(header));
  header.kind = static_cast<std::uint8_t>(Kind::finished);
  header.status = 36;
  EXPECT_FALSE(refused(header));
  header.status = 37;
  EXPECT_TRUE(refused(header));
}

}  // namespace
}  // namespace weft::srd::message
