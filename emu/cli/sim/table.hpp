// Owns the tables in which people read the results of simulations.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "emu/cli/sim/runner.hpp"

namespace weft::cli {

// For a job with "error" nothing is printed: the error was told already.
void print_run(const nlohmann::ordered_json& run);
// One line a run; settings that differ between the jobs get a column.
void print_runs(const std::vector<SimJob>& jobs, const std::vector<nlohmann::ordered_json>& runs);

}  // namespace weft::cli
