// Owns the tests of CRC32C: every way to compute it against the definition.
//
// There are up to three ways, by what the processor can do, and a process uses the fastest. A
// machine tests those that it has, so the table, which every machine has, is tested everywhere.
#include "srd/net/crc32c.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "srd/base/rng.hpp"

namespace weft {
namespace {

using Bytes = std::vector<std::byte>;

Bytes random_bytes(std::size_t size, std::uint64_t seed) {
  Rng rng{seed};
  Bytes bytes(size);
  std::generate(bytes.begin(), bytes.end(), [&] { return static_cast<std::byte>(rng.next()); });
  return bytes;
}

// Bit by bit, as the polynomial is defined.
std::uint32_t by_definition(std::uint32_t crc, std::span<const std::byte> bytes) {
  std::uint32_t state = ~crc;
  for (const std::byte byte : bytes) {
    state ^= std::to_integer<std::uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) {
      state = (state >> 1) ^ ((state & 1) != 0 ? 0x82F63B78U : 0U);
    }
  }
  return ~state;
}

std::uint32_t of_text(std::string_view text) {
  return crc32c(0, std::as_bytes(std::span{text.data(), text.size()}));
}

TEST(Crc32c, KnownValues) {
  EXPECT_EQ(of_text(""), 0U);
  EXPECT_EQ(of_text("123456789"), 0xE3069283U);
  EXPECT_EQ(of_text("a"), 0xC1D04330U);
  // RFC 3720, appendix B.4.
  EXPECT_EQ(crc32c(0, Bytes(32, std::byte{0})), 0x8A9136AAU);
  EXPECT_EQ(crc32c(0, Bytes(32, std::byte{0xFF})), 0x62A8AB43U);
}

// It is the last one of the list, which begins with the fastest.
TEST(Crc32c, TableIsAlwaysThere) {
  ASSERT_FALSE(crc32c_methods().empty());
  EXPECT_STREQ(crc32c_methods().back().name, "table");
}

class Crc32cMethods : public testing::TestWithParam<std::size_t> {
 protected:
  void SetUp() override {
    if (GetParam() >= crc32c_methods().size()) {
      GTEST_SKIP() << "this processor can do only " << crc32c_methods().size() << " of 3";
    }
    method_ = crc32c_methods()[GetParam()];
    RecordProperty("method", method_.name);
  }
  Crc32cMethod method_{};
};

// The fast ways take bytes one by one until an address is aligned and again behind the last whole
// block. 320 bytes are more than the smallest length for which folding is used.
TEST_P(Crc32cMethods, EveryLengthAtEveryAlignment) {
  const Bytes bytes = random_bytes(320 + 64, 1);
  for (std::size_t length = 0; length <= 320; ++length) {
    for (std::size_t start = 0; start < 16; ++start) {
      const auto piece = std::span{bytes}.subspan(start, length);
      ASSERT_EQ(method_.update(0, piece), by_definition(0, piece))
          << method_.name << ": " << length << " bytes from " << start;
    }
  }
}

// The three-stream method has blocks of 168 and 1360 bytes, three at a time; folding has lanes of
// 64 and begins at 256. The others are multiples of these, and pages.
TEST_P(Crc32cMethods, AroundEveryBlockSize) {
  const Bytes bytes = random_bytes(20'000, 2);
  for (const std::size_t block :
       {168U, 256U, 504U, 512U, 1024U, 1360U, 4080U, 4096U, 8160U, 8192U, 16320U}) {
    for (std::size_t length = block - 9; length <= block + 9; ++length) {
      const auto piece = std::span{bytes}.subspan(length % 7, length);
      ASSERT_EQ(method_.update(0x12345678, piece), by_definition(0x12345678, piece))
          << method_.name << ": " << length;
    }
  }
}

TEST_P(Crc32cMethods, RandomLengthsAndStarts) {
  const Bytes bytes = random_bytes(70'000, 3);
  Rng rng{4};
  for (int round = 0; round < 60; ++round) {
    const std::size_t start = rng.below(64);
    const std::size_t length = rng.below(65'537);
    const auto crc = static_cast<std::uint32_t>(rng.next());
    const auto piece = std::span{bytes}.subspan(start, length);
    ASSERT_EQ(method_.update(crc, piece), by_definition(crc, piece))
        << method_.name << ": " << length << " bytes from " << start;
  }
}

// A checksum is computed over a packet's pieces one after the other, so the state that is handed on
// must be the whole state.
TEST_P(Crc32cMethods, PiecesMakeTheWhole) {
  const Bytes bytes = random_bytes(9000, 5);
  const std::uint32_t whole = by_definition(0, bytes);
  Rng rng{6};
  for (int round = 0; round < 100; ++round) {
    std::uint32_t crc = 0;
    for (std::size_t at = 0; at < bytes.size();) {
      const std::size_t length = std::min<std::size_t>(rng.below(3000), bytes.size() - at);
      crc = method_.update(crc, std::span{bytes}.subspan(at, length));
      at += length;
    }
    ASSERT_EQ(crc, whole) << method_.name << ": round " << round;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Crc32cMethods, testing::Values(0, 1, 2));

}  // namespace
}  // namespace weft
