// Owns reading the words that command lines have for programs.
#include "emu/cli/programs.hpp"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "emu/fabric/yaml_reader.hpp"

namespace weft::cli {
namespace {

// Longer than any run; more is taken for a typing mistake.
constexpr std::chrono::hours kMaxTime{24};

// Rounded up, so that a short time never becomes none.
std::optional<std::chrono::milliseconds> milliseconds_of(std::string_view text) {
  const auto time = fabric::parse_duration(text);
  if (!time || *time < Duration::zero() || *time > kMaxTime) {
    return std::nullopt;
  }
  return std::chrono::ceil<std::chrono::milliseconds>(*time);
}

}  // namespace

// A `:` without a command on each side is a mistake, and no empty program.
Result<std::vector<Words>> split_commands(Words words, std::span<char* const> after) {
  words.insert(words.end(), after.begin(), after.end());
  std::vector<Words> commands(1);
  for (const std::string& word : words) {
    if (word == ":") {
      commands.emplace_back();
    } else {
      commands.back().push_back(word);
    }
  }
  if (std::ranges::any_of(commands, &Words::empty)) {
    return fail(ErrorCode::invalid_argument,
                "give a command after `--`, and one on each side of every `:`");
  }
  return commands;
}

Result<std::chrono::microseconds> parse_time(const std::string& text) {
  const auto time = fabric::parse_duration(text);
  if (!time || *time < Duration::zero() || *time > std::chrono::minutes{1}) {
    return fail(ErrorCode::invalid_argument,
                fmt::format("'{}' is no time of a minute at most, as 20ms", text));
  }
  return std::chrono::ceil<std::chrono::microseconds>(*time);
}

// NAME@TIME. Whether a program has that name, only the run can say.
Result<Mishap> parse_kill(const std::string& text) {
  const std::size_t at = text.find('@');
  if (at != 0 && at != std::string::npos) {
    if (const auto when = milliseconds_of(std::string_view(text).substr(at + 1))) {
      return Mishap{text.substr(0, at), *when, {}};
    }
  }
  return fail(ErrorCode::invalid_argument,
              fmt::format("--kill '{}': a host or program and a time, as in h2@200ms", text));
}

// NAME@TIME+LENGTH. The length is never 0, which would make a kill of it (signals_for()).
Result<Mishap> parse_stop(const std::string& text) {
  const std::size_t at = text.find('@');
  const std::size_t plus = text.find('+', at == std::string::npos ? 0 : at);
  if (at != 0 && at != std::string::npos && plus != std::string::npos) {
    const auto when = milliseconds_of(std::string_view(text).substr(at + 1, plus - at - 1));
    const auto lasts = milliseconds_of(std::string_view(text).substr(plus + 1));
    if (when && lasts && lasts->count() > 0) {
      return Mishap{text.substr(0, at), *when, *lasts};
    }
  }
  return fail(ErrorCode::invalid_argument,
              fmt::format("--stop '{}': a host or program, a time and for how long, as in "
                          "h2@100ms+50ms",
                          text));
}

// A mishap without a length is a kill; with one, the program stands still and goes on.
std::vector<launch::TimedSignal> signals_for(const std::string& program,
                                             const std::vector<Mishap>& mishaps) {
  std::vector<launch::TimedSignal> signals;
  for (const Mishap& mishap : mishaps) {
    if (!mishap.befalls(program)) {
      continue;
    }
    if (mishap.lasts.count() == 0) {
      signals.push_back({SIGKILL, mishap.at});
    } else {
      signals.push_back({SIGSTOP, mishap.at});
      signals.push_back({SIGCONT, mishap.at + mishap.lasts});
    }
  }
  return signals;
}

}  // namespace weft::cli
