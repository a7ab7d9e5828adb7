// Owns what is known of a cell that has ended, and what follows from it.
//
// The facts have been gathered by others, all that is read here is events.jsonl: so a test can ask
// about every combination.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "emu/cli/matrix/condition.hpp"

namespace weft::cli {

enum class Verdict : std::uint8_t { not_run, skipped, green, red };

// How a program ended, as `weft run` writes it down.
struct NotedEnd {
  std::string name;
  int code = 0;
  int signal = 0;        // that ended it
  bool killed = false;   // by the condition
  bool stopped = false;  // for a while, by the condition
};

// Of events.jsonl, which a run leaves; none where there is no such file.
[[nodiscard]] std::vector<NotedEnd> read_ends(const std::string& events);

struct CellEnd {
  std::vector<NotedEnd> programs{};
  int code = 0;  // of `weft run`
  std::chrono::seconds timeout{};
  bool timed_out = false;
  bool said_too_much = false;
  bool interrupted = false;
};

struct Judgement {
  Verdict verdict = Verdict::not_run;
  std::string reason{};  // empty: green
};

[[nodiscard]] Judgement judge(const Condition& condition, const CellEnd& end);

}  // namespace weft::cli
