// Owns the tests that every path selector must pass, and those of the simple ones.
#include "srd/engine/paths/path_selector.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <map>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#include "srd/base/rng.hpp"

namespace weft::srd {
namespace {

using namespace std::chrono_literals;
using Paths = std::initializer_list<std::uint16_t>;

static_assert(std::is_nothrow_move_constructible_v<PathSelector>);
// There is one for each peer.
static_assert(sizeof(PathSelector) <= 96);

PathSelector selector(std::string_view name, std::uint16_t paths, std::uint64_t seed = 1) {
  return make_path_selector(name, paths, seed, PathTuning{}).value();
}

// How often each path was taken in so many picks.
std::map<std::uint16_t, int> histogram(PathSelector& s, int picks, TimePoint now = time_at(1us)) {
  std::map<std::uint16_t, int> counts;
  for (int i = 0; i < picks; ++i) {
    ++counts[s.pick(now).value()];
  }
  return counts;
}

TEST(PathSelectorNames, EachNameResolvesToItsKindAndBack) {
  for (const std::string_view name : path_selector_names()) {
    const auto kind = parse_path_selector(name);
    ASSERT_TRUE(kind.has_value()) << name;
    EXPECT_EQ(to_string(*kind), name);
  }
}

TEST(PathSelectorNames, AnUnknownNameIsAnsweredWithTheKnownOnes) {
  const auto made = make_path_selector("best", 4, 1, PathTuning{});
  ASSERT_FALSE(made.has_value());
  EXPECT_NE(made.error().message.find("best"), std::string::npos);
  EXPECT_NE(made.error().message.find("oblivious"), std::string::npos);
}

TEST(PathSelectorNames, ThereIsAtLeastOnePathAndAtMost256) {
  EXPECT_FALSE(make_path_selector("reps", 0, 1, PathTuning{}).has_value());
  EXPECT_FALSE(make_path_selector("reps", 257, 1, PathTuning{}).has_value());
  EXPECT_TRUE(make_path_selector("reps", 256, 1, PathTuning{}).has_value());
}

class EverySelector : public testing::TestWithParam<std::string_view> {};

// Whatever is reported, in whatever order, with lies about paths that do not exist: the choice is a
// path.
TEST_P(EverySelector, PicksOnlyExistingPathsUnderAnyFeedback) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    const auto paths = static_cast<std::uint16_t>(rng.between(1, 256));
    PathSelector s = selector(GetParam(), paths, seed);
    TimePoint now = time_at(1us);
    for (int i = 0; i < 2000; ++i) {
      now += Duration{rng.below(100'000)};
      if (rng.chance(0.5)) {
        ASSERT_LT(s.pick(now).value(), paths);
      } else {
        const auto path = static_cast<std::uint16_t>(rng.below(rng.chance(0.1) ? 65536 : paths));
        const auto event = static_cast<PathEvent>(rng.below(6));
        s.on_feedback(now, PathId{path}, event,
                      Duration{static_cast<std::int64_t>(rng.next() >> rng.below(64))});
      }
    }
  }
}

// Simulations are functions of their seed: a selector that drew from anywhere else would end that.
TEST_P(EverySelector, GivesTheSameChoicesForTheSameSeed) {
  PathSelector a = selector(GetParam(), 64, 7);
  PathSelector b = selector(GetParam(), 64, 7);
  for (int i = 0; i < 500; ++i) {
    const PathId path = a.pick(time_at(1us));
    ASSERT_EQ(path, b.pick(time_at(1us)));
    a.on_feedback(time_at(1us), path, i % 3 == 0 ? PathEvent::congested : PathEvent::good, 10us);
    b.on_feedback(time_at(1us), path, i % 3 == 0 ? PathEvent::congested : PathEvent::good, 10us);
  }
}

TEST_P(EverySelector, HasNoChoiceWithOnePath) {
  PathSelector s = selector(GetParam(), 1);
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(s.pick(time_at(1us)), PathId{0});
    s.on_feedback(time_at(1us), PathId{0}, PathEvent::timeout, 0us);
  }
}

INSTANTIATE_TEST_SUITE_P(Paths, EverySelector,
                         testing::ValuesIn(path_selector_names().begin(),
                                           path_selector_names().end()),
                         [](const auto& each) { return std::string(each.param); });

TEST(Oblivious, UsesEachPathOncePerRound) {
  for (const std::uint16_t paths : Paths{1, 2, 5, 16, 100, 255, 256}) {
    PathSelector s = selector("oblivious", paths);
    for (int i = 0; i < 3 * 256; ++i) {  // into the middle of nowhere: to the start of a round
      (void)s.pick(time_at(1us));
    }
    const auto counts = histogram(s, 40 * paths);
    ASSERT_EQ(counts.size(), paths);
    for (const auto& [path, count] : counts) {
      EXPECT_NEAR(count, 40, 1) << path;
    }
  }
}

// With one order for ever, senders in step would meet on the same path in each round.
TEST(Oblivious, ChangesTheOrderFromRoundToRound) {
  PathSelector s = selector("oblivious", 64, 3);
  std::set<std::vector<std::uint16_t>> orders;
  while (s.pick(time_at(1us)) == PathId{0}) {
  }
  for (int round = 0; round < 20; ++round) {
    std::vector<std::uint16_t> order;
    for (int i = 0; i < 64; ++i) {
      order.push_back(s.pick(time_at(1us)).value());
    }
    orders.insert(order);
  }
  EXPECT_GT(orders.size(), 10U);
}

TEST(Ecmp, KeepsOnePathAndSpreadsPeers) {
  std::set<std::uint16_t> chosen;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    PathSelector s = selector("ecmp", 16, seed);
    const auto counts = histogram(s, 10);
    ASSERT_EQ(counts.size(), 1U);
    chosen.insert(counts.begin()->first);
  }
  // 400 draws leave out one of 16 once in ten thousand million times.
  EXPECT_EQ(chosen.size(), 16U);
}

TEST(Bitmap, SkipsAMarkedPathOnceAndATimedOutOneFifteenTimes) {
  for (const auto& [event, skipped] : std::map<PathEvent, int>{{PathEvent::congested, 1},
                                                               {PathEvent::trimmed, 4},
                                                               {PathEvent::gap, 4},
                                                               {PathEvent::timeout, 15}}) {
    PathSelector s = selector("bitmap", 16);
    s.on_feedback(time_at(1us), PathId{5}, event, 0us);
    if (event == PathEvent::timeout) {  // fifteen is the most, however often
      s.on_feedback(time_at(1us), PathId{5}, event, 0us);
    }
    int others = 0;
    while (s.pick(time_at(1us)) != PathId{5}) {
      ++others;
      ASSERT_LT(others, 1000);
    }
    // Each round that passes it takes one off; the round in which it is taken may be cut at both
    // ends.
    EXPECT_GE(others, 15 * (skipped - 1));
    EXPECT_LE(others, 16 * (skipped + 1));
  }
}

TEST(Bitmap, GivesUpSkippingWhenEveryPathIsPenalised) {
  PathSelector s = selector("bitmap", 8);
  for (std::uint16_t path = 0; path < 8; ++path) {
    s.on_feedback(time_at(1us), PathId{path}, PathEvent::timeout, 0us);
  }
  EXPECT_EQ(histogram(s, 8 * 40).size(), 8U);  // it neither hangs nor sticks to one
}

TEST(Mixed, RecyclesEachCleanPathOnceInOrderThenSprays) {
  PathSelector s = selector("mixed", 64);
  for (const std::uint16_t path : Paths{9, 4, 9, 33}) {
    s.on_feedback(time_at(1us), PathId{path}, PathEvent::good, 10us);
  }
  s.on_feedback(time_at(1us), PathId{50}, PathEvent::timeout, 0us);
  for (const std::uint16_t path : Paths{9, 4, 9, 33}) {
    EXPECT_EQ(s.pick(time_at(1us)), PathId{path});
  }
  EXPECT_EQ(histogram(s, 10 * 64).count(50), 0U);  // the bitmap remembers
}

// Path 9 has been noted as clean five times before it fails: none of these notes may lead back to
// it.
TEST(Mixed, ForgetsAPathThatTimedOut) {
  PathSelector s = selector("mixed", 64);
  for (int i = 0; i < 5; ++i) {
    s.on_feedback(time_at(1us), PathId{9}, PathEvent::good, 10us);
    s.on_feedback(time_at(1us), PathId{8}, PathEvent::good, 10us);
  }
  s.on_feedback(time_at(1us), PathId{9}, PathEvent::timeout, 0us);
  const auto counts = histogram(s, 5);
  EXPECT_EQ(counts.at(8), 5);
}

// 4 of 16 paths are four times as slow. They have to be tried now and then all the same, or a path
// that recovers would never be found.
TEST(Po2, PrefersFastPathsAndNeverForgetsTheSlowOnes) {
  PathSelector s = selector("po2", 16);
  int slow = 0;
  constexpr int kPicks = 100'000;
  for (int i = 0; i < kPicks; ++i) {
    const PathId path = s.pick(time_at(1us));
    const bool is_slow = path.value() < 4;
    slow += is_slow ? 1 : 0;
    s.on_feedback(time_at(1us), path, PathEvent::good, is_slow ? 40us : 10us);
  }
  EXPECT_LT(slow, kPicks / 10);  // a blind choice takes a quarter of them
  EXPECT_GT(slow, 20);
}

// Two congested rounds, a good one, two congested: the count has to begin again at the good one.
TEST(Plb, MovesAfterThreeCongestedRoundsInARow) {
  const PathTuning tuning;
  PathSelector s = selector("plb", 64);
  TimePoint now = time_at(1us);
  const PathId first = s.pick(now);
  auto round = [&](PathEvent event) {
    for (int i = 0; i < 10; ++i) {
      now += tuning.base_rtt / 10 + 1ns;
      s.on_feedback(now, s.pick(now), event, 10us);
    }
  };
  round(PathEvent::congested);
  round(PathEvent::congested);
  round(PathEvent::good);
  round(PathEvent::congested);
  round(PathEvent::congested);
  EXPECT_EQ(s.pick(now), first);
  round(PathEvent::congested);
  round(PathEvent::congested);
  EXPECT_NE(s.pick(now), first);
}

TEST(Plb, MovesAtOnceWhenItsPathGoesSilent) {
  PathSelector s = selector("plb", 4);
  const PathId first = s.pick(time_at(1us));
  const PathId other{static_cast<std::uint16_t>((first.value() + 1) % 4)};
  s.on_feedback(time_at(2us), other, PathEvent::timeout, 0us);
  EXPECT_EQ(s.pick(time_at(2us)), first);
  s.on_feedback(time_at(3us), first, PathEvent::timeout, 0us);
  EXPECT_NE(s.pick(time_at(3us)), first);
}

}  // namespace
}  // namespace weft::srd
