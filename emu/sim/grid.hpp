// Owns evaluation grids: files that describe many scenarios by a few lists, of which policies (sets
// of transport settings) are compared. Half of the scenarios are kept back: a policy is tuned on
// one half and judged on the other.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "emu/sim/scenario.hpp"

namespace weft::sim {

// Settings that compete: each cell runs once with every policy.
struct GridPolicy {
  std::string name;
  Settings set;
};

// One scenario, which every policy runs: one combination of a workload, a point of it, a topology
// and a condition.
struct GridCell {
  std::string name;  // workload/point/topology/condition
  std::string workload;
  std::string point;
  std::string topology;
  std::string condition;
  std::string half;                  // tune or held-out
  std::vector<std::string> metrics;  // by which policies are compared: those of kGridMetrics
  bool small_flows = false;          // whether its small flows run under load
  std::string text;                  // the scenario as YAML
  Settings set;                      // what the condition changes in it
};

// A combination that makes no scenario, because the topology lacks a word that the workload or the
// condition uses. Reported, so that nobody takes the grid for complete.
struct GridGap {
  std::string name;
  std::string reason;
};

// What has to hold on the half that is kept back. `measure` is one of kGridMeasures.
struct GridDemand {
  std::string what;
  std::string measure;
  std::vector<std::string> conditions;  // whose cells count; empty: all cells
  double at_most = 0;
  double in_share = 1;  // of the cells
};

struct Grid {
  std::string title;
  std::uint64_t seed = 1;
  std::vector<GridPolicy> policies;
  std::vector<GridCell> cells;
  std::vector<GridGap> gaps;
  std::vector<GridDemand> must;
};

inline constexpr const char* kGridMetrics[] = {"tail", "p50", "p99", "p50_slowdown",
                                               "p99_slowdown"};
inline constexpr const char* kGridMeasures[] = {"of_best", "of_ideal", "small_slowdown",
                                                "timeouts"};
inline constexpr const char* kHalves[] = {"tune", "held-out"};

// FNV-1a with 64 bits, over a cell's name. Its lowest bit decides the cell's half: a cell stays in
// its half when others are added to the grid, and other programs can compute it.
[[nodiscard]] std::uint64_t fnv1a(const std::string& text);

// `file_name` is only for messages. Errors name the first mistake with its line.
[[nodiscard]] Result<Grid> read_grid(const std::string& file_name, const std::string& text);

// `count` of the cells, drawn by lot from `seed`, in the order of the grid; all cells if there are
// not more.
[[nodiscard]] std::vector<GridCell> sample(const std::vector<GridCell>& cells, std::size_t count,
                                           std::uint64_t seed);

}  // namespace weft::sim
