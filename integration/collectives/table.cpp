// Owns the layout of the table, with nccl-tests' columns: algorithm bandwidth is bytes over time,
// bus bandwidth corrects it by how often each byte crosses a link.
#include "integration/collectives/table.hpp"

#include <algorithm>
#include <cstdio>

namespace weft::collectives {
namespace {

// For which operations nccl-tests fills the column of the root.
bool has_root(NcclOperation operation) {
  return operation == NcclOperation::broadcast || operation == NcclOperation::reduce ||
         operation == NcclOperation::gather || operation == NcclOperation::scatter;
}

std::string formatted(const char* format, auto... values) {
  char text[160];
  (void)std::snprintf(text, sizeof text, format, values...);
  return text;
}

}  // namespace

void Table::head() const {
  if (options_.json) {
    return;
  }
  std::printf("# weft nccl-perf: %s, %u ranks, %u channels, %s, %s, plugin %s (v%d)\n",
              to_string(options_.operation), options_.ranks, options_.channels,
              kAlgorithmNames[static_cast<std::size_t>(options_.algorithm)],
              kProtocolNames[static_cast<std::size_t>(options_.protocol)], plugin_.c_str(),
              version_);
  std::printf("# minBytes %zu maxBytes %zu step: %s warmup iters: %u iters: %u validation: %d\n#\n",
              options_.smallest, options_.largest,
              options_.step != 0 ? formatted("%zu(bytes)", options_.step).c_str()
                                 : formatted("%g(factor)", options_.factor).c_str(),
              options_.warm_up, options_.iterations, options_.check ? 1 : 0);
  std::printf("# %10s  %12s  %8s  %6s  %6s           out-of-place                       in-place\n",
              "", "", "", "", "");
  std::printf("# %10s  %12s  %8s  %6s  %6s  %7s  %6s  %6s %6s  %7s  %6s  %6s %6s\n", "size",
              "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong", "time", "algbw",
              "busbw", "#wrong");
  std::printf("# %10s  %12s  %8s  %6s  %6s  %7s  %6s  %6s %6s  %7s  %6s  %6s %6s\n", "(B)",
              "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(GB/s)", "(GB/s)",
              "");
  (void)std::fflush(stdout);
}

double Table::bandwidth(const Problem& problem, const Measured& one) const {
  const Counts counts = counts_of(problem);
  // Of a hypercube nccl-tests counts what moves, else the larger buffer.
  const std::size_t elements = problem.operation == NcclOperation::hypercube
                                   ? counts.send * (problem.ranks - 1)
                                   : std::max(counts.send, counts.receive);
  const auto bytes = static_cast<double>(elements * problem.element);
  return one.microseconds > 0 ? bytes / one.microseconds / 1000 : 0;
}

std::string Table::cells(const Problem& problem, const Measured& one) const {
  if (!one.valid) {
    return formatted("  %7s  %6s  %6s %6s", "N/A", "N/A", "N/A", "N/A");
  }
  const double algorithm = bandwidth(problem, one);
  const double time = one.microseconds;
  const std::string wrong =
      options_.check ? formatted("%llu", static_cast<unsigned long long>(one.wrong)) : "N/A";
  return formatted(time >= 10000 ? "  %7.0f"
                   : time >= 100 ? "  %7.1f"
                                 : "  %7.2f",
                   time) +
         formatted("  %6.2f  %6.2f %6s", algorithm,
                   algorithm * bus_factor(problem.operation, problem.ranks), wrong.c_str());
}

void Table::print_json(const Problem& problem, const Measured& one, bool in_place) const {
  const double algorithm = bandwidth(problem, one);
  std::printf(
      "{\"nccl_perf\": true, \"op\": \"%s\", \"ranks\": %u, \"channels\": %u, \"plugin\": \"%s\", "
      "\"api\": %d, \"algo\": \"%s\", \"proto\": \"%s\", \"size\": %zu, \"type\": \"%s\", "
      "\"redop\": \"%s\", \"in_place\": %s, "
      "\"time_us\": %.3f, \"algbw\": %.4f, \"busbw\": %.4f, \"wrong\": %llu}\n",
      to_string(problem.operation), problem.ranks, problem.channels, plugin_.c_str(), version_,
      kAlgorithmNames[static_cast<std::size_t>(problem.algorithm)],
      kProtocolNames[static_cast<std::size_t>(problem.protocol)], problem.bytes,
      kTypeNames[static_cast<std::size_t>(options_.type)],
      kReductionNames[static_cast<std::size_t>(options_.reduction)], in_place ? "true" : "false",
      one.microseconds, algorithm, algorithm * bus_factor(problem.operation, problem.ranks),
      static_cast<unsigned long long>(one.wrong));
}

void Table::row(const Problem& problem, const Measured& out_of_place, const Measured& in_place) {
  for (const Measured* one : {&out_of_place, &in_place}) {
    wrong_ += one->wrong;
    if (one->valid) {
      bus_sum_ += bandwidth(problem, *one) * bus_factor(problem.operation, problem.ranks);
      ++bus_count_;
    }
    if (options_.json && one->valid) {
      print_json(problem, *one, one == &in_place);
    }
  }
  if (!options_.json) {
    const auto index = static_cast<std::size_t>(options_.reduction);
    std::printf("%12zu  %12zu  %8s  %6s  %6d%s%s\n", problem.bytes, counts_of(problem).shown,
                kTypeNames[static_cast<std::size_t>(options_.type)],
                is_reduction(problem.operation) ? kReductionNames[index] : "none",
                has_root(problem.operation) ? static_cast<int>(problem.root) : -1,
                cells(problem, out_of_place).c_str(), cells(problem, in_place).c_str());
  }
  (void)std::fflush(stdout);
}

void Table::tail() const {
  if (!options_.json) {
    std::printf("# Out of bounds values : %llu %s\n# Avg bus bandwidth    : %g\n",
                static_cast<unsigned long long>(wrong_), wrong_ == 0 ? "OK" : "FAILED",
                bus_count_ == 0 ? 0 : bus_sum_ / bus_count_);
    (void)std::fflush(stdout);
  }
}

}  // namespace weft::collectives
