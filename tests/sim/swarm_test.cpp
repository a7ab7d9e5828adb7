// Owns the short swarm that every test run includes; `weft swarm` runs as many seeds as one has
// time for.
#include "emu/swarm/swarm.hpp"

#include <gtest/gtest.h>

#include "emu/swarm/run.hpp"

namespace weft::swarm {
namespace {

TEST(Swarm, SeedsAreClean) {
  Tally tally;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    const Outcome outcome = carry_out(make_plan(seed));
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

TEST(Swarm, WatchingDoesNotChangeARun) {
  std::size_t lines = 0;
  const Outcome watched =
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
