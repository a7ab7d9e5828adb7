// Owns the bad conditions of a network under which `weft matrix` runs a command, as data.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace weft::cli {

struct Condition {
  std::string_view name;
  std::string_view about;              // what it is
  std::string_view shows;              // which mistakes
  std::string_view topology = {};      // a file, {hosts} stands for how many; empty: ideal
  std::vector<std::string> faults{};   // as `weft run --fault` takes them
  std::vector<std::string> options{};  // more for `weft run`, {last} stands for the last host
  // The last host dies, and whoever is left may fail, but must end, and by itself.
  bool peer_dies = false;
  bool needs_peer = false;  // makes no sense with a single host
};

[[nodiscard]] const std::vector<Condition>& all_conditions();
// Null: there is none of that name.
[[nodiscard]] const Condition* find_condition(std::string_view name);

// The file for a network of so many hosts.
[[nodiscard]] std::string topology_text(const Condition& condition, std::size_t hosts);
// What `weft run` is told of the condition, beside the topology.
[[nodiscard]] std::vector<std::string> run_options(const Condition& condition, std::size_t hosts);

}  // namespace weft::cli
