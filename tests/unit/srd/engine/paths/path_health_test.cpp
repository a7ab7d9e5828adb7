// Owns the tests of the health of paths: abandoned, probed, taken back.
//
// A path that times out is abandoned, asked by probes at growing distance, and taken back by any
// proof that something arrives. The tests give PathHealth the events that an engine would, with a
// clock of their own; 16 paths are enough to see turns.
#include "srd/engine/paths/path_health.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <set>
#include <string>
#include <vector>

#include "srd/base/rng.hpp"

namespace weft::srd {
namespace {

using namespace std::chrono_literals;
using Paths = std::initializer_list<std::uint16_t>;

struct Health : testing::Test {
  PathHealthTuning tuning;
  PathHealth health{16, tuning};
  TimePoint now = time_at(1ms);

  // True if this abandoned the path.
  bool event(std::uint16_t path, PathEvent what, Duration rtt = 0us) {
    return health.on_feedback(now, PathId{path}, what, rtt) == PathChange::abandoned;
  }
  PathState state(std::uint16_t path) { return health.state(now, PathId{path}); }
};

TEST_F(Health, StartsWithAllPathsGoodAndNothingToProbe) {
  EXPECT_TRUE(health.all_good());
  EXPECT_EQ(health.next_probe(), kNever);
  EXPECT_EQ(health.take_probe(now + 1s, 0us, false), std::nullopt);
}

// The next usable path takes its place.
TEST_F(Health, OneTimeoutAbandonsAPathByDefault) {
  EXPECT_TRUE(event(3, PathEvent::timeout));
  EXPECT_EQ(state(3), PathState::assumed_bad);
  EXPECT_EQ(health.bad_paths(), 1);
  EXPECT_FALSE(event(3, PathEvent::timeout)) << "it is abandoned only once";
  EXPECT_EQ(health.find_usable(now, PathId{3}), PathId{4});
}

// A gap or a mark says that a queue was full; a time-out, that nothing arrives any more.
TEST_F(Health, GapsAndMarksAbandonNothing) {
  for (int i = 0; i < 100; ++i) {
    event(3, PathEvent::gap);
    event(3, PathEvent::congested);
    event(3, PathEvent::trimmed);
  }
  EXPECT_TRUE(health.all_good());
}

TEST_F(Health, WhateverProvesDeliveryTakesAPathBack) {
  for (const PathEvent proof :
       {PathEvent::probe_ok, PathEvent::good, PathEvent::congested, PathEvent::trimmed}) {
    event(3, PathEvent::timeout);
    event(3, PathEvent::gap);
    EXPECT_EQ(state(3), PathState::assumed_bad);
    event(4, proof);
    EXPECT_EQ(state(3), PathState::assumed_bad) << "the proof was another path's";
    event(3, proof);
    EXPECT_EQ(state(3), PathState::good);
    EXPECT_TRUE(health.all_good());
    EXPECT_EQ(health.next_probe(), kNever);
  }
}

// The first probe leaves when an answer could have come, the next ones less and less often: a dead
// path costs hardly anything.
TEST_F(Health, ProbesLeaveAtGrowingDistanceUpToTheInterval) {
  event(3, PathEvent::timeout);
  std::vector<Duration> gaps;
  TimePoint last = now;
  for (int i = 0; i < 12; ++i) {
    const TimePoint due = health.next_probe();
    ASSERT_NE(due, kNever);
    EXPECT_EQ(health.take_probe(due - 1ns, 0us, false), std::nullopt);
    EXPECT_EQ(health.take_probe(due, 0us, false), PathId{3});
    gaps.push_back(due - last);
    last = due;
  }
  EXPECT_EQ(gaps.front(), 4 * tuning.base_rtt);
  EXPECT_TRUE(std::is_sorted(gaps.begin(), gaps.end()));
  EXPECT_EQ(gaps.back(), tuning.probe_interval);
}

// The time that the caller asks for; without one the distance that has grown so far.
TEST_F(Health, AProbeWaitsUntilTheLastOneMayHaveBeenAnswered) {
  event(3, PathEvent::timeout);
  TimePoint last = health.next_probe();
  ASSERT_EQ(health.take_probe(last, 20ms, false), PathId{3});
  EXPECT_EQ(health.next_probe() - last, 20ms);
  last = health.next_probe();
  ASSERT_EQ(health.take_probe(last, 0us, false), PathId{3});
  EXPECT_EQ(health.next_probe() - last, 16 * tuning.base_rtt);
}

// A peer that is gone makes all paths bad. If each of them were probed, a sender would send most to
// machines that are not there. So four probes leave in the time of an answer, along each path in
// turn.
TEST_F(Health, OfASilentPeerFewPathsAreProbedAndAllInTurn) {
  for (std::uint16_t path = 0; path < 16; ++path) {
    event(path, PathEvent::timeout);
  }
  now = health.next_probe();
  std::set<std::uint16_t> probed;
  const TimePoint begin = now;
  for (int i = 0; i < 16; ++i) {
    const auto path = health.take_probe(now, 20ms, true);
    ASSERT_TRUE(path);
    probed.insert(path->value());
    EXPECT_EQ(health.take_probe(now, 20ms, true), std::nullopt);
    now = health.next_probe();
  }
  EXPECT_EQ(probed.size(), 16U);
  EXPECT_EQ(now - begin, 80ms);
}

// And no good one.
TEST_F(Health, ProbesEachBadPath) {
  for (const std::uint16_t path : Paths{2, 7, 11}) {
    event(path, PathEvent::timeout);
  }
  now = health.next_probe();
  std::set<std::uint16_t> probed;
  while (const auto path = health.take_probe(now, 0us, false)) {
    probed.insert(path->value());
  }
  EXPECT_EQ(probed, (std::set<std::uint16_t>{2, 7, 11}));
  EXPECT_GT(health.next_probe(), now);
}

// With two timeouts needed the first one is a suspicion: the path is avoided for a few round trips,
// then used again.
TEST_F(Health, MoreTimeoutsCanBeAskedForAndThenThePathIsSkippedForAMoment) {
  tuning.timeouts_to_abandon = 2;
  health = PathHealth{16, tuning};
  EXPECT_FALSE(event(3, PathEvent::timeout));
  EXPECT_EQ(state(3), PathState::skip);
  EXPECT_FALSE(event(3, PathEvent::timeout)) << "packets lost together count once";
  now += 4 * tuning.base_rtt;
  EXPECT_EQ(state(3), PathState::good);
  EXPECT_TRUE(event(3, PathEvent::timeout));
}

TEST_F(Health, WhereAllPathsAreOneTimeoutsSayNothingAboutThem) {
  tuning.timeouts_to_abandon = 0;
  health = PathHealth{16, tuning};
  for (std::uint16_t path = 0; path < 16; ++path) {
    EXPECT_FALSE(event(path, PathEvent::timeout));
  }
  EXPECT_TRUE(health.all_good());
  EXPECT_EQ(health.next_probe(), kNever);
}

// A path that loses now and then is not dead.
TEST_F(Health, ADeliveryBetweenTimeoutsStartsTheCountAgain) {
  tuning.timeouts_to_abandon = 2;
  health = PathHealth{16, tuning};
  for (int i = 0; i < 10; ++i) {
    EXPECT_FALSE(event(3, PathEvent::timeout));
    now += 4 * tuning.base_rtt;
    event(3, PathEvent::good, 14us);
  }
}

// Congestion makes all paths time out; to abandon them all would leave the sender without any
// spray.
TEST_F(Health, UnderCongestionASingleTimeoutAbandonsOnlyAQuarterOfThePaths) {
  event(0, PathEvent::good, 14us);
  event(0, PathEvent::congested, 40us);
  for (std::uint16_t path = 0; path < 16; ++path) {
    event(path, PathEvent::timeout);
  }
  EXPECT_EQ(health.bad_paths(), 4);
}

// No marks: the network is not full, so silence means that these paths are broken, however many
// they are.
TEST_F(Health, WithoutCongestionEveryFailedPathIsAbandoned) {
  event(0, PathEvent::good, 14us);
  for (std::uint16_t path = 0; path < 16; ++path) {
    event(path, PathEvent::timeout);
  }
  EXPECT_EQ(health.bad_paths(), 16);
}

TEST_F(Health, WhenAllAreBadTheOneThatIsBadLongestIsTriedFirstThenTheOthersInTurn) {
  for (const std::uint16_t path : Paths{5, 9, 2, 0, 1, 3, 4, 6, 7, 8, 10, 11, 12, 13, 14, 15}) {
    event(path, PathEvent::timeout);
    now += 1us;
  }
  std::vector<std::uint16_t> tried;
  for (int i = 0; i < 16; ++i) {
    tried.push_back(health.find_usable(now, PathId{3}).value());
    now += 1us;
  }
  EXPECT_EQ(std::vector(tried.begin(), tried.begin() + 3), (std::vector<std::uint16_t>{5, 9, 2}));
  EXPECT_EQ(std::set(tried.begin(), tried.end()).size(), 16U);
}

// Paths that do not exist among them: feedback comes from the network.
// Whatever has come last, a probe too, and only as long as nothing has failed there.
TEST_F(Health, TheWitnessIsThePathThatHasBroughtSomethingLast) {
  event(5, PathEvent::good);
  EXPECT_EQ(health.witness(), std::nullopt) << "nothing is suspected, and nothing is noted";
  event(3, PathEvent::timeout);
  EXPECT_EQ(health.witness(), std::nullopt);
  for (const PathEvent proof : {PathEvent::good, PathEvent::congested, PathEvent::probe_ok}) {
    event(7, proof);
    EXPECT_EQ(health.witness(), PathId{7});
    event(8, PathEvent::timeout);
    EXPECT_EQ(health.witness(), PathId{7});
    event(7, PathEvent::timeout);
    EXPECT_EQ(health.witness(), std::nullopt);
  }
}

TEST_F(Health, CountsStayTrueUnderAnyEvents) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    const auto paths = static_cast<std::uint16_t>(rng.between(1, 256));
    tuning.timeouts_to_abandon = static_cast<std::uint8_t>(rng.between(0, 3));
    health = PathHealth{paths, tuning};
    for (int i = 0; i < 1000; ++i) {
      now += Duration{rng.below(50'000)};
      event(static_cast<std::uint16_t>(rng.below(paths + 2U)), static_cast<PathEvent>(rng.below(6)),
            Duration{rng.below(100'000)});
      if (rng.chance(0.3)) {
        (void)health.take_probe(now, 0us, false);
      }
      std::uint16_t bad = 0;
      for (std::uint16_t path = 0; path < paths; ++path) {
        bad = static_cast<std::uint16_t>(bad + (state(path) == PathState::assumed_bad ? 1 : 0));
      }
      ASSERT_EQ(health.bad_paths(), bad);
      ASSERT_EQ(health.next_probe() == kNever, bad == 0);
      ASSERT_LT(health.find_usable(now, PathId{0}).value(), paths);
    }
  }
}

}  // namespace
}  // namespace weft::srd
