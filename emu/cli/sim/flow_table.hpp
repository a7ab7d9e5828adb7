// Owns the export of single flows.
#pragma once

#include <string>

#include "emu/sim/scenario.hpp"
#include "emu/sim/simulation.hpp"

namespace weft::cli {

// One line per flow, as JSON objects or as comma-separated values (docs/json.md).
[[nodiscard]] std::string flow_table(const sim::Scenario& scenario,
                                     const sim::Simulation& simulation, bool csv);

}  // namespace weft::cli
