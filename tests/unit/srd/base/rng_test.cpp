// Owns the tests of the random generator: the same numbers for ever, and fair ones.
#include "srd/base/rng.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <limits>

namespace weft {
namespace {

constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();

// Computed by an independent implementation of splitmix64 and xoshiro256++. Replays and published
// results depend on them.
TEST(Rng, GivesTheSameNumbersForEver) {
  EXPECT_EQ(mix64(0), 0xE220A8397B1DCDAFULL);
  Rng rng{1};
  EXPECT_EQ(rng.next(), 0xCFC5D07F6F03C29BULL);
  EXPECT_EQ(rng.next(), 0xBF424132963FE08DULL);
  EXPECT_EQ(rng.next(), 0x19A37D5757AAF520ULL);
}

// Neighbouring seeds, as people choose them, and as sweeps count them up: a generator that was only
// as good as its seed would begin alike.
TEST(Rng, SeedsGiveDifferentStreams) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    Rng one{seed};
    Rng other{seed + 1};
    EXPECT_NE(one.next(), other.next()) << seed;
  }
}

TEST(Rng, BelowIsInRangeAndFair) {
  Rng rng{7};
  std::array<int, 10> hits{};
  constexpr int kRounds = 100'000;
  for (int i = 0; i < kRounds; ++i) {
    const std::uint32_t value = rng.below(10);
    ASSERT_LT(value, 10U);
    ++hits[value];
  }
  for (const int count : hits) {  // 5 standard deviations are 474
    EXPECT_NEAR(count, kRounds / 10, 500);
  }
  EXPECT_EQ(rng.below(1), 0U);
}

// The width of a range is one more than the difference of its ends: forgetting that one leaves out
// the upper end, and for the whole range of 64 bits it overflows to 0.
TEST(Rng, BetweenIncludesBothEnds) {
  Rng rng{8};
  std::array<int, 3> hits{};
  for (int i = 0; i < 1000; ++i) {
    const std::uint64_t value = rng.between(5, 7);
    ASSERT_GE(value, 5U);
    ASSERT_LE(value, 7U);
    ++hits[value - 5];
  }
  for (const int count : hits) {
    // 333 are expected; 5 standard deviations are 75.
    EXPECT_GT(count, 250);
  }
  EXPECT_EQ(rng.between(9, 9), 9U);
  EXPECT_EQ(rng.between(kMax, kMax), kMax);
}

TEST(Rng, BetweenCoversTheWholeRange) {
  Rng rng{9};
  std::uint64_t seen = 0;
  for (int i = 0; i < 200; ++i) {
    seen |= rng.between(0, kMax);
  }
  EXPECT_EQ(seen, kMax);
}

TEST(Rng, UnitAndChance) {
  Rng rng{10};
  double sum = 0;
  int hits = 0;
  for (int i = 0; i < 100'000; ++i) {
    const double value = rng.unit();
    ASSERT_GE(value, 0.0);
    ASSERT_LT(value, 1.0);
    sum += value;
    hits += rng.chance(0.01) ? 1 : 0;
  }
  // 5 standard deviations each: 0.0046 of the mean, 157 of the hits.
  EXPECT_NEAR(sum / 100'000, 0.5, 0.005);
  EXPECT_NEAR(hits, 1000, 160);
  EXPECT_FALSE(rng.chance(0.0));
  EXPECT_TRUE(rng.chance(1.0));
}

}  // namespace
}  // namespace weft
