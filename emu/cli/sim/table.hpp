// Owns the tables in which people read the results of simulations.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "emu/cli/sim/runner.hpp"

namespace weft::cli {

// What the last column says of a run's bounds: "ok", the first that was missed, or that frames are
// unaccounted for; "-" where nothing was asked of it.
[[nodiscard]] std::string verdict_on(const nlohmann::ordered_json& run);
// For a job with "error" nothing is printed: the error was told already.
void print_run(const nlohmann::ordered_json& run);
// One line a run; settings that differ between the jobs get a column.
void print_runs(const std::vector<SimJob>& jobs, const std::vector<nlohmann::ordered_json>& runs);

}  // namespace weft::cli
