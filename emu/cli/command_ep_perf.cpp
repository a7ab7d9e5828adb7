// Owns `weft ep-perf`: dispatch and combine of mixtures of experts, in virtual and in real time.
//
// The ranks are the same in both (workloads::ExpertRank); what differs is what moves packets and
// time: VirtualRun, or processes over rings (workloads/live.cpp).
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "emu/cli/commands.hpp"
#include "emu/cli/complain.hpp"
#include "emu/cli/help.hpp"
#include "emu/cli/number_checks.hpp"
#include "emu/cli/output.hpp"
#include "emu/cli/unwrap.hpp"
#include "emu/cli/workloads/expert_table.hpp"
#include "emu/cli/workloads/live.hpp"
#include "emu/fabric/yaml_reader.hpp"
#include "integration/workloads/virtual_run.hpp"
#include "srd/engine/paths/path_selector.hpp"

namespace weft::cli {
namespace {

using workloads::ExpertResult;
using workloads::ExpertSetup;
using workloads::Ordering;

constexpr std::uint32_t kMaxRounds = 1000;
constexpr std::uint32_t kChunksOfARing = 8;

struct Options {
  ExpertSetup setup;
  std::vector<std::uint32_t> ranks{8};
  std::string mode = "ll";
  bool asks_rings = false;  // by --chunk or --ring
  std::string order = "all";
  std::string precision = "fp8";
  bool real_time = false;
  bool through_weftd = false;
  std::string topology;
  std::string rate = "400Gbps";
  std::string path_selector;
  std::vector<std::string> faults;
  double dilation = 1;
  bool json = false;
};

// What a process hands over at its end: plain values only, as they are copied through shared
// memory.
struct PlainResult {
  std::uint32_t sections = 0;
  std::array<double, kMaxRounds> dispatch_us{};
  std::array<double, kMaxRounds> combine_us{};
  std::uint64_t dispatch_bytes = 0;
  std::uint64_t combine_bytes = 0;
  std::uint64_t checked = 0;
  std::uint64_t wrong = 0;
  workloads::OrderingCounters ordering;
  std::uint64_t digest = 0;
  workloads::PacketCounters packets;
};

// Only as many sections as were run: the arrays have room for the most that an option allows.
PlainResult plain(const ExpertResult& from, const workloads::PacketCounters& packets) {
  PlainResult result;
  result.sections = static_cast<std::uint32_t>(from.combine_us.size());
  std::copy_n(from.dispatch_us.begin(), result.sections, result.dispatch_us.begin());
  std::copy_n(from.combine_us.begin(), result.sections, result.combine_us.begin());
  result.dispatch_bytes = from.dispatch_bytes;
  result.combine_bytes = from.combine_bytes;
  result.wrong = from.wrong;
  result.checked = from.checked;
  result.ordering = from.ordering;
  result.digest = from.digest;
  result.packets = packets;
  return result;
}

// The inverse of plain(), summed up over the ranks of a row.
void add(const PlainResult& from, ExpertRow& row) {
  ExpertResult one;
  one.dispatch_us.assign(from.dispatch_us.begin(), from.dispatch_us.begin() + from.sections);
  one.combine_us.assign(from.combine_us.begin(), from.combine_us.begin() + from.sections);
  one.dispatch_bytes = from.dispatch_bytes;
  one.combine_bytes = from.combine_bytes;
  one.wrong = from.wrong;
  one.checked = from.checked;
  one.ordering = from.ordering;
  one.digest = from.digest;
  row.all.add(one);
  row.packets.delivered += from.packets.delivered;
  row.packets.reordered += from.packets.reordered;
  row.packets.retransmitted += from.packets.retransmitted;
}

// Makes a rank; called once for each, in virtual time or in the rank's own process.
auto maker(const ExpertSetup& setup) {
  return [setup](srd::Engine& engine, std::uint32_t rank, workloads::RankPlace& place) {
    ExpertSetup own = setup;
    own.rank = rank;
    own.place = place;
    auto worker = workloads::ExpertRank::make(engine, own);
    // The rank adds what only it knows, such as the key of its memory; the other ranks read it from
    // here.
    place = worker->place();
    return std::unique_ptr<workloads::Worker>(std::move(worker));
  };
}

workloads::VirtualGround ground_of(const Options& options, std::uint32_t ranks) {
  workloads::VirtualGround ground{.ranks = ranks,
                                  .rate = options.rate,
                                  .faults = options.faults,
                                  .seed = options.setup.problem.seed,
                                  .path_selector = options.path_selector};
  if (!options.topology.empty()) {
    ground.topology = unwrap(fabric::read_text_file(options.topology));
    ground.topology_file = options.topology;
  }
  return ground;
}

double available_gbytes() {
  std::ifstream file("/proc/meminfo");
  for (std::string name; file >> name; file.ignore(1000, '\n')) {
    double kib = 0;
    if (name == "MemAvailable:" && file >> kib) {
      return kib * 1024 / 1e9;
    }
  }
  return std::numeric_limits<double>::infinity();
}

// All ranks are on this machine, in virtual and in real time. Without the memory the run would be
// ended in its middle, without a word.
void check_memory(const Options& options) {
  for (const std::uint32_t ranks : options.ranks) {
    ExpertSetup setup = options.setup;
    setup.problem.ranks = ranks;
    const double needed = static_cast<double>(workloads::memory_needed(setup)) / 1e9;
    const double there = available_gbytes();
    if (needed > there) {
      throw std::runtime_error(
          fmt::format("{} ranks would need about {:.0f} GB of memory, and {:.1f} are free: take "
                      "fewer --tokens or --ranks",
                      ranks, needed, there));
    }
  }
}

// Adds a run in virtual time to the row. That the run broke off is noted in the row and is no error
// of the command yet: without an order anything may happen, and run() decides.
void run_virtual(const Options& options, const ExpertSetup& setup, ExpertRow& row) {
  const auto run = unwrap(workloads::VirtualRun::create(ground_of(options, setup.problem.ranks)));
  if (const auto done = run->run(maker(setup), true); !done) {
    row.error = done.error().message;
  }
  for (std::uint32_t rank = 0; rank < setup.problem.ranks; ++rank) {
    row.all.add(dynamic_cast<workloads::ExpertRank&>(run->worker(rank)).result());
  }
  row.packets = run->counters();
}

// Adds a run over rings to the row. A rank that has failed has a result all the same: what it
// counted until then is added like any other's.
void run_in_real_time(const Options& options, const ExpertSetup& setup, ExpertRow& row) {
  LiveJob job{.command = "weft ep-perf",
              .ranks = setup.problem.ranks,
              .through_weftd = options.through_weftd,
              .topology = options.topology,
              .faults = options.faults,
              .seed = setup.problem.seed,
              .dilation = options.dilation,
              .make = maker(setup),
              .result_bytes = sizeof(PlainResult),
              .collect = {}};
  job.collect = [](std::uint32_t, workloads::Worker& worker,
                   const workloads::PacketCounters& packets, std::span<std::byte> out) {
    const PlainResult result =
        plain(dynamic_cast<workloads::ExpertRank&>(worker).result(), packets);
    std::memcpy(out.data(), &result, sizeof result);
  };
  std::vector<std::byte> results;
  if (!run_live(job, results)) {
    row.error = "a rank has failed";
  }
  for (std::uint32_t rank = 0; rank < setup.problem.ranks; ++rank) {
    PlainResult one;
    std::memcpy(&one, results.data() + rank * sizeof one, sizeof one);
    add(one, row);
  }
}

int run(const Options& options) {
  if (options.asks_rings && options.setup.mode != workloads::ExpertMode::normal) {
    complain("weft ep-perf: --chunk and --ring need --mode normal\n");
    return kUsage;
  }
  if (!options.path_selector.empty()) {
    if (const auto known = srd::parse_path_selector(options.path_selector); !known) {
      complain("weft ep-perf: --path-selector: {}\n", known.error().message);
      return kUsage;
    }
  }
  std::vector<Ordering> orders;
  for (std::size_t i = 0; i < std::size(workloads::kOrderingNames); ++i) {
    // Orders are named in the order of the enumeration.
    if (options.order == "all" || options.order == workloads::kOrderingNames[i]) {
      orders.push_back(static_cast<Ordering>(i));
    }
  }
  for (const std::uint32_t ranks : options.ranks) {
    ExpertSetup setup = options.setup;
    setup.problem.ranks = ranks;
    // All before any runs: a table must not end with a mistake of the command line.
    if (const std::string mistake = mistake_in(setup); !mistake.empty()) {
      complain("weft ep-perf: {}\n", mistake);
      return kUsage;
    }
  }
  check_memory(options);
  if (!options.real_time) {
    for (const std::uint32_t ranks : options.ranks) {
      (void)unwrap(workloads::VirtualRun::create(ground_of(options, ranks)));
    }
  }
  if (!options.json) {
    fmt::print("{}", expert_head(options.setup, options.real_time));
    flush_output();
  }
  bool good = true;
  // A run without an order went wrong, which is worth a sentence at the end.
  bool lesson = false;
  for (const std::uint32_t ranks : options.ranks) {
    for (const Ordering ordering : orders) {
      ExpertRow row;
      row.setup = options.setup;
      row.setup.problem.ranks = ranks;
      row.setup.ordering = ordering;
      options.real_time ? run_in_real_time(options, row.setup, row)
                        : run_virtual(options, row.setup, row);
      fmt::print("{}", options.json ? expert_json(row, options.real_time) : expert_line(row));
      flush_output();
      // Among all orders, `none` is there to show what goes wrong without one. Asked for by its
      // name it has to be right, as any other.
      const bool is_wrong = row.all.wrong != 0;
      const bool expected = ordering == Ordering::none && options.order == "all";
      lesson = lesson || (is_wrong && ordering == Ordering::none);
      good = good && (!is_wrong || expected) && row.error.empty() && row.all.ordering.stray == 0;
      if (!row.error.empty()) {
        complain("weft ep-perf: {}: {}\n", workloads::kOrderingNames[static_cast<int>(ordering)],
                 row.error);
      }
    }
  }
  if (lesson && !options.json) {
    fmt::print(
        "# none: a counter overtook the tokens that it counts, and what was read was not there "
        "yet.\n");
  }
  return good ? kSuccess : kFailure;
}

// What a layer is given to do.
void add_problem_options(CLI::App& command, Options& options) {
  workloads::ExpertProblem& problem = options.setup.problem;
  command.add_option("--tokens", problem.tokens, "Tokens of each rank")
      ->check(CLI::Range(1U, 4096U))
      ->capture_default_str();
  command.add_option("--hidden", problem.hidden, "Columns of a token")
      ->check(CLI::Range(128U, 65536U))
      ->capture_default_str();
  command.add_option("--topk", problem.topk, "Experts that a token goes to")
      ->check(CLI::Range(1U, 16U))
      ->capture_default_str();
  command.add_option("--experts", problem.experts, "Experts, shared evenly by the ranks")
      ->check(CLI::Range(2U, 65536U))
      ->capture_default_str();
  command
      .add_option("--groups", problem.groups,
                  "Ranks that the experts of a token are on, at most; 0: any number")
      ->check(CLI::Range(0U, 64U))
      ->capture_default_str();
  command.add_option("--dtype", options.precision, "Of dispatches; combines are bf16")
      ->check(CLI::IsMember({"fp8", "bf16"}))
      ->capture_default_str();
  command.add_option("--skew", problem.skew, "Exponent of Zipf's law of experts; 0: all are alike")
      ->check(real_range(0.0, 10.0))
      ->capture_default_str();
}

}  // namespace

void register_ep_perf(CLI::App& program, Work& work) {
  CLI::App* const command = add_command(program, "ep-perf");
  auto options = std::make_shared<Options>();
  command->add_option("-N,--ranks", options->ranks, "Ranks; several numbers: one run for each")
      ->delimiter(',')
      ->check(CLI::Range(2U, 64U))
      ->capture_default_str();
  command
      ->add_option("--mode", options->mode,
                   "ll: each token straight to its experts; normal: once to each rank, in chunks")
      ->check(CLI::IsMember({"ll", "normal"}))
      ->capture_default_str();
  add_problem_options(*command, *options);
  CLI::Option* const chunk =
      command
          ->add_option("--chunk", options->setup.chunk, "Tokens of one write, with --mode normal")
          ->check(CLI::Range(1U, 4096U))
          ->capture_default_str();
  CLI::Option* const ring =
      command
          ->add_option("--ring", options->setup.ring,
                       "Tokens for which there is room between two ranks, with --mode normal; "
                       "default: eight chunks")
          ->check(CLI::Range(1U, 65536U));
  command
      ->add_option("--order", options->order,
                   "When a counter is believed: count, sequence, strong, none; all: each in turn")
      ->check(CLI::IsMember({"all", "count", "sequence", "strong", "none"}))
      ->capture_default_str();
  command
      ->add_option("--rounds", options->setup.rounds, "Rounds that count, after one that does not")
      ->check(CLI::Range(1U, kMaxRounds))
      ->capture_default_str();
  CLI::Option* const real = command->add_flag("--real-time", options->real_time,
                                              "Ranks are processes of this machine, over rings");
  command->add_flag("--through-weftd", options->through_weftd, "Every packet passes weftd")
      ->needs(real);
  command->add_option("--dilation", options->dilation, "Seconds here per second in the network")
      ->needs(real)
      ->check(real_range(0.001, 1e6));
  command->add_option("--rate", options->rate, "Of the links, without --topology")
      ->excludes(real)
      ->capture_default_str();
  command->add_option("--path-selector", options->path_selector, "How the transport chooses paths")
      ->excludes(real);
  command->add_option("--topology", options->topology, "File that describes the network")
      ->check(CLI::ExistingFile);
  command->add_option("--fault", options->faults, "As in `weft fault --help`")
      ->allow_extra_args(false);
  command
      ->add_option("--seed", options->setup.problem.seed, "Seed of everything that is drawn by lot")
      ->capture_default_str();
  command->add_flag("--json", options->json, "One JSON object per line");
  command->callback([&work, options, chunk, ring] {
    options->setup.mode =
        options->mode == "ll" ? workloads::ExpertMode::low_latency : workloads::ExpertMode::normal;
    options->asks_rings = chunk->count() + ring->count() != 0;
    if (ring->count() == 0) {
      options->setup.ring = kChunksOfARing * options->setup.chunk;
    }
    options->setup.problem.precision =
        options->precision == "fp8" ? workloads::Precision::fp8 : workloads::Precision::bf16;
    work = [options] { return run(*options); };
  });
}

}  // namespace weft::cli
