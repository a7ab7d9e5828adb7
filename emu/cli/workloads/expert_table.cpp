// Owns the table and the JSON lines of `weft ep-perf`.
//
// A row is a run of one number of ranks under one rule of order; its figures are over all ranks and
// all rounds that count.
#include "emu/cli/workloads/expert_table.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

namespace weft::cli {
namespace {

// The least one of those measured that so large a part of them does not exceed.
double percentile(std::vector<double> samples, double part) {
  if (samples.empty()) {
    return 0;
  }
  const double rank = std::ceil(part * static_cast<double>(samples.size()));
  const auto at = static_cast<std::ptrdiff_t>(rank) - 1;
  std::nth_element(samples.begin(), samples.begin() + at, samples.end());
  return samples[static_cast<std::size_t>(at)];
}

struct Figures {
  double p50_us = 0;
  double p99_us = 0;
  double gbytes_per_s = 0;  // of a rank: what its tokens make, over the median
};

Figures figures(const std::vector<double>& samples, std::uint64_t bytes) {
  Figures one{percentile(samples, 0.5), percentile(samples, 0.99), 0};
  if (one.p50_us > 0) {
    const double each = static_cast<double>(bytes) / static_cast<double>(samples.size());
    one.gbytes_per_s = each / one.p50_us / 1e3;
  }
  return one;
}

const char* name_of(workloads::Ordering ordering) {
  return workloads::kOrderingNames[static_cast<std::size_t>(ordering)];
}

std::string mode_text(const workloads::ExpertSetup& setup) {
  return setup.mode == workloads::ExpertMode::normal
             ? fmt::format("normal (chunks of {} tokens, rings of {})", setup.chunk, setup.ring)
             : "low latency";
}

}  // namespace

std::string expert_head(const workloads::ExpertSetup& setup, bool real_time) {
  const workloads::ExpertProblem& problem = setup.problem;
  return fmt::format(
             "# weft ep-perf: {}, {} tokens a rank, top {} of {} experts{}{}, hidden {}, {} "
             "dispatch, bf16 combine, {} rounds, {} time, seed {}\n",
             mode_text(setup), problem.tokens, problem.topk, problem.experts,
             problem.groups > 0 ? fmt::format(" on {} ranks at most", problem.groups) : "",
             problem.skew > 0 ? fmt::format(" (Zipf {})", problem.skew) : "", problem.hidden,
             workloads::kPrecisionNames[static_cast<std::size_t>(problem.precision)], setup.rounds,
             real_time ? "real" : "virtual", problem.seed) +
         fmt::format("#{:>5} {:>9} |{:^26} |{:^26} |{:>7} {:>7} {:>6} {:>7} |{:>8} {:>8}\n", "", "",
                     "dispatch", "combine", "counters", "deepest", "out of", "sent", "", "") +
         fmt::format(
             "#{:>5} {:>9} |{:>8} {:>8} {:>8} |{:>8} {:>8} {:>8} |{:>8} {:>7} {:>6} {:>7} "
             "|{:>8} {:>8}\n",
             "ranks", "order", "p50 us", "p99 us", "GB/s", "p50 us", "p99 us", "GB/s", "held %",
             "wait", "order%", "again", "checked", "wrong");
}

// In the order of the head above: how long, what the receivers waited for (counters that were held
// back, and for how many writes at the most), what the network did, and whether it was right.
std::string expert_line(const ExpertRow& row) {
  const Figures dispatch = figures(row.all.dispatch_us, row.all.dispatch_bytes);
  const Figures combine = figures(row.all.combine_us, row.all.combine_bytes);
  const workloads::OrderingCounters& counters = row.all.ordering;
  return fmt::format(
      " {:>5} {:>9} |{:>8.1f} {:>8.1f} {:>8.2f} |{:>8.1f} {:>8.1f} {:>8.2f} |{:>8.2f} {:>7} "
      "{:>6.1f} {:>7} |{:>8} {:>8}{}\n",
      row.setup.problem.ranks, name_of(row.setup.ordering), dispatch.p50_us, dispatch.p99_us,
      dispatch.gbytes_per_s, combine.p50_us, combine.p99_us, combine.gbytes_per_s,
      counters.counters == 0
          ? 0.0
          : 100.0 * static_cast<double>(counters.held) / static_cast<double>(counters.counters),
      counters.deepest, 100 * row.packets.reordered_share(), row.packets.retransmitted,
      row.all.checked, row.all.wrong, row.error.empty() ? "" : "  broke off");
}

// By hand, for the number of digits. Only the error can have characters that JSON escapes.
std::string expert_json(const ExpertRow& row, bool real_time) {
  const workloads::ExpertProblem& problem = row.setup.problem;
  const Figures dispatch = figures(row.all.dispatch_us, row.all.dispatch_bytes);
  const Figures combine = figures(row.all.combine_us, row.all.combine_bytes);
  const bool is_normal = row.setup.mode == workloads::ExpertMode::normal;
  return fmt::format(
      "{{\"ep_perf\": true, \"ranks\": {}, \"mode\": \"{}\", \"order\": \"{}\", \"tokens\": {}, "
      "\"hidden\": {}, \"topk\": {}, \"experts\": {}, \"groups\": {}, \"chunk\": {}, \"ring\": {}, "
      "\"dtype\": \"{}\", \"skew\": {}, \"rounds\": "
      "{}, \"real_time\": {}, \"seed\": {}, \"dispatch_p50_us\": {:.3f}, \"dispatch_p99_us\": "
      "{:.3f}, \"dispatch_gbytes_per_s\": {:.4f}, \"combine_p50_us\": {:.3f}, \"combine_p99_us\": "
      "{:.3f}, \"combine_gbytes_per_s\": {:.4f}, \"counters\": {}, \"held\": {}, \"deepest\": {}, "
      "\"reordered_packets\": {}, \"delivered_packets\": {}, \"retransmitted\": {}, \"checked\": "
      "{}, \"wrong\": {}, \"stray\": {}, \"digest\": \"{:016x}\", \"error\": {}}}\n",
      problem.ranks, workloads::kExpertModeNames[static_cast<std::size_t>(row.setup.mode)],
      name_of(row.setup.ordering), problem.tokens, problem.hidden, problem.topk, problem.experts,
      problem.groups, is_normal ? std::to_string(row.setup.chunk) : "null",
      is_normal ? std::to_string(row.setup.ring) : "null",
      workloads::kPrecisionNames[static_cast<std::size_t>(problem.precision)], problem.skew,
      row.setup.rounds, real_time, problem.seed, dispatch.p50_us, dispatch.p99_us,
      dispatch.gbytes_per_s, combine.p50_us, combine.p99_us, combine.gbytes_per_s,
      row.all.ordering.counters, row.all.ordering.held, row.all.ordering.deepest,
      row.packets.reordered, row.packets.delivered, row.packets.retransmitted, row.all.checked,
      row.all.wrong, row.all.ordering.stray, row.all.digest,
      row.error.empty() ? "null" : nlohmann::json(row.error).dump());
}

}  // namespace weft::cli
