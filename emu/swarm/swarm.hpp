// Owns what is common to all runs of a swarm: adding them up, and shrinking a plan that fails.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "emu/swarm/plan.hpp"
#include "emu/swarm/run.hpp"

namespace weft::swarm {

// Leaves out steps that the failure does not need, with at most `runs` calls of `fails`. The result
// is short, not the shortest.
[[nodiscard]] Plan shrink(const Plan& plan, const std::function<bool(const Plan&)>& fails,
                          std::uint32_t runs = 400);

// Adds up runs, whatever the order in which they finish: worker threads take seeds as they come,
// and the digest must be the same. Not thread-safe; the caller has a lock.
class Tally {
 public:
  void add(std::uint64_t seed, const RunOutcome& outcome);

  std::uint64_t seeds = 0;
  std::uint64_t packets = 0;
  std::uint64_t requests = 0;
  std::uint64_t completed_ok = 0;
  std::map<std::uint64_t, std::string> failures;  // by seed
  // Of all runs, in the order of their seeds.
  [[nodiscard]] std::uint64_t digest() const;

 private:
  std::map<std::uint64_t, std::uint64_t> digests_;
};

}  // namespace weft::swarm
