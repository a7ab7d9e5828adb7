// Owns `weft swarm`: random runs of the transport in virtual time, each a function of its seed.
//
// Threads take seeds in turn; since no run depends on another one, neither does the result depend
// on how many threads there are. --story runs one seed again, shrinks its plan to the fewest steps
// that still fail (each attempt in a child process, which a failed check may end), and prints what
// happened.
#include <fmt/core.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "emu/cli/commands.hpp"
#include "emu/cli/complain.hpp"
#include "emu/cli/help.hpp"
#include "emu/cli/number_checks.hpp"
#include "emu/swarm/swarm.hpp"

namespace weft::cli {
namespace {

struct Options {
  std::uint64_t seeds = 100;
  std::uint64_t first = 1;
  std::uint32_t threads = 0;
  std::uint32_t failures = 5;
  bool json = false;
  bool story = false;
};

// The run that this thread is in, for on_abort(), which is called by the thread that failed.
thread_local std::uint64_t current_seed = 0;

// A failed check ends the process; this says in which run. Only what a signal handler may do: text
// is made on the stack and written at once.
void on_abort(int signal) {
  char text[96];
  const auto end = fmt::format_to_n(text, sizeof text,
                                    "seed {} crashed\n  replay: weft swarm --first {} --story\n",
                                    current_seed, current_seed);
  (void)!write(STDERR_FILENO, text, std::min(end.size, sizeof text));
  std::signal(signal, SIG_DFL);
  (void)std::raise(signal);
}

// Hands out seeds to threads on all cores. Everything inside a run stays in one thread; the tally
// is guarded by the mutex, and does not depend on the order in which runs end. After enough
// failures no seed is handed out any more, but runs under way are finished, so that more failures
// may be counted than were asked for.
class Runner {
 public:
  explicit Runner(const Options& options) : options_(options) {}

  const swarm::Tally& run() {
    const std::uint64_t wanted = options_.threads != 0
                                     ? options_.threads
                                     : std::max(1U, std::thread::hardware_concurrency());
    const std::uint64_t count = std::clamp<std::uint64_t>(options_.seeds, 1, wanted);
    std::vector<std::thread> threads;
    threads.reserve(count);
    try {
      while (threads.size() + 1 < count) {
        threads.emplace_back([this] { work(); });
      }
    } catch (const std::system_error& error) {
      // What comes out does not depend on their number.
      complain("weft swarm: {} threads instead of {}: {}\n", threads.size() + 1, count,
               error.what());
    }
    work();
    for (std::thread& thread : threads) {
      thread.join();
    }
    if (shown_) {
      complain("\n");
    }
    return tally_;
  }

 private:
  void work() {
    for (std::uint64_t i = next_++; i < options_.seeds; i = next_++) {
      const std::uint64_t seed = options_.first + i;
      current_seed = seed;
      const swarm::RunOutcome outcome = swarm::carry_out(swarm::make_plan(seed));
      const std::lock_guard lock{mutex_};
      tally_.add(seed, outcome);
      if (tally_.failures.size() >= options_.failures) {
        next_ = options_.seeds;
      }
      show_progress();
    }
  }

  // The caller holds the mutex.
  void show_progress() {
    if (isatty(STDERR_FILENO) == 0) {
      return;
    }
    const auto now = std::chrono::steady_clock::now();
    if (now - last_shown_ > std::chrono::milliseconds{200} || tally_.seeds == options_.seeds) {
      last_shown_ = now;
      shown_ = true;
      complain("\r{} of {} seeds, {} failed", tally_.seeds, options_.seeds, tally_.failures.size());
    }
  }

  const Options& options_;
  std::atomic<std::uint64_t> next_{0};
  std::mutex mutex_;
  swarm::Tally tally_;
  std::chrono::steady_clock::time_point last_shown_{};
  bool shown_ = false;
};

// A trial that takes longer is taken for an endless loop.
constexpr unsigned kSecondsPerTrial = 30;

// Whether the trial fails. It runs in a process of its own, so that a failed check or an endless
// loop is a failure like any other.
bool fails_apart(const std::function<bool()>& passes) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child < 0) {
    throw std::runtime_error("cannot start a process for a trial");
  }
  if (child == 0) {
    alarm(kSecondsPerTrial);
    const bool passed = passes();
    std::fflush(nullptr);
    _exit(passed ? kSuccess : kFailure);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return !WIFEXITED(status) || WEXITSTATUS(status) != kSuccess;
}

// Shrinks the plan of a failing run as far as it still fails, then shows that run step by step and
// packet by packet. Returns kFailure if there was something to show.
int tell_story(std::uint64_t seed) {
  const auto fails = [](const swarm::Plan& plan) {
    return fails_apart([&] {
      // What a check that fails has to say is shown once, with the story.
      (void)std::freopen("/dev/null", "w", stderr);
      return swarm::carry_out(plan).failure.empty();
    });
  };
  const swarm::Plan whole = swarm::make_plan(seed);
  if (!fails(whole)) {
    fmt::print("seed {} does not fail\n", seed);
    return kSuccess;
  }
  const swarm::Plan plan = swarm::shrink(whole, fails);
  fmt::print("seed {}: {} of {} steps are enough\n", seed, plan.steps.size(), whole.steps.size());
  for (const std::string& line : swarm::describe(plan)) {
    fmt::print("{}\n", line);
  }
  (void)fails_apart([&] {
    const auto print = [](const std::string& line) { fmt::print("{}\n", line); };
    std::setvbuf(stdout, nullptr, _IOLBF, 0);
    return swarm::carry_out(plan, print).failure.empty();
  });
  return kFailure;
}

// Failures are told in the order of their seeds, whichever thread met them first: the outputs of
// two runs can be compared.
int run_swarm(const Options& options) {
  std::signal(SIGABRT, on_abort);
  std::signal(SIGSEGV, on_abort);
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
    complain("seed {} failed: {}\n  replay: weft swarm --first {} --story\n", seed, text, seed);
  }
  return tally.failures.empty() ? kSuccess : kFailure;
}

}  // namespace

void register_swarm(CLI::App& program, Work& work) {
  const auto options = std::make_shared<Options>();
  CLI::App* command = add_command(program, "swarm");
  command->add_option("--seeds", options->seeds, "How many runs; each is a function of its seed")
      ->check(positive())
      ->capture_default_str();
  command->add_option("--first", options->first, "The first seed")->capture_default_str();
  command->add_option("--threads", options->threads, "Runs at a time; 0: one per core")
      ->capture_default_str();
  command->add_option("--failures", options->failures, "Stop after so many failures")
      ->check(positive())
      ->capture_default_str();
  command->add_flag("--json", options->json, "One JSON object instead of a sentence");
  command->add_flag("--story", options->story,
                    "Shrink the run of the first seed, which fails, and show what happens in it");
  command->callback([options, &work] {
    work = [options] { return options->story ? tell_story(options->first) : run_swarm(*options); };
  });
}

}  // namespace weft::cli
