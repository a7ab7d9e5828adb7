// Owns `weft doctor`: what this machine can do, in plain words.
//
// What is examined, and what it means, is in doctor/doctor.cpp; here findings are printed. Only
// what is BROKEN makes the exit code a failure: most of weft runs without the rest.
#include <fmt/core.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "emu/cli/commands.hpp"
#include "emu/cli/doctor/doctor.hpp"
#include "emu/cli/help.hpp"

namespace weft::cli {
namespace {

struct Options {
  bool json = false;
};

// The column that people read; scripts get to_string() instead.
const char* sign_of(Health health) {
  switch (health) {
    case Health::good:
      return "yes";
    case Health::limited:
      return "partly";
    case Health::absent:
      return "no";
    case Health::broken:
      return "BROKEN";
  }
  return "";
}

int run_doctor(const Options& options) {
  const std::vector<Finding> findings = examine_machine();
  const bool ready = can_run(findings);
  for (const Finding& finding : findings) {
    if (options.json) {
      nlohmann::ordered_json line;
      line["doctor"] = true;
      line["topic"] = finding.topic;
      line["health"] = to_string(finding.health);
      line["found"] = finding.found;
      line["matter"] = finding.matter;
      line["remedy"] = finding.remedy;
      fmt::print("{}\n", line.dump());
      continue;
    }
    fmt::print("{:<14}{:<8}{}\n", finding.topic, sign_of(finding.health), finding.found);
    fmt::print("{:<22}{}\n", "", finding.matter);
    if (!finding.remedy.empty()) {
      fmt::print("{:<22}to change it: {}\n", "", finding.remedy);
    }
  }
  if (options.json) {
    fmt::print("{}\n", nlohmann::ordered_json{{"doctor", true}, {"ready", ready}}.dump());
  } else {
    fmt::print("\n{}\n", ready ? "weft can run here: `weft demo` shows it"
                               : "weft cannot run here; see BROKEN above");
  }
  return ready ? kSuccess : kFailure;
}

}  // namespace

void register_doctor(CLI::App& program, Work& work) {
  CLI::App* command = add_command(program, "doctor");
  auto options = std::make_shared<Options>();
  command->add_flag("--json", options->json, "One JSON object per finding, and one with the sum");
  command->callback([&work, options] { work = [options] { return run_doctor(*options); }; });
}

}  // namespace weft::cli
