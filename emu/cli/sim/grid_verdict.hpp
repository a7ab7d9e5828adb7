// Owns the judgement of a grid: what its runs say about the policy that is judged.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "emu/sim/grid.hpp"

namespace weft::cli {

// The line of JSON of one run (docs/json.md), made from what run_job() gives.
[[nodiscard]] nlohmann::ordered_json grid_line(const sim::GridCell& cell, const std::string& policy,
                                               const nlohmann::ordered_json& run);

// One metric of one cell, over all policies. Lower is better in every metric.
struct GridComparison {
  const sim::GridCell* cell = nullptr;
  std::string metric;
  double value = 0;  // of the judged policy; infinite if a flow has not finished
  double best = 0;   // the least of all policies'
  std::string best_policy;
  std::vector<double> values;  // of all policies, in the order of the grid
  [[nodiscard]] double of_best() const { return best > 0 ? value / best : 1; }
};

// Whether a demand of the grid file holds: `met` of `cells` values are within the limit.
struct GridVerdict {
  std::string what;
  std::size_t cells = 0;
  std::size_t met = 0;
  double worst = 0;
  std::string worst_cell;
  std::string limit;
  bool holds = true;  // never without cells
};

struct GridJudgement {
  std::vector<GridComparison> comparisons;
  std::vector<GridVerdict> verdicts;
  std::size_t unfinished = 0;  // runs in which a flow had not ended at the time limit
  std::size_t failed = 0;      // runs without a result
};

// `lines`: runs of `cells`. Only complete cells are compared: those that all policies have run.
[[nodiscard]] GridJudgement judge_grid(const sim::Grid& grid,
                                       const std::vector<sim::GridCell>& cells,
                                       const std::vector<nlohmann::ordered_json>& lines);

}  // namespace weft::cli
