// Owns the short swarm that every test run includes; `weft swarm` runs as many seeds as one has
// time for.
#include "emu/swarm/swarm.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <string_view>

#include "emu/swarm/run.hpp"
#include "srd/engine/cc/congestion_control.hpp"
#include "srd/engine/paths/path_selector.hpp"

namespace weft::swarm {
namespace {

TEST(Swarm, SeedsAreClean) {
  Tally tally;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    const RunOutcome outcome = carry_out(make_plan(seed));
    EXPECT_EQ(outcome.failure, "") << "replay: weft swarm --first " << seed << " --story";
    tally.add(seed, outcome);
  }
  // A swarm that does nothing finds nothing.
  EXPECT_GT(tally.packets, 50'000U);
  EXPECT_GT(tally.completed_ok, 10'000U);
}

// Far beyond those that every check runs. The engine stood still, or the judge was wrong.
TEST(Swarm, SeedsThatOnceFailedAreClean) {
  for (const std::uint64_t seed : {22660, 26529, 27087, 58184, 86727, 91247, 100716}) {
    EXPECT_EQ(carry_out(make_plan(seed)).failure, "") << "replay: weft swarm --first " << seed;
  }
}

TEST(Swarm, ARunIsAFunctionOfItsSeed) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    EXPECT_EQ(carry_out(make_plan(seed)).digest, carry_out(make_plan(seed)).digest);
  }
  EXPECT_NE(carry_out(make_plan(1)).digest, carry_out(make_plan(2)).digest);
}

// A new one has to be added to the draws of the swarm as well as to the engine.
TEST(Swarm, EveryPathSelectorAndEveryCongestionControlIsDrawn) {
  std::set<std::string> drawn;
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    for (const HostPlan& host : make_plan(seed).hosts) {
      drawn.insert(host.engine.path_selector);
      drawn.insert(host.engine.congestion_control);
    }
  }
  for (const auto names : {srd::path_selector_names(), srd::congestion_control_names()}) {
    for (const std::string_view name : names) {
      EXPECT_TRUE(drawn.contains(std::string(name))) << name << ": add it to emu/swarm/draws.cpp";
    }
  }
}

TEST(Swarm, WatchingDoesNotChangeARun) {
  std::size_t lines = 0;
  const RunOutcome watched =
      carry_out(make_plan(3), [&](const std::string& line) { lines += line.empty() ? 0 : 1; });
  EXPECT_EQ(watched.digest, carry_out(make_plan(3)).digest);
  EXPECT_GT(lines, 100U);
}

TEST(Swarm, ShrinkingLeavesOnlyWhatTheFailureNeeds) {
  const Plan plan = make_plan(7);
  ASSERT_GT(plan.steps.size(), 20U);
  // The failure is invented: a plan fails if it has this one step.
  const std::uint64_t culprit = plan.steps[plan.steps.size() / 2].random;
  const Plan small = shrink(plan, [&](const Plan& candidate) {
    for (const Step& step : candidate.steps) {
      if (step.random == culprit) {
        return true;
      }
    }
    return false;
  });
  for (const Step& step : small.steps) {
    EXPECT_EQ(step.random, culprit);
  }
  EXPECT_GE(small.steps.size(), 1U);
}

}  // namespace
}  // namespace weft::swarm
