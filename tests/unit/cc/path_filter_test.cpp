// Owns the tests of the view of a peer through its paths, and of the base RTT.
#include "srd/engine/cc/path_filter.hpp"

#include <gtest/gtest.h>

#include "srd/engine/cc/base_rtt.hpp"

namespace weft::srd {
namespace {

using namespace std::chrono_literals;

PathId path(unsigned i) { return PathId{static_cast<std::uint16_t>(i)}; }

TEST(PathFilter, SaysNothingWithoutSamples) {
  const PathFilter filter;
  EXPECT_EQ(filter.view(1000, 1000).delay, 0U);
  EXPECT_FALSE(filter.view(1000, 1000).marked);
}

TEST(PathFilter, OneBadPathIsOneVoiceHoweverOftenItSpeaks) {
  PathFilter filter;
  for (unsigned i = 0; i < 4; ++i) {
    filter.add(path(i), 10, false, 100);
  }
  for (int i = 0; i < 1000; ++i) {
    filter.add(path(77), 9999, true, 100);
  }
  EXPECT_EQ(filter.view(100, 50).delay, 10U);
  EXPECT_FALSE(filter.view(100, 50).marked);
}

TEST(PathFilter, ACongestedPeerIsSeenOnNearlyTwoThirdsOfThePaths) {
  for (unsigned bad = 0; bad <= 16; ++bad) {
    PathFilter filter;
    for (unsigned i = 0; i < 16; ++i) {
      filter.add(path(i), i < bad ? 500 : 10, i < bad, 100);
    }
    EXPECT_EQ(filter.view(100, 50).marked, bad >= 11) << bad;
    EXPECT_EQ(filter.view(100, 50).delay == 500, bad >= 11) << bad;
  }
}

TEST(PathFilter, OldSamplesDoNotCountEvenAcrossTheWrapOfTheClock) {
  PathFilter filter;
  filter.add(path(1), 500, true, 0xFFFFFF00);
  filter.add(path(2), 500, true, 0xFFFFFF00);
  filter.add(path(3), 7, false, 0x00000010);
  EXPECT_EQ(filter.view(0x00000020, 0x40).delay, 7U);
  EXPECT_FALSE(filter.view(0x00000020, 0x40).marked);
  EXPECT_TRUE(filter.view(0x00000020, 0x400).marked);
}

TEST(PathFilter, ForgetsThePathThatItHeardOfFirst) {
  PathFilter filter;
  for (unsigned i = 0; i < 16; ++i) {
    filter.add(path(i), 500, true, 100);
  }
  for (unsigned i = 100; i < 116; ++i) {
    filter.add(path(i), 3, false, 100);
  }
  EXPECT_EQ(filter.view(100, 50).delay, 3U);
  EXPECT_FALSE(filter.view(100, 50).marked);
}

TEST(BaseRtt, FollowsASmallerMeasurementAtOnceAndALargerOneAfterAPeriod) {
  BaseRtt base(14us);
  base.add(time_at(1ms), 5us, false);
  EXPECT_EQ(base.get(), 5us);
  for (int ms = 2; ms < 400; ++ms) {
    base.add(time_at(std::chrono::milliseconds{ms}), 200us, false);
    if (ms < 100) {
      EXPECT_EQ(base.get(), 5us);
    }
  }
  EXPECT_EQ(base.get(), 200us);
}

TEST(BaseRtt, AStandingQueueThatMarksIsNotTakenForDistance) {
  BaseRtt base(14us);
  for (int ms = 1; ms < 1000; ++ms) {
    base.add(time_at(std::chrono::milliseconds{ms}), 40us, ms % 10 == 0);
  }
  EXPECT_EQ(base.get(), 14us);
}

TEST(BaseRtt, NonsenseStaysWithinReason) {
  BaseRtt base(14us);
  base.add(time_at(1ms), Duration{-5}, false);
  EXPECT_EQ(base.get(), 1ns);
  BaseRtt slow(14us);
  for (int s = 1; s < 10; ++s) {
    slow.add(time_at(std::chrono::seconds{s}), 100s, false);
  }
  EXPECT_EQ(slow.get(), 10ms);
}

}  // namespace
}  // namespace weft::srd
