// Owns how command lines name programs: several commands with colons between them, and what is to
// happen to the programs of a host while they run.
#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "emu/launch/program_group.hpp"
#include "srd/base/result.hpp"

namespace weft::cli {

using Words = std::vector<std::string>;

inline constexpr std::size_t kMaxHosts = 254;  // of a network

// `a b : c d` are two commands. `after`: the words after the dashes, which are taken as they are.
// An empty command is an error.
[[nodiscard]] Result<std::vector<Words>> split_commands(Words words, std::span<char* const> after);

// What --kill and --stop do: a program is killed, or stopped for a while. Times count from the
// start of that program.
struct Mishap {
  std::string name;  // "h2": all programs of that host; "h2.1": one of several
  std::chrono::milliseconds at{};
  std::chrono::milliseconds lasts{};  // 0: for ever, it is killed

  [[nodiscard]] bool befalls(const std::string& program) const {
    return program == name || program.starts_with(name + ".");
  }
};

[[nodiscard]] Result<Mishap> parse_kill(const std::string& text);  // h2@200ms
[[nodiscard]] Result<Mishap> parse_stop(const std::string& text);  // h2@100ms+50ms

// What befalls the program of that name.
[[nodiscard]] std::vector<launch::TimedSignal> signals_for(const std::string& program,
                                                           const std::vector<Mishap>& mishaps);

// "20ms", a minute at most.
[[nodiscard]] Result<std::chrono::microseconds> parse_time(const std::string& text);

}  // namespace weft::cli
