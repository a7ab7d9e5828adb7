// Owns the reading of a scenario's traffic.
#pragma once

#include <string>

#include "emu/fabric/yaml_reader.hpp"
#include "emu/sim/scenario.hpp"

namespace weft::sim {

// Reads the key `traffic` of a scenario whose topology has been read: one group of flows, or a list
// of groups. Files that it names are looked for in `directory`. Mistakes are reported to the file
// of `top`; the scenario is of no use then.
void read_traffic(fabric::YamlMap& top, Scenario& scenario, const std::string& directory);

}  // namespace weft::sim
