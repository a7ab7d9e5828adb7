// Owns the swarm: many seeds on all cores, and the search for the shortest plan that still fails.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "emu/swarm/plan.hpp"
#include "emu/swarm/run.hpp"

namespace weft::swarm {

// Leaves out whatever the failure does not need, with at most `runs` trials.
[[nodiscard]] Plan shrink(const Plan& plan, std::uint32_t runs = 400);

struct SwarmOptions {
  std::uint64_t seeds = 100;
  std::uint64_t first = 1;
  std::uint32_t threads = 0;              // 0: one per core
  std::uint32_t stop_after_failures = 5;  // seeds that have begun are still finished
};

struct SwarmResult {
  struct Failure {
    std::uint64_t seed = 0;
    std::string text;
  };
  std::uint64_t seeds = 0;  // that were run
  std::uint64_t packets = 0;
  std::uint64_t requests = 0;
  std::uint64_t completed_ok = 0;
  std::uint64_t digest = 0;  // of all runs, in the order of their seeds
  std::vector<Failure> failures;  // in the order of their seeds
};

// `progress` is called from one thread at a time, after every run.
[[nodiscard]] SwarmResult run_swarm(
    const SwarmOptions& options,
    const std::function<void(std::uint64_t done, std::uint64_t failed)>& progress = {});

}  // namespace weft::swarm
