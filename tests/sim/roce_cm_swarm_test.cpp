// Owns the runs of connection managers under faults: no seed may break a rule.
#include "tests/sim/roce_cm_swarm.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <iostream>

namespace weft::roce::cm {
namespace {

// WEFT_CM_SEEDS=FIRST-LAST asks for others.
TEST(CmSwarm, BreaksNoRule) {
  std::uint64_t first = 1;
  std::uint64_t last = 2000;
  if (const char* text = std::getenv("WEFT_CM_SEEDS")) {
    char* rest = nullptr;
    first = std::strtoull(text, &rest, 10);
    last = std::strtoull(rest + (*rest == '-' ? 1 : 0), nullptr, 10);
  }
  SwarmOutcome sum;
  for (std::uint64_t seed = first; seed <= last; ++seed) {
    const SwarmOutcome outcome = carry_out(swarm_plan_of(seed));
    ASSERT_EQ(outcome.failure, "") << "WEFT_CM_SEEDS=" << seed << "-" << seed;
    sum.asked += outcome.asked;
    sum.connected += outcome.connected;
    sum.rejected += outcome.rejected;
    sum.unreachable += outcome.unreachable;
    sum.disconnected += outcome.disconnected;
    sum.messages += outcome.messages;
  }
  std::cout << sum.asked << " connections asked for, " << sum.connected << " made, " << sum.rejected
            << " rejected, " << sum.unreachable << " unreachable, " << sum.disconnected
            << " ends heard of, " << sum.messages << " messages\n";
  if (first + 100 < last) {  // everything has happened, and most connections were made
    EXPECT_GT(sum.connected, sum.asked / 2);
    EXPECT_GT(sum.rejected, last - first);
    EXPECT_GT(sum.unreachable, (last - first) / 10);
    EXPECT_GT(sum.disconnected, last - first);
  }
}

TEST(CmSwarm, IsReproducible) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const SwarmOutcome once = carry_out(swarm_plan_of(seed));
    const SwarmOutcome again = carry_out(swarm_plan_of(seed));
    EXPECT_EQ(once.messages, again.messages);
    EXPECT_EQ(once.connected, again.connected);
  }
}

}  // namespace
}  // namespace weft::roce::cm
