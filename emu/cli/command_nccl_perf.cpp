// Owns `weft nccl-perf`: a network plugin of NCCL between ranks on this machine, driven as NCCL
// does.
//
// The ranks are processes of this one, or threads of such processes (-t), which share a Board with
// it. What a rank does is integration/collectives' matter (run_session()); here are the options,
// the mistakes that can be told before anything starts, and the network that weft's own plugin is
// given.
#include <fmt/core.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <iterator>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "emu/attach/protocol.hpp"
#include "emu/cli/commands.hpp"
#include "emu/cli/complain.hpp"
#include "emu/cli/help.hpp"
#include "emu/cli/number_checks.hpp"
#include "emu/cli/unwrap.hpp"
#include "emu/launch/control_client.hpp"
#include "emu/launch/interrupt.hpp"
#include "emu/launch/weftd_process.hpp"
#include "integration/collectives/bug_net.hpp"
#include "integration/collectives/comparison.hpp"
#include "integration/collectives/rank_processes.hpp"
#include "integration/collectives/session.hpp"
#include "integration/collectives/trace_net.hpp"

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
  std::string algorithm = "ring";
  std::string protocol = "simple";
  bool through_weftd = false;
  std::size_t rails = 1;
  std::string topology;
  std::uint64_t seed = 1;
  double dilation = 1;
  std::vector<std::string> faults;
  std::string kill;
  std::string stop;
  std::vector<std::string> environment;
  bool compare = false;
  // Of each contestant, in an order that changes from round to round.
  std::uint32_t rounds = 4;
};

// Options name things; the session has them as numbers, in the order of the table of names. A name
// that is in no table has not passed the option's check.
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
  if (stops) {
    const auto seconds = std::from_chars(iteration.ptr + 1, end, fault.seconds);
    if (seconds.ec != std::errc{} || seconds.ptr != end ||
        !(fault.seconds >= 0.001 && fault.seconds <= 3600)) {
      throw CLI::ValidationError(text, "say RANK@ITERATION:SECONDS, with 0.001 to 3600 seconds");
    }
  }
  return fault;
}

bool is_ours(const std::string& plugin) {
  return plugin == "weft" || plugin == "tcp" || plugin == "memory";
}

// Plugins of this tree by name, as they lie beside this program; others by the file.
std::string plugin_file(const std::string& name) {
  if (name == "weft") {
    return launch::companion("libnccl-net-weft.so", "integration/nccl");
  }
  return is_ours(name)
             ? launch::companion("libnccl-net-weft-" + name + ".so", "integration/collectives")
             : name;
}

// In each process before its ranks begin. Variables of the caller must not lead weft's plugin to
// another network than the one that this command started; --env is applied last, so it may. A
// plugin from outside keeps them: under `weft run` they are the way to the devices that it uses.
void prepare(const Options& options, std::uint32_t process, const std::string& socket) {
  launch::forget_interrupts();
  ::signal(SIGPIPE, SIG_DFL);
  if (is_ours(options.plugin)) {
    ::unsetenv("WEFT_NCCL_ADDRESS");
    ::unsetenv("WEFT_SOCKET");
  }
  if (!socket.empty()) {
    ::setenv("WEFT_SOCKET", socket.c_str(), 1);
    ::setenv("WEFT_HOST", fmt::format("h{}", process + 1).c_str(), 1);
  }
  for (const std::string& one : options.environment) {
    const std::size_t equals = one.find('=');
    ::setenv(one.substr(0, equals).c_str(),
             equals == std::string::npos ? "" : one.substr(equals + 1).c_str(), 1);
  }
}

// The first rank that fails ends the run for all: the others find on the board that it was given
// up, instead of waiting for messages that never come.
int run_rank(const Options& options, std::uint32_t rank, Board& board) {
  try {
    return collectives::run_session(options.session, rank, board) ? kSuccess : kFailure;
  } catch (const std::exception& error) {
    complain("weft nccl-perf: rank {}: {}\n", rank, error.what());
    board.give_up(fmt::format("rank {}: {}", rank, error.what()));
    return kFailure;
  }
}

// What is wrong with the options taken together; empty: nothing. Told before any process starts, as
// a wrong command line.
std::string mistake_in(const Options& options) {
  const SessionOptions& session = options.session;
  if (session.largest < session.smallest) {
    return "the largest size is below the smallest";
  }
  if (session.root >= session.ranks) {
    return fmt::format("there is no rank {} to be the root", session.root);
  }
  const bool pairs = collectives::is_point_to_point(session.operation);
  if (session.operation == collectives::NcclOperation::hypercube &&
      !std::has_single_bit(session.ranks)) {
    return "a hypercube needs 2, 4, 8, ... ranks";
  }
  if (session.algorithm == collectives::Algorithm::tree &&
      session.operation != collectives::NcclOperation::all_reduce) {
    return "only all_reduce goes along trees";
  }
  if (session.algorithm == collectives::Algorithm::pat &&
      (!collectives::is_for_pat(session.operation) ||
       session.protocol != collectives::Protocol::simple)) {
    return "only all_gather and reduce_scatter go by pat, with the simple protocol";
  }
  if (session.protocol != collectives::Protocol::simple && pairs) {
    return fmt::format(
        "NCCL's point to point, and so {}, has no low-latency protocol over a network",
        to_string(session.operation));
  }
  // A planted bug must be one that the run can find, or its passing would say nothing.
  if (session.bug == "torn" && session.protocol == collectives::Protocol::simple) {
    return "only --proto ll and ll128 look at what may be torn";
  }
  if ((session.bug == "size" || session.bug == "early") &&
      session.protocol != collectives::Protocol::simple) {
    return fmt::format(
        "--proto ll and ll128 go by flags: they ask for early ends, and sizes that "
        "mean nothing then; plant {} with simple",
        session.bug);
  }
  if (session.bug == "linger" && !session.chaos) {
    return "only a run in chaos leaves anything under way at its end: plant linger with --chaos";
  }
  if (options.compare && !session.trace.empty()) {
    return "a trace is of one run: --trace without --compare";
  }
  if (options.compare && (session.fault || session.chaos || !session.bug.empty())) {
    return "what disturbs the ranks makes their times worthless: --compare without --kill, --stop, "
           "--plant and --chaos";
  }
  if (session.fault && session.fault->rank >= session.ranks) {
    return fmt::format("there is no rank {} to kill or stop", session.fault->rank);
  }
  if (options.io == "udp" && (!options.topology.empty() || !options.faults.empty())) {
    return "a topology and faults need --io ring";
  }
  if (options.rails > 1 && (options.io == "udp" || options.plugin != "weft")) {
    return "--rails are of the network of weft's plugin, with --io ring";
  }
  const std::set<std::uint32_t> devices(session.devices.begin(), session.devices.end());
  if (devices.size() != session.devices.size()) {
    return "--device names one twice";
  }
  return {};
}

// Memory that the ranks and this process share, all zero at first.
class SharedMemory {
 public:
  explicit SharedMemory(std::size_t size)
      : size_(size),
        data_(::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {
    if (data_ == MAP_FAILED) {
      throw std::runtime_error("no memory for the ranks to share");
    }
  }
  ~SharedMemory() { ::munmap(data_, size_); }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  [[nodiscard]] void* data() const { return data_; }

 private:
  std::size_t size_;
  void* data_;
};

// Runs all ranks from their first to their last call. Returns whether all of them ended well; a
// rank that was to be killed is not expected to.
bool run_ranks(const Options& options, const std::string& socket) {
  const SessionOptions& session = options.session;
  if (!session.trace.empty()) {
    collectives::begin_trace(session.trace);
  }
  const SharedMemory memory(Board::bytes(session.ranks, session.channels));
  Board& board = Board::create(memory.data(), session.ranks, session.channels);
  collectives::RankProcesses ranks(
      board, {.prepare = [&](std::uint32_t process) { prepare(options, process, socket); },
              .run = [&](std::uint32_t rank) { return run_rank(options, rank, board); },
              .threads = session.threads});
  const auto& fault = session.fault;
  const bool good = ranks.wait(
      {.patience = session.patience_time(),
       // A fault without a length is a death, which that rank is meant to die.
       .victim =
           fault && fault->seconds <= 0 ? std::optional<std::uint32_t>(fault->rank) : std::nullopt,
       .look = launch::check_interrupt,
       .complain = [](const std::string& text) { complain("weft nccl-perf: {}\n", text); }});
  if (!session.trace.empty()) {
    collectives::end_trace(session.trace);
  }
  return good;
}

// Runs each contestant as in a run of its own, `rounds` times in changing order, over the same
// network.
bool run_comparison(const Options& options, const std::string& socket) {
  struct Kind {
    const char* name;
    const char* key;
    const char* plugin;
    std::vector<std::string> environment;
  };
  const std::vector<Kind> kinds = {
      {"weft", "weft", "weft", {}},
      // What spraying over paths is worth: the same transport without it.
      {"one path", "one_path", "weft", {"WEFT_NCCL_PATH_SELECTOR=ecmp"}},
      {"tcp", "tcp", "tcp", {}},
      {"memory", "memory", "memory", {}}};
  std::vector<collectives::Contestant> contestants;
  for (const Kind& kind : kinds) {
    contestants.push_back({kind.name, kind.key});
  }
  collectives::Comparison comparison(options.session, contestants);
  // Each size is measured out of place and in place.
  const std::size_t count = 2 * sizes_of(options.session).size();
  for (std::uint32_t round = 0; round < options.rounds; ++round) {
    for (const std::size_t index : comparison.order(round)) {
      const Kind& kind = kinds[index];
      // Rank 0 measures in a process of its own, and the results must outlive it.
      const SharedMemory memory(count * sizeof(collectives::Measured));
      Options one = options;
      one.session.plugin = plugin_file(kind.plugin);
      one.session.results = {static_cast<collectives::Measured*>(memory.data()), count};
      one.environment.insert(one.environment.end(), kind.environment.begin(),
                             kind.environment.end());
      if (!run_ranks(one, kind.plugin == std::string("weft") ? socket : "")) {
        complain("weft nccl-perf: {} has failed\n", kind.name);
        return false;
      }
      comparison.add(index, one.session.results);
    }
  }
  const std::string text = options.session.json ? comparison.json() : comparison.table();
  (void)std::fputs(text.c_str(), stdout);
  return true;
}

int run_nccl_perf(Options options) {
  if (const std::string mistake = mistake_in(options); !mistake.empty()) {
    complain("weft nccl-perf: {}\n", mistake);
    return kUsage;
  }
  const launch::Interruptible interruptible;
  options.session.plugin = plugin_file(options.plugin);
  // Rounded up: the last process may have fewer ranks.
  const std::uint32_t processes =
      (options.session.ranks + options.session.threads - 1) / options.session.threads;
  // Only weft's own plugin uses it; the others go over the machine's loopback or no network.
  std::optional<launch::PrivateWeftd> weftd;
  if (options.io == "ring" && options.plugin == "weft") {
    weftd.emplace(unwrap(launch::PrivateWeftd::start({.hosts = processes,
                                                      .nics = options.rails,
                                                      .direct_rings = !options.through_weftd,
                                                      .topology = options.topology,
                                                      .seed = options.seed,
                                                      .dilation = options.dilation})));
    for (const std::string& fault : options.faults) {
      unwrap(launch::apply_fault(weftd->directory(), fault));
    }
  }
  const std::string socket = weftd ? weftd->socket() : "";
  const bool good = options.compare ? run_comparison(options, socket) : run_ranks(options, socket);
  return good ? kSuccess : kFailure;
}

// The options of what is measured; their names are those of nccl-tests.
void add_measurement(CLI::App& command, Options& options) {
  SessionOptions& session = options.session;
  // K, M and G are powers of 1024, as in nccl-tests, whose names the options have.
  const auto size = CLI::AsSizeValue(/*kb_is_1000=*/false);
  command.add_option("operation", options.operation, "What the ranks do")
      ->check(CLI::IsMember(list(collectives::kOperationNames)))
      ->capture_default_str();
  command.add_option("-N,--ranks", session.ranks, "Ranks, each a process of its own or a thread")
      ->check(CLI::Range(2U, collectives::kMaxRanks))
      ->capture_default_str();
  command.add_option("-t,--threads", session.threads, "Ranks of a process, each a thread of it")
      ->check(CLI::Range(1U, collectives::kMaxRanks))
      ->capture_default_str();
  command.add_option("-b,--minbytes", session.smallest, "Smallest size")->transform(size);
  command.add_option("-e,--maxbytes", session.largest, "Largest size")->transform(size);
  command.add_option("-f,--stepfactor", session.factor, "From one size to the next")
      ->check(real_range(1.01, 1e6));
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
  command.add_option("-r,--root", session.root, "Root of broadcast, reduce, gather and scatter");
  command
      .add_option("--algo", options.algorithm,
                  "ring; tree, double binary, of all_reduce; pat, of all_gather and reduce_scatter")
      ->check(CLI::IsMember(list(collectives::kAlgorithmNames)))
      ->capture_default_str();
  command.add_option("--proto", options.protocol, "Of rings and trees: simple, ll, ll128")
      ->check(CLI::IsMember(list(collectives::kProtocolNames)))
      ->capture_default_str();
  command.add_option("--channels", session.channels, "Rings between the ranks")
      ->check(CLI::Range(1U, collectives::kMaxChannels))
      ->capture_default_str();
  command.add_option("--buffsize", session.buffers.simple, "NCCL_BUFFSIZE: of each connection")
      ->transform(size)
      ->check(CLI::Range(std::size_t{64} << 10, std::size_t{1} << 30));
  command.add_flag("--json", session.json, "One JSON object per line");
}

// The options of what it is measured on: plugin, network, and trouble.
void add_ground(CLI::App& command, Options& options) {
  CLI::Option* const plugin = command
                                  .add_option("--plugin", options.plugin,
                                              "weft, tcp, memory, or the file of anybody's plugin")
                                  ->capture_default_str();
  CLI::Option* const version =
      command
          .add_option("--api", options.version, "Version of the interface; 0: the newest it has")
          ->check(CLI::IsMember({0, 6, 7, 8, 9, 10, 11, 12}));
  CLI::Option* const compare =
      command.add_flag("--compare", options.compare,
                       "Run weft, weft on one path, tcp and memory in turn, and show their times");
  CLI::Option* const device =
      command
          .add_option(
              "--device", options.session.devices,
              "Numbers of the plugin's devices, such as 0,2, which channels take in turn [all]")
          ->delimiter(',')
          ->type_name("UINT,...");
  compare->excludes(plugin)->excludes(version)->excludes(device);
  command.add_option("--rounds", options.rounds, "Of --compare: times that each of them runs")
      ->needs(compare)
      ->check(CLI::Range(1U, 1000U))
      ->capture_default_str();
  command.add_option("--env", options.environment, "NAME=VALUE for the ranks")
      ->allow_extra_args(false)
      ->check([](const std::string& word) {
        const std::size_t equals = word.find('=');
        return equals == 0 || equals == std::string::npos
                   ? "'" + word + "': say NAME=VALUE, or NAME= for none"
                   : std::string();
      });
  command.add_option("--io", options.io, "What carries weft's packets: ring, udp over loopback")
      ->check(CLI::IsMember({"ring", "udp"}))
      ->capture_default_str();
  command.add_flag("--through-weftd", options.through_weftd,
                   "Let every packet pass weftd instead of a direct ring");
  CLI::Option* const rails =
      command
          .add_option("--nics,--rails", options.rails, "NICs (rails) of every host, each a device")
          ->check(CLI::Range(std::size_t{1}, attach::kMaxNicsPerHost))
          ->capture_default_str();
  command
      .add_option("--topology", options.topology, "File that describes the network between them")
      ->check(CLI::ExistingFile)
      ->excludes(rails);
  command.add_option("--fault", options.faults, "As in `weft fault --help`")
      ->allow_extra_args(false);
  command.add_option("--seed", options.seed, "Seed of everything that the network draws by lot");
  command.add_option("--dilation", options.dilation, "Seconds here per second in the network")
      ->check(real_range(0.001, 1e6));
  CLI::Option* const kill =
      command.add_option("--kill", options.kill, "RANK@ITERATION: that rank dies then");
  command.add_option("--stop", options.stop, "RANK@ITERATION:SECONDS: it stands still for so long")
      ->excludes(kill);
  command.add_option("--plant", options.session.bug, "Give the plugin a bug, to see it found")
      ->check(CLI::IsMember(collectives::names_of_bugs()));
  command
      .add_option("--trace", options.session.trace,
                  "Write a trace of every request for ui.perfetto.dev into this file")
      ->type_name("FILE");
  command.add_option(
      "--chaos", options.session.chaos,
      "SEED: requests are refused, tested late and in any order, and left at the end");
  command
      .add_option("--patience", options.session.patience,
                  "Seconds without anything moving that count as a hang")
      ->check(real_range(0.1, 1e6));
}

}  // namespace

void register_nccl_perf(CLI::App& program, Work& work) {
  CLI::App* const command = add_command(program, "nccl-perf");
  auto options = std::make_shared<Options>();
  add_measurement(*command, *options);
  add_ground(*command, *options);
  command->callback([&work, options] {
    SessionOptions& session = options->session;
    session.operation = static_cast<collectives::NcclOperation>(
        index_of(collectives::kOperationNames, options->operation));
    session.type = static_cast<collectives::Type>(index_of(collectives::kTypeNames, options->type));
    session.reduction = static_cast<collectives::Reduction>(
        index_of(collectives::kReductionNames, options->reduction));
    session.algorithm = static_cast<collectives::Algorithm>(
        index_of(collectives::kAlgorithmNames, options->algorithm));
    session.protocol = static_cast<collectives::Protocol>(
        index_of(collectives::kProtocolNames, options->protocol));
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
