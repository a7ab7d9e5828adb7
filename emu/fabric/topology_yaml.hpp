// Owns topology files: YAML shaped like containerlab's (name, topology: kinds, nodes, links), or a
// generator with its numbers. emu/fabric/topology.schema.json describes the same to editors.
#pragma once

#include <string>

#include "emu/fabric/generators.hpp"
#include "emu/fabric/topology.hpp"
#include "emu/fabric/yaml_reader.hpp"

namespace weft::fabric {

// Reads a whole file; `directory` is where relative names of other files start.
[[nodiscard]] Result<Topology> read_topology(const std::string& file_name, const std::string& text,
                                             const std::string& directory);
[[nodiscard]] Result<Topology> read_topology_file(const std::string& path);
// Reads the mapping under a key `topology`. On failure the YamlFile of `map` has the error.
[[nodiscard]] Topology read_topology_map(YamlMap& map, const std::string& directory);

struct Fault;
// Reads one fault of a list (see docs/experiments.md for the keys). What its numbers mean together
// is checked by Fabric::apply().
[[nodiscard]] Fault read_fault(YamlFile& file, const YAML::Node& node, const std::string& path);

// The file that read_topology() turns back into this topology: nodes and links, one by one.
[[nodiscard]] std::string write_topology(const Topology& topology);

}  // namespace weft::fabric
