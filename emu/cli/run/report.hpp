// Owns what is kept and told of a `weft run`: its directory, the table of its end, its exit code.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "emu/cli/programs.hpp"
#include "emu/launch/host_environment.hpp"
#include "emu/launch/program_group.hpp"
#include "emu/launch/run_directory.hpp"

namespace weft::cli {

struct RunOptions {
  std::size_t copies = 1;
  std::size_t per_host = 1;
  std::size_t nics = 1;
  std::string device = launch::default_device();
  std::string names;
  bool through_weftd = false;
  bool netns = false;
  bool capture = false;
  bool no_prefix = false;
  bool json = false;
  bool quiet = false;
  double grace_seconds = 2;
  int pin = 0;  // 1: yes, -1: no, 0: see is_pinned()
  std::string topology;
  std::vector<std::string> faults;
  std::vector<std::string> kills;
  std::vector<std::string> stops;
  std::string late_receives;
  std::uint64_t seed = 1;
  double dilation = 1;
  std::string out;
  std::vector<std::string> words;
};

// Everything about a run that stays: without a place for it the run goes on all the same, unless
// the place was asked for.
[[nodiscard]] std::optional<launch::RunDirectory> open_directory(const RunOptions& options,
                                                                 const std::vector<Words>& commands,
                                                                 std::size_t hosts);

// JSON goes to stdout, a table for people to stderr: stdout belongs to the programs. `counters`:
// weftd's, or null if it did not answer. One program needs no table.
void report(const std::vector<launch::ProgramEnd>& ends, const nlohmann::json& counters,
            const RunOptions& options);

// The exit code of the first program that failed: the others may have been ended because of it.
[[nodiscard]] int verdict(const std::vector<launch::ProgramEnd>& ends, const RunOptions& options,
                          const std::optional<launch::RunDirectory>& run);

}  // namespace weft::cli
