// Owns the tests of the base RTT: what it follows, and what it never exceeds. It is the round trip
// of an empty network, from which all delay is counted: too large, and queues are not seen; too
// small, and distance is taken for a queue. Here 14 us is what the program was told.
#include "srd/engine/cc/base_rtt.hpp"

#include <gtest/gtest.h>

namespace weft::srd {
namespace {

using namespace std::chrono_literals;

// A peer that moves away must not be taken for congested for ever: after about a period (100 ms)
// without a small sample the larger one counts.
TEST(BaseRtt, FollowsASmallerMeasurementAtOnceAndALargerOneAfterAPeriod) {
  BaseRtt base(14us);
  base.add(time_at(1ms), 5us, false);
  EXPECT_EQ(base.get(), 5us);
  for (int ms = 2; ms < 400; ++ms) {
    base.add(time_at(std::chrono::milliseconds{ms}), 9us, false);
    // Within its period a smaller one stays, however many larger ones come.
    if (ms < 100) {
      EXPECT_EQ(base.get(), 5us);
    }
  }
  EXPECT_EQ(base.get(), 9us);
}

// A queue of 200 us that stands for seconds: if it became the base, the control would keep it.
TEST(BaseRtt, NeverExceedsWhatWasTold) {
  BaseRtt base(14us);
  for (int ms = 1; ms < 2000; ++ms) {
    base.add(time_at(std::chrono::milliseconds{ms}), 200us, false);
    ASSERT_LE(base.get(), 14us) << ms;
  }
  base.add(time_at(2s), 5us, false);
  for (int ms = 2000; ms < 4000; ++ms) {
    base.add(time_at(std::chrono::milliseconds{ms}), 200us, false);
    ASSERT_LE(base.get(), 14us) << ms;
  }
  EXPECT_EQ(base.get(), 14us);
}

TEST(BaseRtt, AStandingQueueThatMarksIsNotTakenForDistance) {
  BaseRtt base(14us);
  base.add(time_at(1ms), 5us, false);
  for (int ms = 2; ms < 1000; ++ms) {
    // One in ten is marked: the other nine are not taken for distance either.
    base.add(time_at(std::chrono::milliseconds{ms}), 12us, ms % 10 == 0);
  }
  EXPECT_EQ(base.get(), 5us);
}

// A base beyond what was told was proved by data (accept()). The answer to a distance question must
// not lower it, because the question may travel by a shorter path, or with priority.
TEST(BaseRtt, WhatDataProvedIsTakenBackByDataOnly) {
  BaseRtt base(14us);
  base.limit(14us);
  base.accept(56us);
  EXPECT_EQ(base.get(), 56us);
  base.limit(20us);
  EXPECT_EQ(base.get(), 56us);
  base.add(time_at(1ms), 55us, false);  // the same within a sixteenth
  base.limit(20us);
  EXPECT_EQ(base.get(), 55us);
  base.add(time_at(2ms), 30us, false);
  EXPECT_EQ(base.get(), 30us);
  base.limit(20us);
  EXPECT_EQ(base.get(), 20us);
}

// Clocks that step back and peers that lie: the base stays between 1 ns, which can be divided by,
// and what was told.
TEST(BaseRtt, NonsenseStaysWithinReason) {
  BaseRtt base(14us);
  base.add(time_at(1ms), Duration{-5}, false);
  EXPECT_EQ(base.get(), 1ns);
  EXPECT_EQ(BaseRtt(Duration{-3}).get(), 1ns);
  BaseRtt slow(14us);
  for (int s = 1; s < 10; ++s) {
    slow.add(time_at(std::chrono::seconds{s}), 100s, false);
  }
  EXPECT_EQ(slow.get(), 14us);
}

}  // namespace
}  // namespace weft::srd
