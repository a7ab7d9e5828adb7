// Owns the tests of REPS: recycling and exploring.
#include "srd/engine/paths/reps.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <set>
#include <string>
#include <vector>

namespace weft::srd {
namespace {

using namespace std::chrono_literals;
using Paths = std::initializer_list<std::uint16_t>;

constexpr std::uint16_t kPaths = 256;

// One policy and the feedback that a peer would give; the clock moves when a test moves it.
struct Reps : testing::Test {
  RepsPolicy reps{kPaths, 1};
  TimePoint now = time_at(1ms);

  void event(std::uint16_t path, PathEvent what, Duration rtt = 14us) {
    reps.on_feedback(now, PathId{path}, what, rtt);
  }
  std::vector<std::uint16_t> picks(int count) {
    std::vector<std::uint16_t> taken;
    for (int i = 0; i < count; ++i) {
      taken.push_back(reps.pick(now).value());
    }
    return taken;
  }
  std::size_t distinct(int count) {
    const auto taken = picks(count);
    return std::set<std::uint16_t>(taken.begin(), taken.end()).size();
  }
};

TEST_F(Reps, FitsIntoALineOfCache) { EXPECT_LE(sizeof(RepsPolicy), 64U); }

TEST_F(Reps, ExploresEachPathOnceARoundWhileItKnowsNothing) {
  (void)picks(static_cast<int>(kPaths));  // begins somewhere in its first round
  const auto taken = picks(4 * kPaths);
  for (std::uint16_t path = 0; path < kPaths; ++path) {
    const auto times = std::count(taken.begin(), taken.end(), path);
    EXPECT_GE(times, 3) << path;
    EXPECT_LE(times, 5) << path;
  }
}

TEST_F(Reps, RecyclesCleanPathsOldestFirstAndEachOnce) {
  for (const std::uint16_t path : Paths{10, 20, 30}) {
    event(path, PathEvent::good);
  }
  EXPECT_EQ(picks(3), (std::vector<std::uint16_t>{10, 20, 30}));
  EXPECT_GT(distinct(500), 150U);  // then it explores again
}

// None of these says that the path is clean. 150 different paths of 256 in 500 picks is what
// exploring gives.
TEST_F(Reps, LossesAndMarksOfUnknownDelayAreNotRecycled) {
  event(10, PathEvent::congested, 0us);
  event(11, PathEvent::trimmed);
  event(12, PathEvent::gap);
  EXPECT_GT(distinct(500), 150U);
}

// The share of acknowledgements with that round trip that is recycled.
struct RepsByDelay : Reps {
  double kept(PathEvent what, Duration rtt, Duration usual) {
    constexpr int kTrials = 2000;
    constexpr std::uint16_t kProbe = 200;
    int recycled = 0;
    for (int i = 0; i < kTrials; ++i) {
      for (int n = 0; n < 40; ++n) {
        event(7, PathEvent::good, usual);
      }
      (void)picks(RepsPolicy::kRing);
      event(kProbe, what, rtt);
      recycled += picks(1).front() == kProbe ? 1 : 0;
    }
    return static_cast<double>(recycled) / kTrials;
  }
};

// If all paths are congested alike, leaving one for another gains nothing: only exploring would be
// left, with its collisions.
TEST_F(RepsByDelay, MarksDoNotMatterWhereAllPathsAreEquallySlow) {
  event(1, PathEvent::good, 40us);  // no path was ever faster
  EXPECT_GT(kept(PathEvent::congested, 40us, 40us), 0.99);
  EXPECT_GT(kept(PathEvent::good, 38us, 40us), 0.99);
}

// 50 us where 40 are usual: about 40 % leave. If all left at once, the next path would be
// congested.
TEST_F(RepsByDelay, WhatIsTooSlowLeavesInProportion) {
  event(1, PathEvent::good, 40us);
  EXPECT_NEAR(kept(PathEvent::congested, 50us, 40us), 0.6, 0.1);
  EXPECT_NEAR(kept(PathEvent::good, 44us, 40us), 0.82, 0.1);
  EXPECT_LT(kept(PathEvent::good, 100us, 40us), 0.02);
}

// A repaired link is found only by senders that look for it.
TEST_F(RepsByDelay, SomeLookForBetterPathsWhereAllQueuesAreLong) {
  event(1, PathEvent::good, 10us);
  EXPECT_NEAR(kept(PathEvent::congested, 50us, 50us), 0.6, 0.1);
  EXPECT_NEAR(kept(PathEvent::good, 11us, 11us), 0.955, 0.03);
}

// Eleven clean paths, eight places: the oldest notes are overwritten, as they say least about now.
TEST_F(Reps, TheRingHoldsTheEightNewest) {
  for (std::uint16_t path = 0; path < 11; ++path) {
    event(path, PathEvent::good);
  }
  EXPECT_EQ(picks(8), (std::vector<std::uint16_t>{3, 4, 5, 6, 7, 8, 9, 10}));
}

TEST_F(Reps, APathThatFailsLeavesTheRing) {
  for (const std::uint16_t path : Paths{10, 20, 10, 30}) {
    event(path, PathEvent::good);
  }
  event(10, PathEvent::timeout);
  EXPECT_EQ(picks(2), (std::vector<std::uint16_t>{20, 30}));
  EXPECT_GT(distinct(16), 8U) << "and what is left explores";
}

}  // namespace
}  // namespace weft::srd
