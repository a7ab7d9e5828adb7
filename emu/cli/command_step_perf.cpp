// Owns `weft step-perf`: training steps in virtual and in real time.
//
// Without faults of the user's own it also runs some typical ones, so that the first table shows
// what the command is for.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "emu/cli/commands.hpp"
#include "emu/cli/complain.hpp"
#include "emu/cli/help.hpp"
#include "emu/cli/number_checks.hpp"
#include "emu/cli/output.hpp"
#include "emu/cli/unwrap.hpp"
#include "emu/cli/workloads/live.hpp"
#include "emu/cli/write_file.hpp"
#include "emu/fabric/yaml_reader.hpp"
#include "integration/workloads/step_report.hpp"
#include "integration/workloads/virtual_run.hpp"

namespace weft::cli {
namespace {

using workloads::StepSeries;
using workloads::StepSetup;

// In real time a rank hands its steps over through shared memory, in an array of this size.
constexpr std::uint32_t kMaxSteps = 4096;

struct Options {
  StepSetup setup;
  std::string model = "resnet50";
  bool sharded = false;
  double scale = 0.2;
  // PyTorch's default for the gradients of one all-reduce.
  Bytes bucket = 25 << 20;
  double watchdog_s = 10;
  std::vector<std::string> slow;
  bool real_time = false;
  std::string topology;
  std::string rate = "100Gbps";
  std::vector<std::string> faults;
  double dilation = 1;
  std::string report;
  bool json = false;
};

// A rank that computes `factor` times as long.
struct Slow {
  std::uint32_t rank = 0;
  double factor = 1;
};

// RANK@FACTOR
Slow parse_slow(const std::string& text) {
  Slow slow;
  const char* const end = text.data() + text.size();
  const auto rank = std::from_chars(text.data(), end, slow.rank);
  if (rank.ec != std::errc{} || rank.ptr == end || *rank.ptr != '@') {
    throw CLI::ValidationError(text, "say RANK@FACTOR, such as 1@1.3");
  }
  const auto factor = std::from_chars(rank.ptr + 1, end, slow.factor);
  // A number that is none (nan) fails every comparison: so the lower limit is asked for.
  if (factor.ec != std::errc{} || factor.ptr != end || !(slow.factor >= 0.01) ||
      slow.factor > 1000) {
    throw CLI::ValidationError(text, "say RANK@FACTOR, with a factor from 0.01 to 1000");
  }
  return slow;
}

// One run: what is wrong in it, and what came of it.
struct Case {
  std::string name;
  std::vector<std::string> faults;
  std::vector<Slow> slow;
};

// The typical troubles need the links of the default topology, and virtual time, in which they come
// out the same everywhere.
std::vector<Case> cases_of(const Options& options) {
  std::vector<Case> cases = {{"as it is", {}, {}}};
  if (options.faults.empty() && options.slow.empty()) {
    if (!options.real_time && options.topology.empty()) {
      cases.push_back({"slow rank", {}, {{1, 1.2}}});
      cases.push_back({"lossy link", {"link: 'host0->*', loss: 0.02"}, {}});
      cases.push_back({"slow path", {"link: 'tor0->spine*', share: 0.25, rate_factor: 0.1"}, {}});
      cases.push_back(
          {"path dies", {"link: 'tor0->spine*', share: 0.25, down: true, at: 20ms"}, {}});
    }
    return cases;
  }
  Case troubled{"with faults", options.faults, {}};
  for (const std::string& text : options.slow) {
    troubled.slow.push_back(parse_slow(text));
  }
  cases.push_back(std::move(troubled));
  return cases;
}

// Makes a rank; called once for each, in virtual time or in the rank's own process.
auto maker(const StepSetup& setup, const std::vector<Slow>& slow) {
  return [setup, slow](srd::Engine& engine, std::uint32_t rank, workloads::RankPlace& place) {
    StepSetup own = setup;
    own.rank = rank;
    own.place = place;
    for (const Slow& one : slow) {
      own.slowness = one.rank == rank ? one.factor : own.slowness;
    }
    auto worker = std::make_unique<workloads::StepRank>(engine, own);
    // The rank adds what only it knows, such as the key of its memory; the other ranks read it from
    // here.
    place = worker->place();
    return worker;
  };
}

// The ranks' steps in virtual time. A run that broke off is told by the failure that came first.
StepSeries run_virtual(const Options& options, const Case& one) {
  const StepSetup& setup = options.setup;
  workloads::VirtualGround ground{.ranks = setup.ranks,
                                  .rate = options.rate,
                                  .faults = one.faults,
                                  .seed = setup.seed,
                                  // Of virtual time, as the end of a run in which nothing moves any
                                  // more; the watchdog comes first.
                                  .time_limit = "3600s",
                                  .mtu = 8256,
                                  .peer_timeout = "10s"};
  if (!options.topology.empty()) {
    ground.topology = unwrap(fabric::read_text_file(options.topology));
    ground.topology_file = options.topology;
  }
  const auto run = unwrap(workloads::VirtualRun::create(ground));
  const auto done = run->run(maker(setup, one.slow), false);
  std::vector<std::vector<workloads::StepRecord>> records;
  StepSeries series{one.name, {}, done ? "" : done.error().message};
  std::optional<Duration> first;  // failure: the others follow from it
  for (std::uint32_t rank = 0; rank < setup.ranks; ++rank) {
    const auto& worker = dynamic_cast<workloads::StepRank&>(run->worker(rank));
    records.push_back(worker.steps());
    const auto after = worker.failed_after();
    if (after && (!first || *after < *first)) {
      first = after;
      series.end = fmt::format("after {:.3f} s rank {}: {}",
                               static_cast<double>(after->count()) / 1e9, rank, worker.failure());
    }
  }
  series.steps = workloads::step_times(records);
  return series;
}

StepSeries run_in_real_time(const Options& options, const Case& one) {
  const StepSetup& setup = options.setup;
  // Plain values only: it is copied from one process to another through shared memory. On the heap,
  // as it is too large for a stack.
  struct PlainResult {
    std::uint32_t count = 0;
    std::array<workloads::StepRecord, kMaxSteps> records{};
  };
  LiveJob job{.command = "weft step-perf",
              .ranks = setup.ranks,
              .topology = options.topology,
              .faults = one.faults,
              .seed = setup.seed,
              .dilation = options.dilation,
              // The ranks have a watchdog of their own, which can say what hangs. It has to come
              // first.
              .patience = 2 * options.watchdog_s + 10,
              .make = maker(setup, one.slow),
              .result_bytes = sizeof(PlainResult),
              .collect = {}};
  job.collect = [](std::uint32_t, workloads::Worker& worker, const workloads::PacketCounters&,
                   std::span<std::byte> out) {
    const auto& steps = dynamic_cast<workloads::StepRank&>(worker).steps();
    const auto result = std::make_unique<PlainResult>();
    result->count = static_cast<std::uint32_t>(std::min<std::size_t>(steps.size(), kMaxSteps));
    std::copy_n(steps.begin(), result->count, result->records.begin());
    std::memcpy(out.data(), result.get(), sizeof *result);
  };
  std::vector<std::byte> results;
  StepSeries series{one.name, {}, run_live(job, results) ? "" : "a rank has failed"};
  std::vector<std::vector<workloads::StepRecord>> records;
  for (std::uint32_t rank = 0; rank < setup.ranks; ++rank) {
    const auto result = std::make_unique<PlainResult>();
    std::memcpy(result.get(), results.data() + rank * sizeof *result, sizeof *result);
    records.emplace_back(result->records.begin(), result->records.begin() + result->count);
  }
  series.steps = workloads::step_times(records);
  return series;
}

std::string title_of(const Options& options) {
  const StepSetup& setup = options.setup;
  return fmt::format(
      "{} x {}, {} ranks, {}, {} steps: computing {:.2f} ms, {:.1f} MB in {} collectives, jitter "
      "{}, {} time, seed {}",
      options.model, options.scale, setup.ranks, options.sharded ? "sharded" : "ddp", setup.steps,
      static_cast<double>(setup.plan.computing().count()) / 1e6,
      static_cast<double>(setup.plan.communicated()) / 1e6, setup.plan.collectives.size(),
      setup.jitter, options.real_time ? "real" : "virtual", setup.seed);
}

void print_rows(const Options& options, const std::vector<StepSeries>& all) {
  // All bars have the scale of the longest step, so no row can be printed before the last run has
  // ended.
  double top_ms = 0;
  for (const StepSeries& series : all) {
    top_ms = std::max(top_ms, workloads::summarise(series.steps).max_ms);
  }
  for (const StepSeries& series : all) {
    const workloads::StepSummary is = workloads::summarise(series.steps);
    if (options.json) {
      fmt::print(
          "{{\"step_perf\": true, \"case\": \"{}\", \"model\": \"{}\", \"scale\": {}, \"ranks\": "
          "{}, \"sharded\": {}, \"steps\": {}, \"p50_ms\": {:.4f}, \"p99_ms\": {:.4f}, \"max_ms\": "
          "{:.4f}, \"computing\": {:.4f}, \"slowest_rank\": {:.4f}, \"network\": {:.4f}, "
          "\"real_time\": {}, \"seed\": {}, \"ended_well\": {}}}\n",
          series.name, options.model, options.scale, options.setup.ranks, options.sharded,
          series.steps.size(), is.p50_ms, is.p99_ms, is.max_ms, is.computing, is.slowest,
          is.network, options.real_time, options.setup.seed, series.end.empty());
      continue;
    }
    fmt::print(" {:<12} {:>5} {:>9.3f} {:>9.3f} {:>9.3f} |{:>9.1f} {:>9.1f} {:>9.1f} | {}\n",
               series.name, series.steps.size(), is.p50_ms, is.p99_ms, is.max_ms,
               100 * is.computing, 100 * is.slowest, 100 * is.network,
               workloads::step_bars(series.steps, top_ms));
    if (!series.end.empty()) {
      fmt::print("   {}\n", series.end);
    }
  }
  flush_output();
}

int run(Options options) {
  const auto& models = workloads::training_models();
  const auto model = std::find_if(models.begin(), models.end(),
                                  [&](const auto& one) { return one.name == options.model; });
  const auto cases = cases_of(options);
  // Only the last case can name a rank of the user's.
  for (const Slow& one : cases.back().slow) {
    if (one.rank >= options.setup.ranks) {
      complain("weft step-perf: there is no rank {} to be slow\n", one.rank);
      return kUsage;
    }
  }
  options.setup.plan = workloads::plan_step(
      {*model, options.sharded ? workloads::Parallelism::sharded : workloads::Parallelism::ddp,
       options.bucket, options.scale});
  options.setup.watchdog = Duration{static_cast<std::int64_t>(options.watchdog_s * 1e9)};
  if (!options.json) {
    fmt::print("# weft step-perf: {}\n", title_of(options));
    fmt::print("#{:<12} {:>5} {:>9} {:>9} {:>9} |{:>9} {:>9} {:>9} |\n", " run", "steps", "p50 ms",
               "p99 ms", "max ms", "compute%", "slowest%", "network%");
    flush_output();
  }
  std::vector<StepSeries> all;
  for (const Case& one : cases) {
    all.push_back(options.real_time ? run_in_real_time(options, one) : run_virtual(options, one));
  }
  print_rows(options, all);
  if (!options.report.empty()) {
    write_file(options.report, workloads::step_page(title_of(options), all));
    if (!options.json) {
      fmt::print("# picture: {}\n", options.report);
    }
  }
  const bool good =
      std::all_of(all.begin(), all.end(), [](const StepSeries& one) { return one.end.empty(); });
  return good ? kSuccess : kFailure;
}

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const auto& model : workloads::training_models()) {
    names.push_back(model.name);
  }
  return names;
}

}  // namespace

void register_step_perf(CLI::App& program, Work& work) {
  CLI::App* const command = add_command(program, "step-perf");
  auto options = std::make_shared<Options>();
  StepSetup& setup = options->setup;
  command->add_option("-N,--ranks", setup.ranks, "Ranks, each with one GPU")
      ->check(CLI::Range(2U, 64U))
      ->capture_default_str();
  command->add_option("--model", options->model, "What is trained")
      ->check(CLI::IsMember(model_names()))
      ->capture_default_str();
  command->add_option("--scale", options->scale, "Of the model's bytes and times alike")
      ->check(real_range(1e-4, 10.0))
      ->capture_default_str();
  command->add_flag("--sharded", options->sharded,
                    "Gather parameters, and reduce and scatter gradients, layer by layer");
  command->add_option("--bucket", options->bucket, "Bytes of an all-reduce, before --scale")
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/false))
      ->check(CLI::Range(Bytes{1} << 10, Bytes{1} << 30));
  command->add_option("--steps", setup.steps, "Steps of a run")
      ->check(CLI::Range(1U, kMaxSteps))
      ->capture_default_str();
  command->add_option("--jitter", setup.jitter, "Deviation of a rank's computing time, as a share")
      ->check(real_range(0.0, 2.0))
      ->capture_default_str();
  command->add_option("--slow", options->slow, "RANK@FACTOR: that rank computes so much longer")
      ->allow_extra_args(false);
  command
      ->add_option("--watchdog", options->watchdog_s,
                   "Seconds after which a collective that has not ended ends the run")
      ->check(real_range(1e-6, 3600.0))
      ->capture_default_str();
  CLI::Option* const real = command->add_flag("--real-time", options->real_time,
                                              "Ranks are processes of this machine, over rings");
  command->add_option("--dilation", options->dilation, "Seconds here per second in the network")
      ->needs(real)
      ->check(real_range(0.001, 1e6));
  command->add_option("--rate", options->rate, "Of the links, without --topology")
      ->excludes(real)
      ->capture_default_str();
  command->add_option("--topology", options->topology, "File that describes the network")
      ->check(CLI::ExistingFile);
  command->add_option("--fault", options->faults, "As in `weft fault --help`")
      ->allow_extra_args(false);
  command->add_option("--report", options->report, "Write a page with a picture into this file")
      ->type_name("FILE");
  command->add_option("--seed", setup.seed, "Seed of everything that is drawn by lot")
      ->capture_default_str();
  command->add_flag("--json", options->json, "One JSON object per line");
  command->callback([&work, options] { work = [options] { return run(*options); }; });
}

}  // namespace weft::cli
