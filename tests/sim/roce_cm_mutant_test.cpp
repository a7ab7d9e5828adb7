// Owns the proof that the swarm of connection managers notices bugs: one rule of the manager is
// broken at a time, and a few seeds must fail. The manager in this program is compiled with its
// deliberate bugs.
#include <gtest/gtest.h>

#include <cstdint>
#include <iostream>
#include <string>

#include "emu/roce/cm/mutation.hpp"
#include "tests/sim/roce_cm_swarm.hpp"

namespace weft::roce::cm {
namespace {

// As many as CmSwarm.BreaksNoRule runs, which is therefore known to notice each mutation.
constexpr std::uint64_t kSeeds = 2000;

TEST(CmMutant, EachIsNoticed) {
  for (std::uint8_t i = 1; i < static_cast<std::uint8_t>(Mutation::count); ++i) {
    active_mutation = static_cast<Mutation>(i);
    std::string failure;
    for (std::uint64_t seed = 1; seed <= kSeeds && failure.empty(); ++seed) {
      failure = carry_out(swarm_plan_of(seed)).failure;
    }
    EXPECT_NE(failure, "") << "mutation " << int{i};
    std::cout << "mutation " << int{i} << ": " << failure << "\n";
  }
  active_mutation = Mutation::none;
}

}  // namespace
}  // namespace weft::roce::cm
