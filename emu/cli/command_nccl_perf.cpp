// Owns `weft nccl-perf`: a network plugin of NCCL between ranks on this machine, driven as NCCL
// does.
#include <fmt/core.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "emu/cli/commands.hpp"
#include "emu/cli/complain.hpp"
#include "emu/cli/help.hpp"
#include "emu/cli/unwrap.hpp"
#include "emu/launch/control_client.hpp"
#include "emu/launch/interrupt.hpp"
#include "emu/launch/weftd_process.hpp"
#include "integration/collectives/bug_net.hpp"
#include "integration/collectives/session.hpp"

namespace weft::cli {
namespace {

using collectives::Board;
using collectives::SessionOptions;

struct Options {
  SessionOptions session;
  std::string operation = "all_reduce";
  std::string plugin = "weft";
  int version = 0;
  std::string io = "ring";
  std::string type = "float";
  std::string reduction = "sum";
  bool through_weftd = false;
  std::string topology;
  std::uint64_t seed = 1;
  double dilation = 1;
  std::vector<std::string> faults;
  std::string kill;
  std::string stop;
  std::vector<std::string> environment;
};

template <class Names>
std::size_t index_of(const Names& names, const std::string& name) {
  return static_cast<std::size_t>(std::find(std::begin(names), std::end(names), name) -
                                  std::begin(names));
}
template <class Names>
std::vector<std::string> list(const Names& names) {
  return {std::begin(names), std::end(names)};
}

// RANK@ITERATION, or RANK@ITERATION:SECONDS
SessionOptions::Fault parse_fault(const std::string& text, bool stops) {
  SessionOptions::Fault fault;
  const char* const end = text.data() + text.size();
  const auto rank = std::from_chars(text.data(), end, fault.rank);
  if (rank.ec != std::errc{} || rank.ptr == end || *rank.ptr != '@') {
    throw CLI::ValidationError(text, "say RANK@ITERATION");
  }
  const auto iteration = std::from_chars(rank.ptr + 1, end, fault.iteration);
  const bool more = iteration.ptr != end && *iteration.ptr == ':';
  if (iteration.ec != std::errc{} || more != stops || (!more && iteration.ptr != end)) {
    throw CLI::ValidationError(text, stops ? "say RANK@ITERATION:SECONDS" : "say RANK@ITERATION");
  }
  if (stops && std::from_chars(iteration.ptr + 1, end, fault.seconds).ec != std::errc{}) {
    throw CLI::ValidationError(text, "say RANK@ITERATION:SECONDS");
  }
  return fault;
}

std::string plugin_file(const std::string& name) {
  if (name == "weft") {
    return launch::companion("libnccl-net-weft.so", "integration/nccl");
  }
  if (name == "tcp" || name == "memory") {
    return launch::companion("libnccl-net-weft-" + name + ".so", "integration/collectives");
  }
  return name;
}

// The ranks, each a process.
class Ranks {
 public:
  Ranks() = default;
  ~Ranks() {
    for (const pid_t pid : pids_) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
    }
  }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  template <class Body>
  void start(Body&& body) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      launch::forget_interrupts();
      ::signal(SIGPIPE, SIG_DFL);
      const int code = body();
      (void)std::fflush(stdout);
      ::_exit(code);
    }
    if (pid < 0) {
      throw std::runtime_error(srd::errno_text("starting a process"));
    }
    pids_.push_back(pid);
  }

  // The death of `victim` is part of the run: the others must notice it by themselves.
  int wait(Board& board, std::optional<std::uint32_t> victim) {
    std::vector<pid_t> all = pids_;
    int code = kSuccess;
    while (!pids_.empty()) {
      int status = 0;
      const pid_t ended = ::waitpid(0, &status, 0);
      launch::check_interrupt();
      const auto rank =
          static_cast<std::uint32_t>(std::find(all.begin(), all.end(), ended) - all.begin());
      if (ended < 0 || rank == all.size()) {
        continue;
      }
      std::erase(pids_, ended);
      if (WIFEXITED(status) && WEXITSTATUS(status) == kSuccess) {
        continue;
      }
      code = kFailure;
      if (WIFSIGNALED(status)) {
        complain("weft nccl-perf: rank {} was ended by signal {}\n", rank, WTERMSIG(status));
        if (victim != rank) {
          board.give_up(fmt::format("rank {} was ended by a signal", rank));
        }
      }
    }
    return code;
  }

 private:
  std::vector<pid_t> pids_;
};

int run_rank(const Options& options, std::uint32_t rank, Board& board, const std::string& socket) {
  try {
    ::unsetenv("WEFT_NCCL_ADDRESS");
    ::unsetenv("WEFT_SOCKET");
    if (!socket.empty()) {
      ::setenv("WEFT_SOCKET", socket.c_str(), 1);
      ::setenv("WEFT_HOST", fmt::format("h{}", rank + 1).c_str(), 1);
    }
    for (const std::string& one : options.environment) {
      const std::size_t equals = one.find('=');
      ::setenv(one.substr(0, equals).c_str(),
               equals == std::string::npos ? "" : one.substr(equals + 1).c_str(), 1);
    }
    return collectives::run_session(options.session, rank, board) ? kSuccess : kFailure;
  } catch (const std::exception& error) {
    complain("weft nccl-perf: rank {}: {}\n", rank, error.what());
    board.give_up(fmt::format("rank {}: {}", rank, error.what()));
    return kFailure;
  }
}

std::string mistake_in(const Options& options) {
  const SessionOptions& session = options.session;
  if (session.largest < session.smallest) {
    return "the largest size is below the smallest";
  }
  if (session.root >= session.ranks) {
    return fmt::format("there is no rank {} to be the root", session.root);
  }
  if (session.fault && session.fault->rank >= session.ranks) {
    return fmt::format("there is no rank {} to kill or stop", session.fault->rank);
  }
  if (options.io == "udp" && (!options.topology.empty() || !options.faults.empty())) {
    return "a topology and faults need --io ring";
  }
  return {};
}

int run_nccl_perf(Options options) {
  if (const std::string mistake = mistake_in(options); !mistake.empty()) {
    complain("weft nccl-perf: {}\n", mistake);
    return kUsage;
  }
  const launch::Interruptible interruptible;
  options.session.plugin = plugin_file(options.plugin);
  std::optional<launch::PrivateWeftd> weftd;
  if (options.io == "ring" && options.plugin == "weft") {
    weftd.emplace(unwrap(launch::PrivateWeftd::start({.hosts = options.session.ranks,
                                                      .direct_rings = !options.through_weftd,
                                                      .topology = options.topology,
                                                      .seed = options.seed,
                                                      .dilation = options.dilation})));
    for (const std::string& fault : options.faults) {
      unwrap(launch::apply_fault(weftd->directory(), fault));
    }
  }
  const std::size_t size = Board::bytes(options.session.ranks, options.session.channels);
  void* const memory =
      ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    throw std::runtime_error("no memory for the ranks to share");
  }
  Board& board = Board::create(memory, options.session.ranks, options.session.channels);
  Ranks ranks;
  for (std::uint32_t rank = 0; rank < options.session.ranks; ++rank) {
    ranks.start([&] { return run_rank(options, rank, board, weftd ? weftd->socket() : ""); });
  }
  const auto& fault = options.session.fault;
  return ranks.wait(board, fault && fault->seconds <= 0 ? std::optional<std::uint32_t>(fault->rank)
                                                        : std::nullopt);
}

void add_measurement(CLI::App& command, Options& options) {
  SessionOptions& session = options.session;
  const auto size = CLI::AsSizeValue(/*kb_is_1000=*/false);
  command.add_option("operation", options.operation, "What the ranks do")
      ->check(CLI::IsMember(list(collectives::kOperationNames)))
      ->capture_default_str();
  command.add_option("-N,--ranks", session.ranks, "Ranks, each a process")
      ->check(CLI::Range(2U, collectives::kMaxRanks))
      ->capture_default_str();
  command.add_option("-b,--minbytes", session.smallest, "Smallest size")->transform(size);
  command.add_option("-e,--maxbytes", session.largest, "Largest size")->transform(size);
  command.add_option("-f,--stepfactor", session.factor, "From one size to the next")
      ->check(CLI::Range(1.01, 1e6));
  command.add_option("-i,--stepbytes", session.step, "The same, as a difference")->transform(size);
  command.add_option("-n,--iters", session.iterations, "Iterations of a measurement")
      ->check(CLI::Range(1U, 1'000'000U));
  command.add_option("-w,--warmup_iters", session.warm_up, "Iterations before it")
      ->check(CLI::Range(0U, 1'000'000U));
  command.add_option("-c,--check", session.check, "0: the result is not looked at");
  command.add_option("-d,--datatype", options.type, "Type of the elements")
      ->check(CLI::IsMember(list(collectives::kTypeNames)));
  command.add_option("-o,--op", options.reduction, "How elements are reduced")
      ->check(CLI::IsMember(list(collectives::kReductionNames)));
  command.add_option("-r,--root", session.root, "Root of broadcast and reduce");
  command.add_option("--channels", session.channels, "Rings between the ranks")
      ->check(CLI::Range(1U, collectives::kMaxChannels))
      ->capture_default_str();
  command.add_option("--buffsize", session.buffers.simple, "NCCL_BUFFSIZE: of each connection")
      ->transform(size)
      ->check(CLI::Range(std::size_t{64} << 10, std::size_t{1} << 30));
  command.add_flag("--json", session.json, "One JSON object per line");
}

void add_ground(CLI::App& command, Options& options) {
  command
      .add_option("--plugin", options.plugin, "weft, tcp, memory, or the file of anybody's plugin")
      ->capture_default_str();
  command.add_option("--api", options.version, "Version of the interface; 0: the newest it has")
      ->check(CLI::IsMember({0, 6, 7, 8, 9, 10, 11, 12}));
  command.add_option("--env", options.environment, "NAME=VALUE for the ranks")
      ->allow_extra_args(false);
  command.add_option("--io", options.io, "What carries weft's packets: ring, udp over loopback")
      ->check(CLI::IsMember({"ring", "udp"}))
      ->capture_default_str();
  command.add_flag("--through-weftd", options.through_weftd,
                   "Let every packet pass weftd instead of a direct ring");
  command
      .add_option("--topology", options.topology, "File that describes the network between them")
      ->check(CLI::ExistingFile);
  command.add_option("--fault", options.faults, "As in `weft fault --help`")
      ->allow_extra_args(false);
  command.add_option("--seed", options.seed, "Seed of everything that the network draws by lot");
  command.add_option("--dilation", options.dilation, "Seconds here per second in the network")
      ->check(CLI::Range(0.001, 1e6));
  command.add_option("--kill", options.kill, "RANK@ITERATION: that rank dies then");
  command.add_option("--stop", options.stop, "RANK@ITERATION:SECONDS: it stands still for so long");
  command.add_option("--plant", options.session.bug, "Give the plugin a bug, to see it found")
      ->check(CLI::IsMember(collectives::names_of_bugs()));
  command
      .add_option("--patience", options.session.patience,
                  "Seconds without anything moving that count as a hang")
      ->check(CLI::Range(0.1, 1e6));
}

}  // namespace

void register_nccl_perf(CLI::App& program, Work& work) {
  CLI::App* const command = add_command(program, "nccl-perf");
  auto options = std::make_shared<Options>();
  add_measurement(*command, *options);
  add_ground(*command, *options);
  command->callback([&work, options] {
    SessionOptions& session = options->session;
    session.operation = static_cast<collectives::Operation>(
        index_of(collectives::kOperationNames, options->operation));
    session.type = static_cast<collectives::Type>(index_of(collectives::kTypeNames, options->type));
    session.reduction = static_cast<collectives::Reduction>(
        index_of(collectives::kReductionNames, options->reduction));
    if (options->version != 0) {
      session.version = options->version;
    }
    if (!options->kill.empty()) {
      session.fault = parse_fault(options->kill, false);
    }
    if (!options->stop.empty()) {
      session.fault = parse_fault(options->stop, true);
    }
    work = [options] { return run_nccl_perf(*options); };
  });
}

}  // namespace weft::cli
