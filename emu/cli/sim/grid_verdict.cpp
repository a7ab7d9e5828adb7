// Owns the comparison of policies cell by cell, and the demands of the grid file.
#include "emu/cli/sim/grid_verdict.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

namespace weft::cli {
namespace {

using Json = nlohmann::ordered_json;
using sim::GridCell;

constexpr double kNever = std::numeric_limits<double>::infinity();

// The lines of one cell's runs, by the name of the policy.
using Runs = std::map<std::string, const Json*>;

// A run in which a flow has not finished has no metric: it counts as infinitely slow, so it is
// never left out of a comparison that it would lose.
double metric_of(const Json& run, const std::string& metric) {
  const Json& value = run["metrics"][metric];
  return value.is_null() ? kNever : value.get<double>();
}

// The largest slowdown of the flows of up to 8 packets: those that suffer when large flows fill the
// queues. 0 without such flows.
double small_slowdown(const Json& run) {
  double most = 0;
  for (const char* const size : {"packet", "small"}) {
    if (run.contains("slowdown") && run["slowdown"].contains(size)) {
      most = std::max(most, run["slowdown"][size]["max"].get<double>());
    }
  }
  return run["ratio"].is_null() ? kNever : most;
}

// Whether a demand speaks of that cell. Slowdowns of small flows count only where the workload puts
// them under load; the ratio to the ideal only where the cell is about the end of the last flow.
bool counts(const sim::GridDemand& demand, const GridCell& cell) {
  return (demand.conditions.empty() || std::find(demand.conditions.begin(), demand.conditions.end(),
                                                 cell.condition) != demand.conditions.end()) &&
         (demand.measure != "small_slowdown" || cell.small_flows) &&
         (demand.measure != "of_ideal" || cell.metrics.front() == "tail");
}

// Counts one value of one cell.
void take(GridVerdict& verdict, const sim::GridDemand& demand, double value,
          const std::string& cell) {
  ++verdict.cells;
  verdict.met += value <= demand.at_most ? 1 : 0;
  // Also where nothing is missed, the report says where it was closest.
  if (verdict.worst_cell.empty() || value > verdict.worst) {
    verdict.worst = value;
    verdict.worst_cell = cell;
  }
}

GridVerdict verdict_of(const sim::GridDemand& demand, const std::string& judged,
                       const std::vector<GridComparison>& comparisons,
                       const std::map<const GridCell*, Runs>& runs) {
  GridVerdict verdict;
  verdict.what = demand.what;
  verdict.limit = demand.in_share < 1 ? fmt::format("<= {:g} in {:g} % of the cells",
                                                    demand.at_most, demand.in_share * 100)
                                      : fmt::format("<= {:g}", demand.at_most);
  if (demand.measure == "of_best") {
    for (const GridComparison& it : comparisons) {
      if (counts(demand, *it.cell)) {
        take(verdict, demand, it.of_best(), it.cell->name + " " + it.metric);
      }
    }
  } else {
    for (const auto& [cell, of_policy] : runs) {
      const auto run = of_policy.find(judged);
      if (run == of_policy.end() || !counts(demand, *cell)) {
        continue;
      }
      const Json& it = *run->second;
      const double value = demand.measure == "of_ideal"
                               ? (it["ratio"].is_null() ? kNever : it["ratio"].get<double>())
                           : demand.measure == "timeouts" ? it["timeouts"].get<double>()
                                                          : small_slowdown(it);
      take(verdict, demand, value, cell->name);
    }
  }
  // A demand that no cell could miss is not met either: nothing has shown it.
  verdict.holds = verdict.cells > 0 && static_cast<double>(verdict.met) >=
                                           demand.in_share * static_cast<double>(verdict.cells);
  return verdict;
}

}  // namespace

Json grid_line(const GridCell& cell, const std::string& policy, const Json& run) {
  Json line = {{"cell", cell.name},   {"half", cell.half},         {"workload", cell.workload},
               {"point", cell.point}, {"topology", cell.topology}, {"condition", cell.condition},
               {"policy", policy}};
  if (run.contains("error")) {
    line["error"] = run["error"];
    return line;
  }
  // Without all flows there is no metric: those that have finished are the fast ones.
  const bool whole = !run["ratio"].is_null();
  for (const std::string& metric : cell.metrics) {
    const Json& all = run["slowdown"];
    line["metrics"][metric] = !whole || all.is_null()    ? Json(nullptr)
                              : metric == "tail"         ? run["makespan_us"]
                              : metric == "p50"          ? run["p50_fct_us"]
                              : metric == "p99"          ? run["p99_fct_us"]
                              : metric == "p50_slowdown" ? all["all"]["p50"]
                                                         : all["all"]["p99"];
  }
  for (const char* const key :
       {"seed", "flows", "finished", "makespan_us", "p50_fct_us", "p99_fct_us", "ideal_us", "ratio",
        "slowdown", "new_packets", "retransmitted", "timeouts", "digest"}) {
    if (run.contains(key)) {
      line[key] = run[key];
    }
  }
  return line;
}

GridJudgement judge_grid(const sim::Grid& grid, const std::vector<GridCell>& cells,
                         const std::vector<Json>& lines) {
  GridJudgement result;
  std::map<std::string, const GridCell*> by_name;
  for (const GridCell& cell : cells) {
    by_name[cell.name] = &cell;
  }
  std::map<const GridCell*, Runs> runs;
  for (const Json& line : lines) {
    const auto cell = by_name.find(line["cell"].get<std::string>());
    if (cell == by_name.end()) {
      continue;
    }
    if (line.contains("error")) {
      ++result.failed;
      continue;
    }
    result.unfinished += line["ratio"].is_null() ? 1 : 0;
    runs[cell->second][line["policy"].get<std::string>()] = &line;
  }
  const std::string& judged = grid.policies.front().name;
  for (const GridCell& cell : cells) {
    const auto of_cell = runs.find(&cell);
    // The best of some policies may not be the best of all, so a cell with a missing run is left
    // out.
    if (of_cell == runs.end() || of_cell->second.size() < grid.policies.size()) {
      continue;
    }
    for (const std::string& metric : cell.metrics) {
      GridComparison it{
          .cell = &cell, .metric = metric, .best = kNever, .best_policy = {}, .values = {}};
      for (const sim::GridPolicy& policy : grid.policies) {
        const double value = metric_of(*of_cell->second.at(policy.name), metric);
        it.values.push_back(value);
        if (policy.name == judged) {
          it.value = value;
        }
        if (value < it.best) {
          it.best = value;
          it.best_policy = policy.name;
        }
      }
      // Where no policy finishes there is nothing to compare.
      if (std::isfinite(it.best)) {
        result.comparisons.push_back(std::move(it));
      }
    }
  }
  for (const sim::GridDemand& demand : grid.must) {
    result.verdicts.push_back(verdict_of(demand, judged, result.comparisons, runs));
  }
  return result;
}

}  // namespace weft::cli
