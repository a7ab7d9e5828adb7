// Owns `weft validate`: files checked before anything runs. Each file is read by the code that its
// command would read it with (sim/validation.cpp), so that the two cannot disagree.
#include <fmt/core.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "emu/cli/commands.hpp"
#include "emu/cli/complain.hpp"
#include "emu/cli/help.hpp"
#include "emu/cli/sim/validation.hpp"
#include "emu/cli/unwrap.hpp"
#include "emu/fabric/topology_yaml.hpp"

namespace weft::cli {
namespace {

struct Options {
  std::vector<std::string> files;
  std::string kind = "auto";
  std::string topology;
  bool json = false;
};

// All files are looked at, also after one with errors.
int run_validate(const Options& options) {
  const auto kind = parse_file_kind(options.kind);
  if (!kind) {
    complain("weft validate: {}\n", kind.error().message);
    return kUsage;
  }
  std::optional<fabric::Topology> network;
  if (!options.topology.empty()) {
    // Wrong, it ends the command: without it nothing could be checked that names links.
    network = unwrap(fabric::read_topology_file(options.topology));
  }
  int code = kSuccess;
  for (const std::string& file : options.files) {
    const auto valid = validate_file(file, *kind, network ? &*network : nullptr);
    if (!valid) {
      code = kFailure;
    }
    if (options.json) {
      nlohmann::ordered_json line;
      line["validate"] = true;
      line["file"] = file;
      line["ok"] = valid.has_value();
      line["kind"] = valid ? nlohmann::ordered_json(to_string(valid->kind)) : nullptr;
      line["summary"] = valid ? valid->summary : "";
      line["error"] = valid ? "" : valid.error().message;
      fmt::print("{}\n",
                 line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
    } else if (valid) {
      fmt::print("{}: {}: {}\n", file, to_string(valid->kind), valid->summary);
    } else {
      complain("{}\n", valid.error().message);
    }
  }
  return code;
}

}  // namespace

void register_validate(CLI::App& program, Work& work) {
  CLI::App* command = add_command(program, "validate");
  auto options = std::make_shared<Options>();
  command->add_option("file", options->files, "Files")->required();
  command
      ->add_option("--kind", options->kind,
                   "scenario, topology, faults, profile, matrix, htsim-topology")
      ->capture_default_str();
  command->add_option("--topology", options->topology,
                      "The network whose links faults and matrices speak of");
  command->add_flag("--json", options->json, "One JSON object per file");
  command->callback([&work, options] { work = [options] { return run_validate(*options); }; });
}

}  // namespace weft::cli
