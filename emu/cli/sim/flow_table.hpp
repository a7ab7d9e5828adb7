// Owns the export of single flows.
#pragma once

#include <string>

#include "emu/sim/scenario.hpp"
#include "emu/sim/simulation.hpp"

namespace weft::cli {

// One line per flow, in the order of the matrix: JSON objects, or with `csv` comma-separated values
// below a line of names (docs/json.md).
[[nodiscard]] std::string flow_table(const sim::Scenario& scenario,
                                     const sim::Simulation& simulation, bool csv);

}  // namespace weft::cli
