// Owns what the steps of a run say together: how long they took, and to what the time was lost.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "integration/workloads/step_rank.hpp"

namespace weft::workloads {

// Of all ranks: from when the last one ended the step before until the last one ended this one.
struct StepTime {
  double all_ms = 0;
  double computing_ms = 0;  // average of the ranks
  double slowest_ms = 0;    // what the slowest rank computed longer than that
  // What is left is the network's: collectives that nothing hid.
  [[nodiscard]] double network_ms() const { return all_ms - computing_ms - slowest_ms; }
};

// Steps that all ranks have ended. Ranks' records in their order.
[[nodiscard]] std::vector<StepTime> step_times(std::span<const std::vector<StepRecord>> ranks);

struct StepSummary {
  double p50_ms = 0;
  double p99_ms = 0;
  double max_ms = 0;
  double computing = 0;  // shares of all time
  double slowest = 0;
  double network = 0;
};
[[nodiscard]] StepSummary summarise(std::span<const StepTime> steps);

// One run, as it is shown.
struct StepSeries {
  std::string name;
  std::vector<StepTime> steps;
  std::string end;  // why it broke off; empty: it did not
};

// A row of blocks, each as high as its step was long; `top_ms` is a full one.
[[nodiscard]] std::string step_bars(std::span<const StepTime> steps, double top_ms);
// A page that needs no other file: for each run its steps as bars, all in the same scale.
[[nodiscard]] std::string step_page(const std::string& title, std::span<const StepSeries> all);

}  // namespace weft::workloads
