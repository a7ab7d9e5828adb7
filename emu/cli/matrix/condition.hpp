// Owns the bad conditions of a network under which `weft matrix` runs a command, as data.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace weft::cli {

struct Condition {
  std::string name;
  std::string about;                  // what it is
  std::string shows;                  // which mistakes
  std::string topology{};             // the text of a file; {hosts}: how many; empty: ideal
  std::string topology_file{};        // the user's, instead of a text
  std::vector<std::string> faults{};  // as `weft run --fault` takes them
  // As --kill and --stop take them; {last} stands for the last host. The programs that are left
  // when one was killed may fail, but must end, and by itself.
  std::vector<std::string> kills{};
  std::vector<std::string> stops{};
  std::string late_receives{};
  bool through_weftd = false;

  // It makes no sense with a single host.
  [[nodiscard]] bool needs_peer() const { return !kills.empty() || !stops.empty(); }
};

[[nodiscard]] const std::vector<Condition>& all_conditions();
// Null: there is none of that name.
[[nodiscard]] const Condition* find_condition(std::string_view name);

// The file for a network of so many hosts.
[[nodiscard]] std::string topology_text(const Condition& condition, std::size_t hosts);
// What is to happen to a program, with the last host's name for {last}.
[[nodiscard]] std::string of_the_last_host(const std::string& mishap, std::size_t hosts);
// What `weft run` is told of the condition, beside the topology.
[[nodiscard]] std::vector<std::string> run_options(const Condition& condition, std::size_t hosts);

}  // namespace weft::cli
