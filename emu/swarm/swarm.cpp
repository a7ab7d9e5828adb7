// Owns the threads that run seeds, and the shrinking of failing plans.
#include "emu/swarm/swarm.hpp"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <thread>

#include "emu/swarm/digest.hpp"

namespace weft::swarm {
namespace {

bool fails(const Plan& plan) { return !carry_out(plan).failure.empty(); }

}  // namespace

Plan shrink(const Plan& plan, std::uint32_t runs) {
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
  // Steps, in ever smaller pieces, the last ones first: what comes after the failure goes at once.
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

SwarmResult run_swarm(const SwarmOptions& options,
                      const std::function<void(std::uint64_t, std::uint64_t)>& progress) {
  SwarmResult result;
  std::mutex mutex;
  std::atomic<std::uint64_t> next{0};
  std::map<std::uint64_t, std::uint64_t> digests;
  const auto work = [&] {
    for (std::uint64_t i = next++; i < options.seeds; i = next++) {
      const std::uint64_t seed = options.first + i;
      const Outcome outcome = carry_out(make_plan(seed));
      const std::lock_guard lock{mutex};
      if (!outcome.failure.empty()) {
        result.failures.push_back({seed, outcome.failure});
        if (result.failures.size() >= options.stop_after_failures) {
          next = options.seeds;
        }
      }
      digests[seed] = outcome.digest;
      ++result.seeds;
      result.packets += outcome.packets;
      result.requests += outcome.requests;
      result.completed_ok += outcome.completed_ok;
      if (progress) {
        progress(result.seeds, result.failures.size());
      }
    }
  };
  const std::uint32_t count =
      options.threads != 0 ? options.threads : std::max(1U, std::thread::hardware_concurrency());
  std::vector<std::thread> threads;
  for (std::uint32_t i = 1; i < count; ++i) {
    threads.emplace_back(work);
  }
  work();
  for (std::thread& thread : threads) {
    thread.join();
  }
  Digest digest;
  for (const auto& [seed, value] : digests) {
    digest.add(seed);
    digest.add(value);
  }
  result.digest = digest.value();
  std::sort(result.failures.begin(), result.failures.end(),
            [](const auto& a, const auto& b) { return a.seed < b.seed; });
  return result;
}

}  // namespace weft::swarm
