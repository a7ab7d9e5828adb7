// Owns `weft perf`: the transport's own benchmark between two real processes.
//
// Each side is a process made by fork (perf/sides.cpp), which drives an endpoint
// (perf/endpoint.cpp) and prints its rows. With several pairs only their sums are shown. What
// stands between the sides is prepared first: a weftd, a DPDK device, or nothing.
#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "emu/cli/commands.hpp"
#include "emu/cli/complain.hpp"
#include "emu/cli/help.hpp"
#include "emu/cli/number_checks.hpp"
#include "emu/cli/perf/fault.hpp"
#include "emu/cli/perf/options.hpp"
#include "emu/cli/perf/peers.hpp"
#include "emu/cli/perf/report.hpp"
#include "emu/cli/perf/sides.hpp"
#include "emu/cli/unwrap.hpp"
#include "emu/launch/control_client.hpp"
#include "emu/launch/cores.hpp"
#include "emu/launch/interrupt.hpp"
#include "srd/engine/cc/congestion_control.hpp"

namespace weft::cli {
namespace {

// Measures libfabric's providers with fi_pingpong. That has one message in flight at a time, so it
// is the latency that compares.
int run_peers(const PerfOptions& options) {
  int code = kSuccess;
  for (const std::string& provider : options.peers) {
    for (const std::uint32_t size : options.sizes) {
      std::vector<PeerRow> rows;
      for (int round = 0; round < options.rounds; ++round) {
        launch::check_interrupt();  // an interrupt between two of these runs
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
      // The median by latency, with the rates of the same round.
      print_peer(options, rows[rows.size() / 2]);
    }
  }
  return code;
}

// Of several pairs: the rates added up, case by case.
void print_sums(const PerfOptions& options, std::span<const PairBoard> boards) {
  if (!options.json) {
    print_head();
  }
  const auto cases = cases_of(options);
  for (std::size_t i = 0; i < cases.size(); ++i) {
    std::vector<PerfResult> pairs;
    for (const PairBoard& board : boards) {
      pairs.push_back(board.medians[i]);
    }
    print_row(options, cases[i], sum_of(pairs));
  }
}

// The beginning of an --io that names a DPDK device.
constexpr std::string_view kDpdk = "dpdk:";

// What is wrong with the options taken together; empty: nothing.
std::string mistake_in(const PerfOptions& options) {
  const std::size_t cases = cases_of(options).size();
  if (options.pairs > 1 && (options.io != "ring" || !options.topology.empty())) {
    return "several pairs need --io ring and no topology";
  }
  if (options.pairs > 1 && cases > PairBoard::kMaxCases) {
    return fmt::format(
        "several pairs measure {} cases at the most, and these are {}: give fewer "
        "of --op or --size",
        PairBoard::kMaxCases, cases);
  }
  // What is outstanding when the time is over is waited for.
  constexpr std::uint64_t kMaxUnderWay = std::uint64_t{1} << 30;
  for (const PerfCase& one : cases_of(options)) {
    if (std::uint64_t{one.window} * one.size > kMaxUnderWay) {
      return fmt::format(
          "{} messages of {} bytes under way are more than 1 GiB: --window {} at most", one.window,
          one.size, kMaxUnderWay / one.size);
    }
  }
  if (cases == 0) {
    return "nothing to measure: a send is at most 4096 bytes";
  }
  if (options.io != "ring" && options.io != "udp" && !options.io.starts_with(kDpdk)) {
    return fmt::format("there is no --io {}; there are: ring, udp, dpdk:DEVICE", options.io);
  }
  if (options.io != "ring" &&
      (options.through_weftd || !options.topology.empty() || options.dilation != 1)) {
    return "--through-weftd, --topology and --dilation need --io ring, which is weftd's";
  }
  for (const std::string& fault : options.faults) {
    if (options.io == "ring") {
      break;  // weftd says what is wrong with it
    }
    if (const auto config = parse_packet_fault(fault); !config) {
      return config.error().message;
    }
  }
  return {};
}

// Makes what stands between the sides. Called before any side is forked, so that both find the same
// network.
Ground prepare(const PerfOptions& options) {
  Ground ground;
  if (options.io == "ring") {
    ground.weftd.emplace(unwrap(launch::PrivateWeftd::start({.hosts = 2 * options.pairs,
                                                             .direct_rings = !options.through_weftd,
                                                             .topology = options.topology,
                                                             .seed = options.seed,
                                                             .dilation = options.dilation})));
    if (is_pinned(options) && passes_weftd(options)) {
      launch::pin_to_core(ground.weftd->pid(), kCoreOfWeftd);
    }
  } else if (options.io.starts_with(kDpdk)) {
    ground.dpdk.emplace(unwrap(plan_dpdk(options.io.substr(kDpdk.size()), options.eal)));
  }
  for (const std::string& fault : options.faults) {
    if (ground.weftd) {
      unwrap(launch::apply_fault(ground.weftd->directory(), fault));
    }
  }
  return ground;
}

// Other people's transports are measured last, and only if ours could be: they have no use alone.
int run_perf(const PerfOptions& options) {
  if (const std::string mistake = mistake_in(options); !mistake.empty()) {
    complain("weft perf: {}\n", mistake);
    return kUsage;
  }
  const launch::Interruptible interruptible;
  const Ground ground = prepare(options);
  const Boards boards(options.pairs);
  Sides sides;
  for (std::size_t pair = 0; pair < options.pairs; ++pair) {
    for (const int side : {0, 1}) {
      sides.start(side, [&] {
        return run_side(options, boards.all()[pair], static_cast<int>(pair), side, ground);
      });
    }
  }
  const int code = sides.wait(boards.all());
  if (code == kSuccess && options.pairs > 1) {
    print_sums(options, boards.all());
  }
  return code == kSuccess ? run_peers(options) : code;
}

}  // namespace

void register_perf(CLI::App& program, Work& work) {
  CLI::App* perf = add_command(program, "perf");
  auto options = std::make_shared<PerfOptions>();
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
      ->check(real_range(0.001, 1e6));
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
      ->check(positive())
      ->capture_default_str();
  perf->add_option("--seconds", options->seconds, "Length of one measurement")
      ->check(real_range(0.001, 60.0))
      ->capture_default_str();
  const auto controls = srd::congestion_control_names();
  perf->add_option("--congestion-control", options->tuning.congestion_control,
                   "Another one than suits the carrier")
      ->check(CLI::IsMember(std::vector<std::string>(controls.begin(), controls.end())));
  perf->add_option("--paths", options->tuning.paths, "More or fewer than suit the carrier")
      ->check(CLI::Range(1, 256));
  perf->add_option(
          "--path-run", options->tuning.path_run,
          "Bytes in a row on one path, of what leaves at once; else what suits the carrier")
      ->check(CLI::Range(0, 1 << 20));
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
