// Owns `weft perf`: the transport's own benchmark between two real processes.
#include <fmt/core.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <new>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "emu/attach/client.hpp"
#include "emu/cli/commands.hpp"
#include "emu/cli/complain.hpp"
#include "emu/cli/help.hpp"
#include "emu/cli/perf/dpdk.hpp"
#include "emu/cli/perf/endpoint.hpp"
#include "emu/cli/perf/fault.hpp"
#include "emu/cli/perf/peers.hpp"
#include "emu/launch/control_client.hpp"
#include "emu/launch/cores.hpp"
#include "emu/launch/interrupt.hpp"
#include "emu/launch/weftd_process.hpp"
#include "srd/engine/cc/congestion_control.hpp"
#include "srd/io/pcap_io.hpp"
#include "srd/io/udp_io.hpp"
#include "srd/wire/srd_codec.hpp"

namespace weft::cli {
namespace {

struct Options {
  std::string io = "ring";
  bool through_weftd = false;
  bool block = false;
  int pin = 0;  // 1: yes, -1: no, 0: see is_pinned()
  bool json = false;
  std::vector<std::string> operations{"send", "write", "read"};
  std::vector<std::uint32_t> sizes{64, 4096, 65536, 1048576};
  int rounds = 5;
  double seconds = 0.2;
  std::uint32_t window = 0;
  std::string topology;
  std::uint64_t seed = 1;
  double dilation = 1;
  std::vector<std::string> faults;
  std::string capture;  // directory
  std::string congestion_control;
  std::string eal;
  std::vector<std::string> peers{};
  std::size_t pairs = 1;
};

// Memory that the two sides of a pair share with each other and with the process that started them.
struct Board {
  static constexpr std::size_t kMostCases = 64;
  PerfBoard perf;
  std::array<PerfResult, kMostCases> medians{};  // the client's, for print_sums()
};

PerfOperation parse_operation(const std::string& name) {
  for (const auto operation : {PerfOperation::send, PerfOperation::write, PerfOperation::read}) {
    if (name == to_string(operation)) {
      return operation;
    }
  }
  throw std::runtime_error("there is no operation '" + name + "'");
}

// The same list in every process: they go through the cases in step. Larger messages get smaller
// windows: fewer of them keep a carrier busy.
std::vector<PerfCase> cases_of(const Options& options) {
  std::vector<PerfCase> cases;
  for (const std::string& name : options.operations) {
    for (const std::uint32_t size : options.sizes) {
      PerfCase one;
      one.operation = parse_operation(name);
      if (one.operation == PerfOperation::send && size > 4096) {
        continue;  // a send is at most one packet
      }
      one.size = size;
      one.duration = Duration{static_cast<std::int64_t>(options.seconds * 1e9)};
      one.window = options.window != 0 ? options.window
                   : size <= 4096      ? 256
                   : size <= 65536     ? 64
                                       : 8;
      cases.push_back(one);
    }
  }
  return cases;
}

void print_head() {
  fmt::print("{:<6}{:>9}{:>12}{:>12}{:>14}{:>12}{:>10}{:>7}{:>12}\n", "op", "bytes", "p50[us]",
             "p99[us]", "msg/s", "GB/s", "retrans", "paths", "reordered");
}

void print(const Options& options, const PerfCase& one, const PerfResult& result) {
  if (!options.json) {
    fmt::print("{:<6}{:>9}{:>12.2f}{:>12.2f}{:>14.0f}{:>12.3f}{:>10}{:>7}{:>12}{}\n",
               to_string(one.operation), one.size, result.latency_us_p50, result.latency_us_p99,
               result.messages_per_s, result.gbytes_per_s, result.retransmitted, result.paths_used,
               result.out_of_order_packets,
               result.failure == srd::Status::ok ? std::string()
                                                 : fmt::format("  {}", to_string(result.failure)));
    return;
  }
  nlohmann::ordered_json line;
  line["perf"] = true;
  line["io"] = options.io;
  line["network"] = options.io != "ring"        ? "none"
                    : !options.topology.empty() ? options.topology
                    : !options.faults.empty()   ? "star"
                    : options.through_weftd     ? "weftd"
                                                : "ideal";
  line["op"] = to_string(one.operation);
  line["size"] = one.size;
  line["latency_us_p50"] = result.latency_us_p50;
  line["latency_us_p99"] = result.latency_us_p99;
  line["msgs_per_s"] = result.messages_per_s;
  line["gbytes_per_s"] = result.gbytes_per_s;
  line["paths_used"] = result.paths_used;
  line["out_of_order_packets"] = result.out_of_order_packets;
  line["retransmitted"] = result.retransmitted;
  line["status"] = to_string(result.failure);
  fmt::print("{}\n", line.dump());
}

void print_peer(const Options& options, const PeerRow& row) {
  if (!options.json) {
    fmt::print("{:<6}{:>9}{:>12.2f}{:>12}{:>14.0f}{:>12.3f}{:>10}  {}\n", "ping", row.size,
               row.latency_us, "-", row.messages_per_s, row.gbytes_per_s, "-", row.provider);
    return;
  }
  nlohmann::ordered_json line;
  line["perf"] = true;
  line["io"] = row.provider;
  line["network"] = "none";
  line["op"] = "pingpong";
  line["size"] = row.size;
  line["latency_us_p50"] = row.latency_us;
  line["msgs_per_s"] = row.messages_per_s;
  line["gbytes_per_s"] = row.gbytes_per_s;
  line["status"] = "ok";
  fmt::print("{}\n", line.dump());
}

// In the process of that side: h1 and h2 are the first pair, h3 and h4 the second.
PerfPlace place_on_ring(const launch::PrivateWeftd& weftd, int pair, int side) {
  auto attached =
      attach::attach({.socket = weftd.socket(), .host = "h" + std::to_string(2 * pair + side + 1)});
  if (!attached) {
    throw std::runtime_error(attached.error().message);
  }
  return {.address = attached->address,
          .attachment = attached->id,
          .life = attached->life,
          .qpn = attached->first_qpn + 1,
          .io = std::move(attached->io)};
}

// Loopback addresses of this run alone, made from the number of the process that started both
// sides: an address serves one process.
PerfPlace place_on_udp(int side) {
  const auto run = static_cast<unsigned>(::getppid());
  srd::Address addresses[2];
  for (unsigned i = 0; i < 2; ++i) {
    addresses[i] = srd::Address::v4(127, 80 + run / 250 % 100, run % 250, i + 1);
  }
  auto io = srd::UdpIo<srd::wire::SrdCodec>::create(
      {.own = addresses[side], .mtu = 8192 + 64, .paths = 16});
  if (!io) {
    throw std::runtime_error(io.error().message);
  }
  return {.address = addresses[side],
          .attachment = srd::AttachmentId{1},
          .life = srd::Life{run},
          .qpn = 257,
          .io = std::move(*io)};
}

template <class Value>
Value median_of(std::vector<PerfResult>& results, Value PerfResult::*member) {
  std::sort(results.begin(), results.end(),
            [&](const PerfResult& a, const PerfResult& b) { return a.*member < b.*member; });
  return results[results.size() / 2].*member;
}

// Each number is a median of its own, so the result need not be any one round. What went wrong in
// any round counts: sums of losses, and the last failure.
PerfResult median(std::vector<PerfResult> results) {
  PerfResult result = results.front();
  result.latency_us_p50 = median_of(results, &PerfResult::latency_us_p50);
  result.latency_us_p99 = median_of(results, &PerfResult::latency_us_p99);
  result.messages_per_s = median_of(results, &PerfResult::messages_per_s);
  result.gbytes_per_s = median_of(results, &PerfResult::gbytes_per_s);
  result.retransmitted = 0;
  result.out_of_order_packets = 0;
  for (const PerfResult& one : results) {
    result.retransmitted += one.retransmitted;
    result.out_of_order_packets += one.out_of_order_packets;
    result.paths_used = std::max(result.paths_used, one.paths_used);
    if (one.failure != srd::Status::ok) {
      result.failure = one.failure;
    }
  }
  return result;
}

bool passes_weftd(const Options& options) {
  return launch::passes_weftd(options.through_weftd, options.topology, options.faults);
}

// Of three processes on two cores one is in the way of the others, unless it is told where to be.
// So a single pair with weftd in between is pinned unless the user says otherwise; several pairs
// are left to the scheduler.
bool is_pinned(const Options& options) {
  return options.pin > 0 ||
         (options.pin == 0 && options.io == "ring" && options.pairs == 1 && passes_weftd(options));
}

// Where there is no modelled network, what a side sends is troubled on its way out. On rings weftd
// has the faults already. Both sides draw from seeds of their own.
void trouble(const Options& options, PerfPlace& place, int side) {
  for (const std::string& text : options.faults) {
    if (options.io == "ring") {
      return;
    }
    auto config = parse_packet_fault(text);
    if (!config) {
      throw std::runtime_error(config.error().message);
    }
    config->seed = 2 * options.seed + static_cast<std::uint64_t>(side);
    place.io = std::make_unique<srd::FaultIo>(*config, std::move(place.io));
  }
}

// Below trouble(): the file holds what has left this side, without packets that a fault took.
void record(const Options& options, PerfPlace& place, int side) {
  if (options.capture.empty()) {
    return;
  }
  std::filesystem::create_directories(options.capture);
  auto capture = srd::PacketCapture::create(
      options.capture + (side == 0 ? "/client.pcapng" : "/server.pcapng"), place.address,
      srd::CaptureFormat::of<srd::wire::SrdCodec>());
  if (!capture) {
    throw std::runtime_error(capture.error().message);
  }
  place.io = std::make_unique<srd::PcapIo>(std::move(place.io), std::move(*capture));
}

// What carries the packets, made before the sides are forked and kept until they have ended. With
// neither member it is UDP over loopback.
struct Ground {
  std::optional<launch::PrivateWeftd> weftd;
  std::optional<DpdkPlan> dpdk;

  [[nodiscard]] PerfPlace place(int pair, int side) const {
    return weftd  ? place_on_ring(*weftd, pair, side)
           : dpdk ? place_on_dpdk(*dpdk, side, static_cast<unsigned>(::getppid()))
                  : place_on_udp(side);
  }
};

// The body of one of the two processes; returns its exit code. What goes wrong here makes the other
// side give up, too: it would wait for ever at the next barrier.
int run_side(const Options& options, Board& board, int pair, int side, const Ground& ground) {
  try {
    if (is_pinned(options)) {
      // A process in the middle is what both ends wait for: it gets a core, and they share the
      // other.
      const bool shared = ground.weftd && passes_weftd(options);
      launch::pin_to_core(0, shared ? 0 : static_cast<std::size_t>(side));
    }
    PerfEndpoint endpoint(board.perf, side);
    PerfPlace place = ground.place(pair, side);
    record(options, place, side);
    trouble(options, place, side);
    endpoint.start(std::move(place), options.block, options.congestion_control);
    if (side == 0 && !options.json && options.pairs == 1) {
      print_head();
    }
    std::size_t number = 0;
    bool passed = true;
    for (const PerfCase& one : cases_of(options)) {
      std::vector<PerfResult> results;
      for (int round = 0; round < options.rounds; ++round) {
        results.push_back(endpoint.run(one));
      }
      if (side == 0) {
        const PerfResult result = median(results);
        passed = passed && result.failure == srd::Status::ok;
        if (options.pairs == 1) {
          print(options, one, result);
          std::fflush(stdout);
        } else {
          board.medians.at(number++) = result;
        }
      }
    }
    return passed ? kSuccess : kFailure;
  } catch (const std::exception& error) {
    board.perf.abort = true;
    complain("weft perf: side {}: {}\n", side, error.what());
    return kFailure;
  }
}

// The two processes of each pair. They end with this one, and never run its destructors.
class Sides {
 public:
  Sides() = default;
  ~Sides() {
    for (const pid_t pid : pids_) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
    }
  }
  Sides(const Sides&) = delete;
  Sides& operator=(const Sides&) = delete;

  template <class Body>
  void start(int side, Body&& body) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      launch::forget_interrupts();
      ::signal(SIGPIPE, SIG_DFL);  // this process clears up
      ::prctl(PR_SET_NAME, side == 0 ? "weft-client" : "weft-server");
      const int code = body();
      std::fflush(stdout);
      ::_exit(code);
    }
    if (pid < 0) {
      throw std::runtime_error(srd::errno_text("starting a process"));
    }
    pids_.push_back(pid);
  }

  // Until all have ended; kFailure if any of them failed. A side that failed or crashed ends all
  // pairs. Throws launch::Interrupted, and then the destructor ends those that are left.
  int wait(std::span<Board> boards) {
    int code = kSuccess;
    while (!pids_.empty()) {
      int status = 0;
      const pid_t ended = ::waitpid(0, &status, 0);  // weftd is in another process group
      launch::check_interrupt();                     // which may have ended them, too
      if (ended < 0) {
        continue;
      }
      std::erase(pids_, ended);
      if (!WIFEXITED(status) || WEXITSTATUS(status) != kSuccess) {
        for (Board& board : boards) {
          board.perf.abort = true;  // the others wait for nobody
        }
        code = kFailure;
      }
    }
    return code;
  }

 private:
  std::vector<pid_t> pids_;
};

// The others' rows: their ping-pong has one message under way, so its latency is what compares, not
// its rate. A provider that fails costs its own rows only.
int run_peers(const Options& options) {
  int code = kSuccess;
  for (const std::string& provider : options.peers) {
    for (const std::uint32_t size : options.sizes) {
      std::vector<PeerRow> rows;
      for (int round = 0; round < options.rounds; ++round) {
        launch::check_interrupt();  // which came between two of them
        const auto row = measure_peer(provider, size);
        if (!row) {
          complain("weft perf: {}\n", row.error().message);
          code = kFailure;
          break;
        }
        rows.push_back(*row);
      }
      if (rows.empty()) {
        break;
      }
      std::sort(rows.begin(), rows.end(),
                [](const PeerRow& a, const PeerRow& b) { return a.latency_us < b.latency_us; });
      print_peer(options, rows[rows.size() / 2]);
    }
  }
  return code;
}

// All pairs together: rates add up, latencies are those of the slowest pair. Paths are those of the
// first pair.
void print_sums(const Options& options, std::span<const Board> boards) {
  if (!options.json) {
    print_head();
  }
  const auto cases = cases_of(options);
  for (std::size_t i = 0; i < cases.size(); ++i) {
    PerfResult sum = boards[0].medians[i];
    for (const Board& board : boards.subspan(1)) {
      const PerfResult& one = board.medians[i];
      sum.messages_per_s += one.messages_per_s;
      sum.gbytes_per_s += one.gbytes_per_s;
      sum.retransmitted += one.retransmitted;
      sum.latency_us_p50 = std::max(sum.latency_us_p50, one.latency_us_p50);
      sum.latency_us_p99 = std::max(sum.latency_us_p99, one.latency_us_p99);
      sum.failure = one.failure != srd::Status::ok ? one.failure : sum.failure;
    }
    print(options, cases[i], sum);
  }
}

constexpr std::string_view kDpdk = "dpdk:";

// What is wrong with what was asked for, or nothing.
std::string mistake_in(const Options& options) {
  const std::size_t cases = cases_of(options).size();
  if (options.pairs > 1 && (options.io != "ring" || !options.topology.empty())) {
    return "several pairs need --io ring and no topology";
  }
  if (options.pairs > 1 && cases > Board::kMostCases) {
    return fmt::format(
        "several pairs measure {} cases at the most, and these are {}: give fewer "
        "of --op or --size",
        Board::kMostCases, cases);
  }
  if (cases == 0) {
    return "nothing to measure: a send is at most 4096 bytes";
  }
  if (options.io != "ring" && options.io != "udp" && !options.io.starts_with(kDpdk)) {
    return fmt::format("there is no --io {}; there are: ring, udp, dpdk:DEVICE", options.io);
  }
  return {};
}

int run_perf(const Options& options) {
  if (const std::string mistake = mistake_in(options); !mistake.empty()) {
    complain("weft perf: {}\n", mistake);
    return kUsage;
  }
  const launch::Interruptible interruptible;
  Ground ground;
  auto& weftd = ground.weftd;
  if (options.io == "ring") {
    auto started = launch::PrivateWeftd::start({.hosts = 2 * options.pairs,
                                                .direct_rings = !options.through_weftd,
                                                .topology = options.topology,
                                                .seed = options.seed,
                                                .dilation = options.dilation});
    if (!started) {
      throw std::runtime_error(started.error().message);
    }
    weftd.emplace(std::move(*started));
    if (is_pinned(options) && passes_weftd(options)) {
      launch::pin_to_core(weftd->pid(), 1);
    }
  } else if (options.io.starts_with(kDpdk)) {
    auto plan = plan_dpdk(options.io.substr(kDpdk.size()), options.eal);
    if (!plan) {
      throw std::runtime_error(plan.error().message);
    }
    ground.dpdk.emplace(std::move(*plan));
  }
  for (const std::string& fault : options.faults) {
    if (!weftd) {
      if (const auto config = parse_packet_fault(fault); !config) {
        complain("weft perf: {}\n", config.error().message);
        return kUsage;
      }
      continue;
    }
    if (const auto applied = launch::apply_fault(weftd->directory(), fault); !applied) {
      throw std::runtime_error(applied.error().message);
    }
  }
  const std::size_t size = options.pairs * sizeof(Board);
  void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    throw std::runtime_error("no memory for the sides to share");
  }
  const std::span<Board> boards{static_cast<Board*>(memory), options.pairs};
  Sides sides;
  for (std::size_t pair = 0; pair < options.pairs; ++pair) {
    new (&boards[pair]) Board;
    for (const int side : {0, 1}) {
      sides.start(side, [&] {
        return run_side(options, boards[pair], static_cast<int>(pair), side, ground);
      });
    }
  }
  const int code = sides.wait(boards);
  if (code == kSuccess && options.pairs > 1) {
    print_sums(options, boards);
  }
  ::munmap(memory, size);
  return code == kSuccess ? run_peers(options) : code;
}

}  // namespace

void register_perf(CLI::App& program, Work& work) {
  CLI::App* perf = add_command(program, "perf");
  auto options = std::make_shared<Options>();
  perf->add_option("--io", options->io,
                   "What carries the packets: ring, udp over loopback, dpdk:memif, dpdk:vhost, "
                   "dpdk:af_packet, or dpdk:DEVARGS (of each side with `;` between)")
      ->capture_default_str();
  perf->add_flag("--through-weftd", options->through_weftd,
                 "Let every packet pass weftd instead of a direct ring");
  perf->add_option("--topology", options->topology, "File that describes the network between them")
      ->check(CLI::ExistingFile);
  perf->add_option("--fault", options->faults,
                   "As in `weft fault --help`; with udp and dpdk without a link: 'loss: 0.01'")
      ->allow_extra_args(false);
  perf->add_option("--seed", options->seed, "Seed of everything that the network draws by lot");
  perf->add_option("--dilation", options->dilation, "Seconds here per second in the network")
      ->check(CLI::Range(0.001, 1e6));
  perf->add_option("--eal", options->eal, "Words for DPDK's EAL: '-l 2,3 -m 512'");
  perf->add_flag("--block", options->block, "Sleep when idle, as an idle program would");
  perf->add_flag(
      "--pin,!--no-pin", options->pin,
      "Keep each side on a core of its own; with weftd between them: weftd on one, both sides "
      "on the other, which one pair does unless told not to");
  perf->add_option("--op", options->operations, "send, write, read")
      ->delimiter(',')
      ->check(CLI::IsMember({"send", "write", "read"}));
  perf->add_option("--size", options->sizes, "Message sizes in bytes")
      ->delimiter(',')
      ->check(CLI::Range(std::uint32_t{1}, static_cast<std::uint32_t>(PerfEndpoint::kMaxSize)));
  perf->add_option("--rounds", options->rounds, "Rounds; the medians count")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  perf->add_option("--seconds", options->seconds, "Length of one measurement")
      ->check(CLI::Range(0.001, 60.0))
      ->capture_default_str();
  const auto controls = srd::congestion_control_names();
  perf->add_option("--congestion-control", options->congestion_control,
                   "Another one than suits the carrier")
      ->check(CLI::IsMember(std::vector<std::string>(controls.begin(), controls.end())));
  perf->add_option("--window", options->window,
                   "Requests outstanding when measuring rates; 0: by size")
      ->check(CLI::Range(0, 8192));
  perf->add_option("--capture", options->capture,
                   "Directory for a capture file of each side: client.pcapng, server.pcapng");
  perf->add_option("--pairs", options->pairs,
                   "Pairs of processes at the same time; their sums are shown")
      ->check(CLI::Range(1, 100));
  perf->add_option("--peers", options->peers,
                   "libfabric providers to measure as well, with fi_pingpong")
      ->delimiter(',');
  perf->add_flag("--json", options->json, "One JSON object per line");
  perf->callback([&work, options] { work = [options] { return run_perf(*options); }; });
}

}  // namespace weft::cli
