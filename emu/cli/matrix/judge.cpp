// Owns the verdict on a cell.
#include "emu/cli/matrix/judge.hpp"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <nlohmann/json.hpp>

#include "emu/cli/matrix/cell_log.hpp"

namespace weft::cli {
namespace {

constexpr int kShellSignal =
    128;  // a shell's exit code is this and the signal that ended its child

// The signals that a program gets for its own mistakes.
constexpr std::array kCrashes{SIGQUIT, SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV, SIGSYS};

// A wrapper that reports its child's crash as its own exit code counts; any other high exit code is
// a program's own choice.
bool crashed(const NotedEnd& end) {
  return end.signal != 0 || std::ranges::find(kCrashes, end.code - kShellSignal) != kCrashes.end();
}

std::string said(const NotedEnd& end) {
  return end.signal != 0 ? fmt::format("{}: signal {}", end.name, end.signal)
                         : fmt::format("{}: exit {}", end.name, end.code);
}

// The program whose failure became that of the run, or the run itself.
std::string who_failed(const CellEnd& end) {
  const auto first = std::ranges::find_if(end.programs, [&](const NotedEnd& program) {
    return !program.killed && program.code == end.code;
  });
  return first == end.programs.end() ? fmt::format("weft run: exit {}", end.code) : said(*first);
}

// Where one was killed the others may fail, but each must end by itself, and none by a crash.
Judgement judge_survivors(const CellEnd& end) {
  const auto found = std::ranges::find_if(
      end.programs, [](const NotedEnd& program) { return !program.killed && crashed(program); });
  if (found != end.programs.end()) {
    return {Verdict::red, said(*found)};
  }
  const bool is_theirs = std::ranges::any_of(end.programs, [&](const NotedEnd& program) {
    return !program.killed && program.code == end.code;
  });
  if (end.code != 0 && !is_theirs) {
    return {Verdict::red, fmt::format("weft run: exit {}", end.code)};
  }
  return {Verdict::green};
}

}  // namespace

std::vector<NotedEnd> read_ends(const std::string& events) {
  std::vector<NotedEnd> ends;
  std::ifstream file(events);
  for (std::string line; std::getline(file, line);) {
    const auto event = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (event.is_object() && event.value("event", "") == "end") {
      ends.push_back({event.value("host", ""), event.value("exit_code", 0),
                      event.value("signal", 0), event.value("killed", false),
                      event.value("stopped", false)});
    }
  }
  return ends;
}

// In this order: what the matrix itself did to the cell, then what the condition did, then how the
// programs ended.
Judgement judge(const Condition& condition, const CellEnd& end) {
  if (end.timed_out) {
    return {Verdict::red, fmt::format("hang: not over after {} s", end.timeout.count())};
  }
  if (end.said_too_much) {
    return {Verdict::red, fmt::format("output: more than {} MiB", CellLog::kMax >> 20)};
  }
  if (end.interrupted) {
    return {Verdict::not_run, "interrupted"};
  }
  if (std::ranges::any_of(end.programs, &NotedEnd::killed)) {
    return judge_survivors(end);
  }
  if (end.code != 0) {
    return {Verdict::red, who_failed(end)};
  }
  // What did not happen to a program says nothing about it.
  if (!condition.kills.empty()) {
    return {Verdict::skipped, "nobody was killed: all had ended before"};
  }
  if (!condition.stops.empty() && std::ranges::none_of(end.programs, &NotedEnd::stopped)) {
    return {Verdict::skipped, "nobody was stopped: all had ended before"};
  }
  return {Verdict::green};
}

}  // namespace weft::cli
