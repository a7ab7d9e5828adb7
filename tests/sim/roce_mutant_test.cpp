// Owns the proof that the swarm of RoCEv2 engines notices bugs: one rule of the engine is broken
// at a time, and a few seeds must fail. The engine in this program is compiled with its deliberate
// bugs.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "emu/roce/engine/mutation.hpp"
#include "emu/roce/swarm/run.hpp"

namespace weft::roce::swarm {
namespace {

// As many as RoceSwarm.BreaksNoRule runs, which is therefore known to notice each mutation.
constexpr std::uint64_t kSeeds = 1500;

std::string first_failure() {
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    if (const RunOutcome outcome = carry_out(plan_of(seed)); !outcome.failure.empty()) {
      return "seed " + std::to_string(seed) + ": " + outcome.failure;
    }
  }
  return {};
}

TEST(RoceMutant, WithoutOneNothingFails) {
  active_mutation = Mutation::none;
  EXPECT_EQ(first_failure(), "");
}

TEST(RoceMutant, EachIsNoticed) {
  for (std::uint8_t i = 1; i < static_cast<std::uint8_t>(Mutation::count); ++i) {
    active_mutation = static_cast<Mutation>(i);
    const std::string failure = first_failure();
    EXPECT_NE(failure, "") << "mutation " << int{i};
    std::cout << "mutation " << int{i} << ": " << failure << "\n";
  }
  active_mutation = Mutation::none;
}

}  // namespace
}  // namespace weft::roce::swarm
