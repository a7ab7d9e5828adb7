// Owns the tests of receives that a NIC overlooks on purpose.
//
// A receive that is posted at the last moment is late on some hardware and in time on other:
// `--late-receives` makes it late always, so that programs that depend on luck fail. ripe(n, now,
// late) says how many of the n that are posted count by now.
#include "emu/devices/late_receives.hpp"

#include <gtest/gtest.h>

namespace weft::devices {
namespace {

// Small numbers, as the time has no unit that matters here.
constexpr Duration kLate{1000};
TimePoint at(std::int64_t nanoseconds) { return TimePoint{Duration{nanoseconds}}; }

TEST(LateReceives, CountOnlyAfterTheirTime) {
  LateReceives late;
  EXPECT_EQ(late.ripe(2, at(0), kLate), 0U);
  // Each receive has its own time, from when it was first seen.
  EXPECT_EQ(late.ripe(3, at(500), kLate), 0U);  // one more
  EXPECT_EQ(late.ripe(3, at(999), kLate), 0U);
  EXPECT_EQ(late.ripe(3, at(1000), kLate), 2U);
  late.take(2);
  EXPECT_EQ(late.ripe(1, at(1001), kLate), 0U);
  EXPECT_EQ(late.ripe(1, at(1500), kLate), 1U);
}

TEST(LateReceives, WhatIsPostedAgainIsLateAgain) {
  LateReceives late;
  EXPECT_EQ(late.ripe(1, at(0), kLate), 0U);
  EXPECT_EQ(late.ripe(1, at(2000), kLate), 1U);
  late.take(1);
  EXPECT_EQ(late.ripe(0, at(2000), kLate), 0U);
  EXPECT_EQ(late.ripe(1, at(2100), kLate), 0U);
  EXPECT_EQ(late.ripe(1, at(3100), kLate), 1U);
}

// A queue pair that was reset has lost its receives; the next ones must not inherit their age.
TEST(LateReceives, BeginAnewAfterAReset) {
  LateReceives late;
  EXPECT_EQ(late.ripe(4, at(0), kLate), 0U);
  EXPECT_EQ(late.ripe(4, at(1000), kLate), 4U);
  late.take(3);
  late.reset();
  EXPECT_EQ(late.ripe(1, at(1100), kLate), 0U);
  EXPECT_EQ(late.ripe(1, at(2100), kLate), 1U);
}

}  // namespace
}  // namespace weft::devices
