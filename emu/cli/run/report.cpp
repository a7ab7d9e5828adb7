// Owns the account of a `weft run`.
//
// At its begin config.resolved.yml, with all that decides what the run does; at its end a table on
// standard error, or JSON lines on standard output. The programs' own output stands on both, so
// this says only what they cannot know.
#include "emu/cli/run/report.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "emu/cli/commands.hpp"
#include "emu/cli/complain.hpp"
#include "emu/cli/unwrap.hpp"
#include "emu/fabric/yaml_reader.hpp"

namespace weft::cli {
namespace {

// What it takes to run the same again, as config.resolved.yml.
std::string resolved(const RunOptions& options, const std::vector<Words>& commands,
                     std::size_t hosts) {
  // JSON is YAML, so any text is quoted right. Arguments are any bytes, JSON is UTF-8.
  const auto quoted = [](const nlohmann::json& value) {
    return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  };
  std::string text = fmt::format(
      "seed: {}\ndevice: {}\nhosts: {}\nnics: {}\nper_host: {}\ndilation: {}\nthrough_weftd: {}\n"
      "topology: {}\n",
      options.seed, quoted(options.device), hosts, options.nics, options.per_host, options.dilation,
      options.through_weftd, options.topology.empty() ? "null" : quoted("topology.yml"));
  text += fmt::format("netns: {}\npin: {}\ngrace: {}\nno_prefix: {}\n", options.netns,
                      options.pin > 0   ? "true"
                      : options.pin < 0 ? "false"
                                        : "null",  // as for most
                      options.grace_seconds, options.no_prefix);
  text += options.faults.empty() ? "faults: []\n" : "faults:\n";
  for (const std::string& fault : options.faults) {
    text += "  - {" + fault + "}\n";
  }
  for (const auto& [key, values] : {std::pair{"kill", &options.kills}, {"stop", &options.stops}}) {
    if (!values->empty()) {
      text += std::string(key) + ": " + quoted(*values) + "\n";
    }
  }
  if (!options.names.empty()) {
    text += "names: " + quoted(options.names) + "\n";
  }
  if (!options.late_receives.empty()) {
    text += "late_receives: " + options.late_receives + "\n";
  }
  text += "commands:\n";
  for (const Words& words : commands) {
    text += "  - " + quoted(words) + "\n";
  }
  return text;
}

}  // namespace

// Without --out the directory is a convenience, and a run goes on where none can be made. With it,
// that is an error.
std::optional<launch::RunDirectory> open_directory(const RunOptions& options,
                                                   const std::vector<Words>& commands,
                                                   std::size_t hosts) {
  launch::RunDirectory::Files files{{"config.resolved.yml", resolved(options, commands, hosts)}};
  if (!options.topology.empty()) {
    files.emplace("topology.yml", unwrap(fabric::read_text_file(options.topology)));
  }
  auto run = launch::RunDirectory::create(options.out, options.seed, files);
  if (!run) {
    if (!options.out.empty()) {
      throw std::runtime_error(run.error().message);
    }
    return std::nullopt;
  }
  return std::move(*run);
}

void report(const std::vector<launch::ProgramEnd>& ends, const nlohmann::json& counters,
            const RunOptions& options) {
  if (options.json) {
    for (const launch::ProgramEnd& end : ends) {
      nlohmann::ordered_json line;
      line["run"] = true;
      line["host"] = end.name;
      line["exit_code"] = end.code;
      line["seconds"] = end.seconds;
      if (end.killed) {
        line["killed"] = true;
      }
      fmt::print("{}\n", line.dump());
    }
    fmt::print("{}\n", nlohmann::json{{"network", counters}}.dump());
    return;
  }
  // Of a single program its exit code, which becomes ours, says it all.
  if (options.quiet || ends.size() < 2) {
    return;
  }
  complain("{:<10}{:>6}{:>10}\n", "host", "exit", "seconds");
  for (const launch::ProgramEnd& end : ends) {
    complain("{:<10}{:>6}{:>10.2f}\n", end.name, end.code, end.seconds);
  }
  if (counters.is_null()) {
    return;
  }
  std::uint64_t dropped = 0;
  std::string why;
  for (const auto& [reason, count] : counters["dropped"].items()) {
    if (const auto frames = count.get<std::uint64_t>(); frames != 0) {
      dropped += frames;
      why += fmt::format("{}{} {}", why.empty() ? " (" : ", ", reason, frames);
    }
  }
  complain("weftd: {} frames forwarded, {} dropped{}{}\n", counters["frames"].get<std::uint64_t>(),
           dropped, why, why.empty() ? "" : ")");
}

// The exit code is that of the program that failed first: the others often fail because of it.
int verdict(const std::vector<launch::ProgramEnd>& ends, const RunOptions& options,
            const std::optional<launch::RunDirectory>& run) {
  const auto failed = std::min_element(
      ends.begin(), ends.end(), [](const launch::ProgramEnd& a, const launch::ProgramEnd& b) {
        return std::pair(!a.failed(), a.place) < std::pair(!b.failed(), b.place);
      });
  if (failed == ends.end() || !failed->failed()) {
    return kSuccess;
  }
  if (!options.quiet) {
    complain("weft run: {} ended with {}; seed {}{}\n", failed->name, failed->code, options.seed,
             run ? "; events in " + run->path() : "");
  }
  return failed->code;
}

}  // namespace weft::cli
