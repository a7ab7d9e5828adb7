// Owns the tests of policy and health together.
#include "srd/engine/paths/peer_paths.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "srd/base/rng.hpp"

namespace weft::srd {
namespace {

using namespace std::chrono_literals;

// With every policy: the health of paths must rule whatever policy chooses among them.
class PeerPathsOf : public testing::TestWithParam<std::string_view> {
 protected:
  static PeerPaths make(std::uint16_t paths, std::uint64_t seed = 1, std::uint32_t run = 0) {
    return {make_path_selector(GetParam(), paths, seed, PathTuning{}).value(), PathHealthTuning{},
            run};
  }
};

TEST_P(PeerPathsOf, NeverUsesABadPathWhileThereIsAGoodOne) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    const auto paths = static_cast<std::uint16_t>(rng.between(2, 128));
    PeerPaths peer = make(paths, seed);
    TimePoint now = time_at(1ms);
    for (int i = 0; i < 1000; ++i) {
      now += Duration{rng.below(20'000)};
      const PathId path{static_cast<std::uint16_t>(rng.below(paths))};
      (void)peer.on_feedback(now, path, rng.chance(0.2) ? PathEvent::timeout : PathEvent::good,
                             14us);
      const PathId taken = peer.pick(now);
      ASSERT_LT(taken.value(), paths);
      if (peer.health().bad_paths() < paths) {
        ASSERT_NE(peer.health().state(now, taken), PathState::assumed_bad);
      }
    }
  }
}

// Half of the paths lead over a link that breaks. One timeout is enough to stay away from all of
// them, for some round trips, as long as others are known to work.
TEST_P(PeerPathsOf, AfterAFailureOnlyProvenPathsAreUsed) {
  PeerPaths peer = make(64);
  TimePoint now = time_at(1ms);
  (void)peer.on_feedback(now, PathId{0}, PathEvent::timeout, 0us);
  for (std::uint16_t path = 1; path < 64; path += 2) {
    (void)peer.on_feedback(now, PathId{path}, PathEvent::good, 14us);
  }
  (void)peer.on_feedback(now, PathId{2}, PathEvent::probe_ok, 14us);
  for (int i = 0; i < 200; ++i) {
    now += 100ns;
    ASSERT_EQ(peer.pick(now).value() % 2, 1) << i;
  }
}

// All paths timed out, but the peer may be back: each path has to be tried in turn, or a sender on
// a dead one would stay there.
TEST_P(PeerPathsOf, StillSendsWhenAllPathsAreBad) {
  PeerPaths peer = make(8);
  TimePoint now = time_at(1ms);
  for (std::uint16_t path = 0; path < 8; ++path) {
    (void)peer.on_feedback(now, PathId{path}, PathEvent::timeout, 0us);
  }
  ASSERT_EQ(peer.health().bad_paths(), 8);
  std::set<std::uint16_t> tried;
  for (int i = 0; i < 8; ++i) {
    now += 1us;
    tried.insert(peer.pick(now).value());
  }
  EXPECT_EQ(tried.size(), 8U);
}

// The packet may have been lost because of its path.
TEST_P(PeerPathsOf, ARetransmissionLeavesOnAnotherPath) {
  PeerPaths peer = make(4);
  for (int i = 0; i < 200; ++i) {
    const PathId lost_on = peer.pick(time_at(1ms));
    ASSERT_NE(peer.pick_other_than(time_at(1ms), lost_on), lost_on);
  }
  PeerPaths only = make(1);
  EXPECT_EQ(only.pick_other_than(time_at(1ms), PathId{0}), PathId{0});
}

TEST_P(PeerPathsOf, WhatHasBeenLostTwiceTakesTheSurestPath) {
  PeerPaths peer = make(64);
  const TimePoint now = time_at(1ms);
  (void)peer.on_feedback(now, PathId{9}, PathEvent::timeout, 0us);
  (void)peer.on_feedback(now, PathId{21}, PathEvent::probe_ok, 14us);
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(peer.pick_other_than(now, PathId{9}, true), PathId{21});
    EXPECT_NE(peer.pick_other_than(now, PathId{21}, true), PathId{21});
  }
}

// What leaves later, and what is more than a run, is the policy's to spray again.
TEST_P(PeerPathsOf, KeepToAPathForARunOfPacketsThatLeaveAtOnce) {
  constexpr int kRun = 8;
  constexpr std::uint32_t kBytes = 100;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    PeerPaths peer = make(64, seed, kRun * kBytes + kBytes - 1);
    PeerPaths twin = make(64, seed);  // draws what the policy draws
    TimePoint now = time_at(1ms);
    for (const int packets : {3 * kRun, 1, 2, kRun, kRun + 1, 1}) {
      for (int left = packets; left > 0; left -= kRun) {
        const PathId path = twin.pick(now);
        for (int i = 0; i < std::min(left, kRun); ++i) {
          ASSERT_EQ(peer.pick_in_run(now, kBytes), path)
              << packets << " at once, " << left << " left";
        }
      }
      now += 1ns;
    }
  }
}

// A run of one packet, and none of what would fit behind it.
TEST_P(PeerPathsOf, TakeAPacketThatIsLargerThanARun) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    PeerPaths peer = make(64, seed, 100);
    PeerPaths twin = make(64, seed);
    const TimePoint now = time_at(1ms);
    ASSERT_EQ(peer.pick_in_run(now, 1000), twin.pick(now));
    const PathId next = twin.pick(now);
    ASSERT_EQ(peer.pick_in_run(now, 1), next);
    ASSERT_EQ(peer.pick_in_run(now, 99), next);
    ASSERT_EQ(peer.pick_in_run(now, 1), twin.pick(now));
  }
}

// The path of a run may die between two packets that leave at the same time.
TEST_P(PeerPathsOf, LeaveARunWhosePathHasBecomeBad) {
  PeerPaths peer = make(2, 1, 1000);
  const TimePoint now = time_at(1ms);
  const PathId first = peer.pick_in_run(now, 100);
  for (int i = 0; i < 3; ++i) {
    (void)peer.on_feedback(now, first, PathEvent::timeout, 0us);
  }
  EXPECT_NE(peer.pick_in_run(now, 100), first);
}

INSTANTIATE_TEST_SUITE_P(Paths, PeerPathsOf,
                         testing::ValuesIn(path_selector_names().begin(),
                                           path_selector_names().end()),
                         [](const auto& each) { return std::string(each.param); });

}  // namespace
}  // namespace weft::srd
