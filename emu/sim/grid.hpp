// Owns evaluation grids: many scenarios from few lists, half of them kept back.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "emu/sim/scenario.hpp"

namespace weft::sim {

struct GridPolicy {
  std::string name;
  Settings set;
};

// One scenario, which every policy runs.
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

// A cell that cannot exist.
struct GridGap {
  std::string name;
  std::string reason;
};

// What has to hold on the half that is kept back. `measure` is one of kGridMeasures.
struct GridDemand {
  std::string what;
  std::string measure;
  std::vector<std::string> conditions;  // of the cells that count; none: all
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

// The hash that halves go by: FNV-1a with 64 bits.
[[nodiscard]] std::uint64_t fnv1a(const std::string& text);

[[nodiscard]] Result<Grid> read_grid(const std::string& file_name, const std::string& text);

// `count` of the cells, by lot, in their order; all if there are no more.
[[nodiscard]] std::vector<GridCell> sample(const std::vector<GridCell>& cells, std::size_t count,
                                           std::uint64_t seed);

}  // namespace weft::sim
