// Owns one swarm run. Three parts: the steps of the plan, with the judge checking each completion;
// then every fault ends, and what is open must complete within longest_wait(); then rounds of
// requests between all hosts must succeed, and the network must fall silent.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "emu/swarm/plan.hpp"

namespace weft::swarm {

// What a run was like. Two runs of one plan agree in every field.
struct RunOutcome {
  std::string failure;  // empty: nothing was broken
  std::uint64_t digest = 0;
  std::uint64_t packets = 0;
  std::uint64_t requests = 0;
  std::uint64_t refused = 0;
  std::uint64_t completed_ok = 0;
  Duration virtual_time{};
};

// Called with one line for every event, as it happens.
using Trace = std::function<void(const std::string& line)>;

[[nodiscard]] RunOutcome carry_out(const Plan& plan, const Trace& trace = {});

}  // namespace weft::swarm
