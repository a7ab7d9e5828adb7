// Owns the runs of RoCEv2 engines under faults: no seed may break a rule, and each seed is
// reproducible.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>

#include "emu/roce/swarm/run.hpp"

namespace weft::roce::swarm {
namespace {

// WEFT_ROCE_SEEDS=FIRST-LAST asks for others, WEFT_ROCE_SEEDS=SEED for one.
struct Seeds {
  std::uint64_t first = 1;
  std::uint64_t last = 1500;
};

Seeds seeds() {
  Seeds wanted;
  if (const char* text = std::getenv("WEFT_ROCE_SEEDS")) {
    char* rest = nullptr;
    wanted.first = wanted.last = std::strtoull(text, &rest, 10);
    wanted.last = *rest == '-' ? std::strtoull(rest + 1, nullptr, 10) : wanted.last;
  }
  return wanted;
}

TEST(RoceSwarm, BreaksNoRule) {
  const auto [first, last] = seeds();
  ASSERT_LE(first, last) << "WEFT_ROCE_SEEDS asks for no seed";
  RunOutcome sum;
  for (std::uint64_t seed = first; seed <= last; ++seed) {
    const RunOutcome outcome = carry_out(plan_of(seed));
    ASSERT_EQ(outcome.failure, "") << "WEFT_ROCE_SEEDS=" << seed;
    sum.requests += outcome.requests;
    sum.succeeded += outcome.succeeded;
    sum.frames += outcome.frames;
    sum.retries += outcome.retries;
    sum.duplicates += outcome.duplicates;
    sum.not_ready += outcome.not_ready;
  }
  RecordProperty("requests", static_cast<int>(sum.requests));
  std::cout << sum.requests << " requests, " << sum.succeeded << " succeeded, " << sum.frames
            << " frames, " << sum.retries << " retries, " << sum.duplicates << " duplicates, "
            << sum.not_ready << " not ready\n";
  if (first + 100 < last) {  // the faults have happened, and most of the work was done
    EXPECT_GT(sum.succeeded, sum.requests / 2);
    EXPECT_GT(sum.retries, last - first);
    EXPECT_GT(sum.duplicates, last - first);
    EXPECT_GT(sum.not_ready, last - first);
  }
}

TEST(RoceSwarm, IsReproducible) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const RunOutcome once = carry_out(plan_of(seed));
    const RunOutcome again = carry_out(plan_of(seed));
    EXPECT_EQ(once.frames, again.frames);
    EXPECT_EQ(once.retries, again.retries);
    EXPECT_EQ(once.succeeded, again.succeeded);
  }
}

}  // namespace
}  // namespace weft::roce::swarm
