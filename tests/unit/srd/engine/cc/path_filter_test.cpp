// Owns the tests of the view of a peer through its paths. What is congested at the peer shows on
// all paths, what is congested on the way on few of them: the filter tells the two apart by how
// many of the latest paths agree. The arguments of view() are the time and how old a sample may be.
#include "srd/engine/cc/path_filter.hpp"

#include <gtest/gtest.h>

namespace weft::srd {
namespace {

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
  // The filter holds 16 paths; 11 of them are the first that say it for the whole peer.
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
  // 0x110 after the two before it, by a clock of 32 bits that has come round.
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

}  // namespace
}  // namespace weft::srd
