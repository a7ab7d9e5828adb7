// Owns `weft demo`: a transfer over four spines while one of them dies, told as it happens.
//
// Four processes: weftd with the network, a sender and a receiver (demo/endpoint.cpp), and this
// one, which applies the faults, samples the shared board ten times a second, and draws
// (demo/story.cpp). Whether the demo has passed is decided by what arrived, never by rates.
#include <fmt/core.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <memory>
#include <new>
#include <thread>

#include "emu/cli/commands.hpp"
#include "emu/cli/complain.hpp"
#include "emu/cli/demo/endpoint.hpp"
#include "emu/cli/demo/program.hpp"
#include "emu/cli/demo/story.hpp"
#include "emu/cli/help.hpp"
#include "emu/cli/number_checks.hpp"
#include "emu/cli/unwrap.hpp"
#include "emu/launch/control_client.hpp"
#include "emu/launch/interrupt.hpp"
#include "emu/launch/weftd_process.hpp"
#include "srd/base/death_signal.hpp"
#include "srd/run/clock.hpp"

namespace weft::cli {
namespace {

using namespace std::chrono_literals;

constexpr auto kSampleEvery = 100ms;
constexpr int kDeadSpine = 2;        // of spine1 to spine4
constexpr double kMaxPatience = 20;  // seconds more for a first block while the spine is dead
constexpr auto kEndPatience = 20s;   // for the blocks under way when the transfer ends
constexpr double kSpineGbps = 1;
constexpr double kReaction = 0.3;  // seconds in which path events belong to what just happened

struct Options {
  double seconds = 9;
  std::uint64_t seed = 1;
  std::string out;
  bool json = false;
  bool plain = false;
  bool no_program = false;
};

// The rates are low enough for a machine of two cores that also runs both hosts and the network.
std::string topology_text() {
  std::string text =
      R"(# Two hosts on two leaves; every frame between them crosses one of four spines.
name: demo
topology:
  kinds: {spine: {base: switch, tier: 2}}
  defaults: {rate: 4Gbps, delay: 25us, buffer: 512KB, ecn: [96KB, 256KB]}
  nodes: {h1: {kind: host}, h2: {kind: host}, leaf1: {}, leaf2: {}, spine1: {kind: spine},
    spine2: {kind: spine}, spine3: {kind: spine}, spine4: {kind: spine}}
  links:
    - {endpoints: [h1, leaf1]}
    - {endpoints: [h2, leaf2]}
)";
  for (std::size_t spine = 1; spine <= kDemoSpines; ++spine) {
    for (const int leaf : {1, 2}) {
      text += fmt::format("    - {{endpoints: [leaf{}, spine{}], rate: {}Gbps}}\n", leaf, spine,
                          kSpineGbps);
    }
  }
  return text;
}

// The two processes of the transfer, and the memory that they share with this one. They end with
// this process whatever happens (die_with), and never run its destructors: weftd and the
// directories are this process's to clear away.
class Transfer {
 public:
  explicit Transfer(const DemoPlan& plan) {
    void* memory = ::mmap(nullptr, sizeof(DemoBoard), PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
      throw std::runtime_error("no memory for the processes of the demo to share");
    }
    board_ = new (memory) DemoBoard;
    // The sender waits for the receiver, so the receiver is started first.
    for (const auto body : {run_demo_receiver, run_demo_sender}) {
      const pid_t self = ::getpid();
      const pid_t pid = ::fork();
      if (pid == 0) {
        die_with(self, SIGKILL);
        launch::forget_interrupts();
        ::_exit(run(body, plan));
      }
      if (pid < 0) {
        const std::string why = srd::errno_text("starting a process");
        end();
        throw std::runtime_error(why);
      }
      pids_.push_back(pid);
    }
  }
  ~Transfer() { end(); }
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  [[nodiscard]] DemoBoard& board() { return *board_; }
  // Takes note of processes that have ended; false once one of them has failed. Throws
  // launch::Interrupted if a signal asks to end.
  [[nodiscard]] bool reap() {
    launch::check_interrupt();
    for (auto pid = pids_.begin(); pid != pids_.end();) {
      int status = 0;
      if (::waitpid(*pid, &status, WNOHANG) == *pid) {
        pid = pids_.erase(pid);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != kSuccess) {
          board_->failed = true;
        }
      } else {
        ++pid;
      }
    }
    return !board_->failed;
  }
  [[nodiscard]] bool ended() const { return pids_.empty(); }

 private:
  void end() {
    for (const pid_t pid : pids_) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
    }
    ::munmap(board_, sizeof(DemoBoard));
  }
  int run(void (*body)(DemoBoard&, const DemoPlan&), const DemoPlan& plan) {
    try {
      body(*board_, plan);
      return board_->failed ? kFailure : kSuccess;
    } catch (const std::exception& error) {
      board_->failed = true;
      complain("weft demo: {}\n", error.what());
      return kFailure;
    }
  }

  DemoBoard* board_ = nullptr;
  std::vector<pid_t> pids_;
};

// The course of the demo, in the process that shows it: lets the transfer run for a third of the
// time, kills a spine for a third, brings it back, and measures all the while. Times are seconds
// since the first block was checked, so that starting up is not part of any rate.
class Demo {
 public:
  Demo(const Options& options, const launch::RunDirectory& run, const std::string& directory,
       Transfer& transfer)
      : options_(options),
        directory_(directory),
        transfer_(transfer),
        board_(transfer.board()),
        story_(run, !options.plain && ::isatty(STDOUT_FILENO) != 0, options.json, kSpineGbps) {}

  DemoStory& story() { return story_; }

  DemoResult play() {
    while (board_.verified_bytes == 0 && transfer_.reap()) {
      std::this_thread::sleep_for(1ms);
    }
    begin_ = srd::monotonic_now();
    story_.tell(0, "h1 writes into h2's memory; weftd carries every packet over four spines");
    const double third = options_.seconds / 3;
    watch_until(third);
    const std::uint32_t fault =
        unwrap(launch::apply_fault(directory_, "switch: spine" + std::to_string(kDeadSpine)));
    dead_at_ = seconds();
    dead_ = kDeadSpine;
    story_.tell(dead_at_, fmt::format("spine{} dies: what is on it is lost", kDeadSpine));
    // Compared below: something has to get through while the spine is dead.
    const std::uint64_t before = board_.verified_bytes;
    watch_until(2 * third);
    // On a machine that has no time for us the outage lasts until something has come through.
    while (board_.verified_bytes == before && seconds() < 2 * third + kMaxPatience &&
           transfer_.reap()) {
      watch_until(seconds() + 0.1);
    }
    progressed_ = board_.verified_bytes != before;
    (void)unwrap(launch::ask_weftd(directory_, {{"cmd", "heal"}, {"fault", fault}}));
    alive_at_ = seconds();
    dead_ = 0;
    story_.marks(dead_at_, alive_at_);
    story_.tell(alive_at_, fmt::format("spine{} is back", kDeadSpine));
    watch_until(std::max(options_.seconds, alive_at_ + third));
    result_.seconds = seconds();
    board_.stop = true;
    finish();
    return conclude();
  }

 private:
  [[nodiscard]] double seconds_of(std::int64_t when) const {
    return static_cast<double>(when - nanoseconds(begin_)) / 1e9;
  }
  [[nodiscard]] double seconds() const { return seconds_of(nanoseconds(srd::monotonic_now())); }

  // Samples and tells events until `end`, in seconds of the demo; returns early if a process has
  // failed.
  void watch_until(double end) {
    while (seconds() < end && transfer_.reap()) {
      std::this_thread::sleep_for(kSampleEvery);
      sample();
      hear();
    }
  }

  // Rates since the sample before. The first one has none before it and is not shown. A weftd that
  // does not answer in time costs a sample, not the demo.
  void sample() {
    const auto reply = launch::ask_weftd(directory_, {{"cmd", "status"}});
    if (!reply) {
      return;
    }
    const double now = seconds();
    std::array<double, kDemoSpines> bytes{};
    for (const auto& link : (*reply)["status"]["fabric"]["links"]) {
      for (std::size_t i = 0; i < kDemoSpines; ++i) {
        if (link["link"] == fmt::format("leaf1->spine{}", i + 1)) {
          bytes[i] = link["bytes"].get<double>();
        }
      }
    }
    lost_in_network_ = (*reply)["status"]["fabric"]["dropped"]["link_down"].get<std::uint64_t>();
    DemoSample one;
    one.at = now;
    const double past = std::max(now - last_at_, 1e-6);
    for (std::size_t i = 0; i < kDemoSpines; ++i) {
      one.spine_gbps[i] = (bytes[i] - last_bytes_[i]) * 8 / past / 1e9;
    }
    one.verified = board_.verified_bytes;
    one.retransmitted = board_.retransmitted;
    one.goodput_gbps = static_cast<double>(one.verified - last_verified_) * 8 / past / 1e9;
    const std::uint64_t lost = board_.lost;
    one.lost_per_s = static_cast<double>(lost - last_lost_) / past;
    last_bytes_ = bytes;
    last_at_ = now;
    last_verified_ = one.verified;
    last_lost_ = lost;
    if (has_sample_) {
      story_.show(one, dead_);
    }
    has_sample_ = true;
  }

  // Turns the sender's new events into figures and lines. Only what follows closely from the death
  // or the return becomes a line: on a busy machine a path is doubted now and then for a moment.
  void hear() {
    using Kind = srd::Event::Kind;
    const std::uint32_t end = board_.events.load(std::memory_order_acquire);
    std::size_t given_up = 0;
    std::size_t back = 0;
    for (; heard_ < end; ++heard_) {
      const DemoBoard::Noted& event = board_.event[heard_];
      const double at = seconds_of(event.when);
      const bool outage = dead_at_ > 0 && at >= dead_at_ && (alive_at_ == 0 || at < alive_at_);
      if (event.kind == Kind::path_abandoned) {
        ++result_.paths_abandoned;
        if (outage && at < dead_at_ + kReaction) {
          ++given_up;
          result_.avoided_ms = (at - dead_at_) * 1000;
        }
      } else if (event.kind == Kind::path_recovered) {
        ++result_.paths_recovered;
        back += alive_at_ > 0 && at >= alive_at_ && at < alive_at_ + kReaction ? 1 : 0;
      } else if (outage && result_.detected_ms < 0) {
        result_.detected_ms = (at - dead_at_) * 1000;
        story_.tell(at, fmt::format("h1 notices the first loss, {:.1f} ms after the death",
                                    result_.detected_ms));
      }
    }
    if (given_up != 0) {
      story_.tell(dead_at_ + result_.avoided_ms / 1000,
                  fmt::format("h1 has given up {} path{} and sends around them", given_up,
                              given_up == 1 ? "" : "s"));
    }
    if (back != 0) {
      story_.tell(seconds(), fmt::format("h1's probes get through: {} path{} back in use", back,
                                         back == 1 ? "" : "s"));
    }
  }

  // Waits for the blocks in flight. Processes that do not end by then are not `ended()`, and the
  // demo has failed.
  void finish() {
    const auto patience = std::chrono::steady_clock::now() + kEndPatience;
    while (transfer_.reap() && !transfer_.ended() && std::chrono::steady_clock::now() < patience) {
      std::this_thread::sleep_for(5ms);
    }
    hear();
    story_.finish_live();
  }

  // The mean rate in Gb/s between the first and the last sample within the span. What lies between
  // the span's edges and those samples is left out, so that a rate never mixes two phases.
  [[nodiscard]] double goodput_between(double from, double to) const {
    double first_at = -1;
    double last_at = 0;
    std::uint64_t first = 0;
    std::uint64_t last = 0;
    for (const DemoSample& one : story_.samples()) {
      if (one.at >= from && one.at <= to) {
        if (first_at < 0) {
          first_at = one.at;
          first = one.verified;
        }
        last_at = one.at;
        last = one.verified;
      }
    }
    return last_at > first_at ? static_cast<double>(last - first) * 8 / (last_at - first_at) / 1e9
                              : 0;
  }

  // Passed: every block arrived once and right, the sender heard of each, and something got through
  // while the spine was dead. Rates decide nothing: the machine may be slow.
  DemoResult conclude() {
    result_.seed = options_.seed;
    result_.verified_bytes = board_.verified_bytes;
    result_.wrong_blocks = board_.wrong_blocks;
    result_.failed_requests = board_.failed_blocks;
    result_.packets = board_.packets;
    result_.retransmitted = board_.retransmitted;
    result_.lost_in_network = lost_in_network_;
    result_.longest_gap_ms = static_cast<double>(board_.longest_gap) / 1e6;
    for (const auto& count : board_.path_packets) {
      result_.path_packets.push_back(count);
    }
    result_.goodput_before = goodput_between(0, dead_at_);
    result_.goodput_during = goodput_between(dead_at_, alive_at_);
    result_.goodput_after = goodput_between(alive_at_, result_.seconds);
    result_.passed = !board_.failed && transfer_.ended() && result_.wrong_blocks == 0 &&
                     result_.failed_requests == 0 && progressed_ &&
                     board_.verified_blocks == board_.completed_blocks;
    return result_;
  }

  const Options& options_;
  const std::string& directory_;
  Transfer& transfer_;
  DemoBoard& board_;
  DemoStory story_;
  DemoResult result_;
  TimePoint begin_{};
  double dead_at_ = 0;
  double alive_at_ = 0;
  int dead_ = 0;
  std::uint32_t heard_ = 0;
  bool has_sample_ = false;
  bool progressed_ = false;  // while the spine was dead
  std::array<double, kDemoSpines> last_bytes_{};
  double last_at_ = 0;
  std::uint64_t last_verified_ = 0;
  std::uint64_t last_lost_ = 0;
  std::uint64_t lost_in_network_ = 0;
};

int run_demo(const Options& options) {
  const launch::Interruptible interruptible;
  const launch::RunDirectory run = unwrap(
      launch::RunDirectory::create(options.out, options.seed, {{"topology.yml", topology_text()}}));
  if (!options.json) {
    fmt::print("weft demo, seed {}: two hosts, four spines, an EMULATED network in real time\n",
               options.seed);
    std::fflush(stdout);
  }
  // Looked for first, as the device of the program decides how large the network's packets are.
  const DemoProgram program = find_demo_program();
  const launch::PrivateWeftd weftd =
      unwrap(launch::PrivateWeftd::start({.mtu = launch::payload_of(program.device),
                                          .topology = run.path() + "/topology.yml",
                                          .seed = options.seed}));
  const DemoPlan plan{.socket = weftd.socket(), .seed = options.seed};
  Transfer transfer(plan);
  Demo demo(options, run, weftd.directory(), transfer);
  DemoResult result = demo.play();
  demo.story().print_table(result);
  if (!options.no_program) {
    const DemoProgramEnd end = run_demo_program(program, weftd.directory(), options.json);
    demo.story().program(end.note, end.output);
    result.passed = result.passed && end.passed;
  }
  demo.story().write_report(result);
  if (options.json) {
    fmt::print("{}\n", result.json().dump());
  } else {
    fmt::print("\nreport: {}/report.html\n", run.path());
  }
  if (!result.passed) {
    complain("weft demo: failed with seed {}; events are in {}\n", options.seed, run.path());
  }
  return result.passed ? kSuccess : kFailure;
}

}  // namespace

void register_demo(CLI::App& program, Work& work) {
  CLI::App* command = add_command(program, "demo");
  auto options = std::make_shared<Options>();
  command->add_option("--seconds", options->seconds, "Length of the transfer")
      ->check(real_range(1.0, 600.0))
      ->capture_default_str();
  command->add_option("--seed", options->seed, "Seed of everything that is drawn by lot");
  command->add_option("--out", options->out, "Directory for report.html and the events");
  command->add_flag("--plain", options->plain, "Lines instead of a live view");
  command->add_flag("--no-program", options->no_program, "Only the transfer");
  command->add_flag("--json", options->json, "One JSON object at the end");
  command->callback([&work, options] { work = [options] { return run_demo(*options); }; });
}

}  // namespace weft::cli
