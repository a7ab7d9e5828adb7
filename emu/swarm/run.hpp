// Owns one swarm run: a plan is carried out under the judge's eyes, then healed and required to
// finish.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "emu/swarm/plan.hpp"

namespace weft::swarm {

struct Outcome {
  std::string failure;  // empty: nothing was broken
  std::uint64_t digest = 0;
  std::uint64_t packets = 0;
  std::uint64_t requests = 0;
  std::uint64_t refused = 0;
  std::uint64_t completed_ok = 0;
  Duration virtual_time{};
};

// Gets one line for everything that happens, as it happens.
using Trace = std::function<void(const std::string& line)>;

[[nodiscard]] Outcome carry_out(const Plan& plan, const Trace& trace = {});

}  // namespace weft::swarm
