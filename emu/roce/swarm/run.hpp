// Owns one random run of engines under faults.
#pragma once

#include <cstdint>
#include <string>

#include "emu/roce/swarm/plan.hpp"

namespace weft::roce::swarm {

struct RunOutcome {
  std::string failure;  // the first rule that was broken, or empty
  std::uint64_t requests = 0;
  std::uint64_t succeeded = 0;
  std::uint64_t frames = 0;
  std::uint64_t retries = 0;
  std::uint64_t duplicates = 0;
  std::uint64_t not_ready = 0;
};

// The same plan gives the same outcome.
[[nodiscard]] RunOutcome carry_out(const Plan& plan);

}  // namespace weft::roce::swarm
