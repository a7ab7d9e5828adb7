// Owns shrinking failing plans, and sums over runs.
#include "emu/swarm/swarm.hpp"

#include <algorithm>

#include "emu/swarm/world_names.hpp"

namespace weft::swarm {

// A greedy search: keeps each smaller plan that still fails, and never goes back. Steps do not
// depend on each other's results (one that makes no sense any more is left out), so any subset of
// them is a plan.
Plan shrink(const Plan& plan, const std::function<bool(const Plan&)>& fails, std::uint32_t runs) {
  Plan best = plan;
  const auto attempt = [&](const Plan& smaller) {
    if (runs == 0) {
      return false;
    }
    --runs;
    if (!fails(smaller)) {
      return false;
    }
    best = smaller;
    return true;
  };
  // Leave out steps, in ever smaller pieces, the last ones first: the steps after the failure go in
  // one attempt.
  for (std::size_t piece = std::max<std::size_t>(1, best.steps.size() / 2); runs > 0; piece /= 2) {
    for (std::size_t end = best.steps.size(); end > 0 && runs > 0;) {
      const std::size_t begin = end > piece ? end - piece : 0;
      Plan smaller = best;
      smaller.steps.erase(smaller.steps.begin() + static_cast<std::ptrdiff_t>(begin),
                          smaller.steps.begin() + static_cast<std::ptrdiff_t>(end));
      (void)attempt(smaller);
      end = begin;
    }
    if (piece == 1) {
      break;
    }
  }
  // A calmer network.
  Plan calm = best;
  calm.link = LinkModel{};
  calm.link.latency = best.link.latency;
  (void)attempt(calm);
  return best;
}

void Tally::add(std::uint64_t seed, const RunOutcome& outcome) {
  ++seeds;
  packets += outcome.packets;
  requests += outcome.requests;
  completed_ok += outcome.completed_ok;
  digests_[seed] = outcome.digest;
  if (!outcome.failure.empty()) {
    failures[seed] = outcome.failure;
  }
}

std::uint64_t Tally::digest() const {
  Digest digest;
  for (const auto& [seed, value] : digests_) {
    digest.add(seed);
    digest.add(value);
  }
  return digest.value();
}

}  // namespace weft::swarm
