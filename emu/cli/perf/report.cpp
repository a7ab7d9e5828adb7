// Owns the columns of the table of `weft perf`, and the keys of its JSON.
#include "emu/cli/perf/report.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

namespace weft::cli {
namespace {

double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Of one figure of each.
std::vector<double> all(std::span<const PerfResult> results, double PerfResult::*member) {
  std::vector<double> values;
  for (const PerfResult& result : results) {
    values.push_back(result.*member);
  }
  return values;
}

// Of the rounds in which it was measured, if there are any.
std::optional<double> median_of(std::span<const PerfResult> results,
                                std::optional<double> PerfResult::*member) {
  std::vector<double> values;
  for (const PerfResult& result : results) {
    if (const auto& value = result.*member) {
      values.push_back(*value);
    }
  }
  return values.empty() ? std::nullopt : std::optional(median_of(std::move(values)));
}

std::string cell(const std::optional<double>& microseconds) {
  return microseconds ? fmt::format("{:.2f}", *microseconds) : "-";
}

nlohmann::ordered_json json_of(const std::optional<double>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json();
}

}  // namespace

void print_head() {
  fmt::print("{:<6}{:>9}{:>12}{:>12}{:>14}{:>12}{:>10}{:>7}{:>12}\n", "op", "bytes", "p50[us]",
             "p99[us]", "msg/s", "GB/s", "retrans", "paths", "reordered");
}

void print_row(const PerfOptions& options, const PerfCase& one, const PerfResult& result) {
  if (!options.json) {
    fmt::print("{:<6}{:>9}{:>12}{:>12}{:>14.0f}{:>12.3f}{:>10}{:>7}{:>12}{}\n",
               to_string(one.operation), one.size, cell(result.p50_latency_us),
               cell(result.p99_latency_us), result.messages_per_s, result.gbytes_per_s,
               result.retransmitted, result.paths_used, result.out_of_order_packets,
               result.failure == srd::Status::ok ? std::string()
                                                 : fmt::format("  {}", to_string(result.failure)));
    return;
  }
  nlohmann::ordered_json line;
  line["perf"] = true;
  line["io"] = options.io;
  // What packets have passed. Faults without a topology make `weftd` model a star.
  line["network"] = options.io != "ring"        ? "none"
                    : !options.topology.empty() ? options.topology
                    : !options.faults.empty()   ? "star"
                    : options.through_weftd     ? "weftd"
                                                : "ideal";
  line["op"] = to_string(one.operation);
  line["size"] = one.size;
  line["latency_us_p50"] = json_of(result.p50_latency_us);
  line["latency_us_p99"] = json_of(result.p99_latency_us);
  line["msgs_per_s"] = result.messages_per_s;
  line["gbytes_per_s"] = result.gbytes_per_s;
  line["paths_used"] = result.paths_used;
  line["out_of_order_packets"] = result.out_of_order_packets;
  line["retransmitted"] = result.retransmitted;
  line["status"] = to_string(result.failure);
  fmt::print("{}\n", line.dump());
}

// fi_pingpong tells a mean, which stands where ours have the median, and nothing of the network.
void print_peer(const PerfOptions& options, const PeerRow& row) {
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

// Each number is a median of its own, so the result need not be any one round. What went wrong in
// any round counts: sums of losses, and the last failure.
PerfResult median(std::span<const PerfResult> results) {
  PerfResult result = results.front();
  result.p50_latency_us = median_of(results, &PerfResult::p50_latency_us);
  result.p99_latency_us = median_of(results, &PerfResult::p99_latency_us);
  result.messages_per_s = median_of(all(results, &PerfResult::messages_per_s));
  result.gbytes_per_s = median_of(all(results, &PerfResult::gbytes_per_s));
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

// Pairs run at the same time, so what they move adds up; a latency is told of the pair that is
// worst off.
PerfResult sum_of(std::span<const PerfResult> pairs) {
  PerfResult sum = pairs.front();
  for (const PerfResult& one : pairs.subspan(1)) {
    sum.messages_per_s += one.messages_per_s;
    sum.gbytes_per_s += one.gbytes_per_s;
    sum.retransmitted += one.retransmitted;
    sum.out_of_order_packets += one.out_of_order_packets;
    sum.paths_used = std::max(sum.paths_used, one.paths_used);
    sum.p50_latency_us = std::max(sum.p50_latency_us, one.p50_latency_us);
    sum.p99_latency_us = std::max(sum.p99_latency_us, one.p99_latency_us);
    sum.failure = one.failure != srd::Status::ok ? one.failure : sum.failure;
  }
  return sum;
}

}  // namespace weft::cli
