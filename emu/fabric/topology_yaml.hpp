// Owns topology files: YAML shaped like containerlab's (name, topology: kinds, nodes, links), or a
// generator with its numbers. emu/fabric/topology.schema.json describes the same to editors.
#pragma once

#include <functional>
#include <string>

#include "emu/fabric/generators.hpp"
#include "emu/fabric/topology.hpp"
#include "emu/fabric/yaml_reader.hpp"

namespace weft::fabric {

// Reads a whole file; `directory` is where relative names of other files start.
[[nodiscard]] Result<Topology> read_topology(const std::string& file_name, const std::string& text,
                                             const std::string& directory);
[[nodiscard]] Result<Topology> read_topology_file(const std::string& path);

// For files that say more of their nodes than a topology has.
struct NodeKeys {
  // Asks a mapping for those keys: that of `defaults` first, with no name, then for each node that
  // of its kind, if it has one, and its own. A node that names no kind is a host.
  std::function<void(const std::string& node, YamlMap& keys, const YAML::Node& where)> read;
};
// Reads the mapping under a key `topology`. On failure the YamlFile of `map` has the error. With
// `more`, hosts may lack links if there are none at all.
[[nodiscard]] Topology read_topology_map(YamlMap& map, const std::string& directory,
                                         const NodeKeys* more = nullptr);

struct Fault;
// Reads one fault of a list (see docs/experiments.md for the keys). What its numbers mean together
// is checked by Fabric::apply().
[[nodiscard]] Fault read_fault(YamlFile& file, const YAML::Node& node, const std::string& path);

// The file that read_topology() turns back into this topology: nodes and links, one by one.
[[nodiscard]] std::string write_topology(const Topology& topology);

}  // namespace weft::fabric
