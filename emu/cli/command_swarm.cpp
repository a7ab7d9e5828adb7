// Owns `weft swarm`: random runs of the transport in virtual time, each a function of its seed.
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "emu/cli/commands.hpp"
#include "emu/swarm/swarm.hpp"

namespace weft::cli {
namespace {

struct Options {
  std::uint64_t seeds = 100;
  std::uint64_t first = 1;
  std::uint32_t threads = 0;
  std::uint32_t failures = 5;
  bool json = false;
  bool trace = false;
};

// Finds seeds on all cores. Everything inside a run stays in one thread.
class Runner {
 public:
  explicit Runner(const Options& options) : options_(options) {}

  const swarm::Tally& run() {
    const std::uint32_t count = options_.threads != 0
                                    ? options_.threads
                                    : std::max(1U, std::thread::hardware_concurrency());
    std::vector<std::thread> threads;
    for (std::uint32_t i = 1; i < count; ++i) {
      threads.emplace_back([this] { work(); });
    }
    work();
    for (std::thread& thread : threads) {
      thread.join();
    }
    if (shown_) {
      fmt::print(stderr, "\n");
    }
    return tally_;
  }

 private:
  void work() {
    for (std::uint64_t i = next_++; i < options_.seeds; i = next_++) {
      const std::uint64_t seed = options_.first + i;
      const swarm::Outcome outcome = swarm::carry_out(swarm::make_plan(seed));
      const std::lock_guard lock{mutex_};
      tally_.add(seed, outcome);
      if (tally_.failures.size() >= options_.failures) {
        next_ = options_.seeds;
      }
      show_progress();
    }
  }

  void show_progress() {
    if (isatty(STDERR_FILENO) == 0) {
      return;
    }
    const auto now = std::chrono::steady_clock::now();
    if (now - last_shown_ > std::chrono::milliseconds{200} || tally_.seeds == options_.seeds) {
      last_shown_ = now;
      shown_ = true;
      fmt::print(stderr, "\r{} of {} seeds, {} failed", tally_.seeds, options_.seeds,
                 tally_.failures.size());
    }
  }

  const Options& options_;
  std::atomic<std::uint64_t> next_{0};
  std::mutex mutex_;
  swarm::Tally tally_;
  std::chrono::steady_clock::time_point last_shown_{};
  bool shown_ = false;
};

// The shortest version of a failing run that could be found, step by step and packet by packet.
void print_story(std::uint64_t seed) {
  const swarm::Plan whole = swarm::make_plan(seed);
  const swarm::Plan plan = swarm::shrink(whole);
  const swarm::Outcome outcome = swarm::carry_out(plan, true);
  fmt::print("\nseed {}: {} of {} steps are enough for: {}\n", seed, plan.steps.size(),
             whole.steps.size(), outcome.failure);
  for (const std::string& line : outcome.trace) {
    fmt::print("{}\n", line);
  }
}

int run_swarm(const Options& options) {
  const auto begin = std::chrono::steady_clock::now();
  Runner runner(options);
  const swarm::Tally& tally = runner.run();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  if (options.json) {
    fmt::print(
        "{{\"swarm\":true,\"seeds\":{},\"failed\":{},\"first_failure\":{},"
        "\"digest\":\"{:016x}\"}}\n",
        tally.seeds, tally.failures.size(),
        tally.failures.empty() ? std::string{"null"}
                               : std::to_string(tally.failures.begin()->first),
        tally.digest());
  } else {
    fmt::print(
        "seeds {} to {}: {} requests, {} packets, {} completions without error, "
        "{} failed, digest {:016x}, {:.1f} s\n",
        options.first, options.first + options.seeds - 1, tally.requests, tally.packets,
        tally.completed_ok, tally.failures.size(), tally.digest(), took.count());
  }
  for (const auto& [seed, text] : tally.failures) {
    fmt::print(stderr, "seed {} failed: {}\n  replay: weft swarm --seeds 1 --first {} --trace\n",
               seed, text, seed);
  }
  if (options.trace && !tally.failures.empty()) {
    print_story(tally.failures.begin()->first);
  }
  return tally.failures.empty() ? kSuccess : kFailure;
}

}  // namespace

void register_swarm(CLI::App& program, Work& work) {
  const auto options = std::make_shared<Options>();
  CLI::App* command = program.add_subcommand(
      "swarm", "Try the transport against random networks, faults and attackers in virtual time");
  command->add_option("--seeds", options->seeds, "How many runs; each is a function of its seed")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--first", options->first, "The first seed")->capture_default_str();
  command->add_option("--threads", options->threads, "Runs at a time; 0: one per core")
      ->capture_default_str();
  command->add_option("--failures", options->failures, "Stop after so many failures")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_flag("--json", options->json, "One JSON object instead of a sentence");
  command->add_flag("--trace", options->trace,
                    "Shrink the first failing run and show everything that happens in it");
  command->callback([options, &work] { work = [options] { return run_swarm(*options); }; });
}

}  // namespace weft::cli
