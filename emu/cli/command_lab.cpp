// Owns `weft lab`: an emulated network, and a container for each of its hosts.
//
// What a lab is made of, and in which order, is emu/labs. `exec` and `logs` of one node become the
// container engine's own command, so that terminals, signals and exit codes are the engine's
// matter.
#include <fmt/core.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "emu/cli/commands.hpp"
#include "emu/cli/complain.hpp"
#include "emu/cli/help.hpp"
#include "emu/cli/progress.hpp"
#include "emu/cli/unwrap.hpp"
#include "emu/fabric/yaml_reader.hpp"
#include "emu/labs/lab.hpp"
#include "emu/launch/control_client.hpp"
#include "emu/launch/write_signals.hpp"
#include "srd/base/joined.hpp"
#include "srd/io/posix.hpp"

namespace weft::cli {
namespace {

using nlohmann::ordered_json;

struct Options {
  std::string file;
  std::string name;  // of the lab, or its file
  std::string engine;
  std::string node;
  bool json = false;
  bool follow = false;
};

bool is_file_name(const std::string& word) {
  return word.ends_with(".yaml") || word.ends_with(".yml");
}

labs::LabSource source_of(const std::string& path) {
  return {path, unwrap(fabric::read_text_file(path)),
          std::filesystem::path(path).parent_path().string()};
}

// The name of a lab that the user gave by its name or by its file.
std::string name_of(const std::string& word) {
  if (!is_file_name(word)) {
    return word;
  }
  const labs::LabSource source = source_of(word);
  return unwrap(labs::read_lab(source.path, source.text, source.directory)).name;
}

int up(const Options& options) {
  const labs::LabRecord record =
      unwrap(labs::start_lab(source_of(options.file), options.engine, progress_of("weft lab")));
  fmt::print("weft lab exec {} -- COMMAND\n", record.nodes.front());
  return kSuccess;
}

int down(const Options& options) {
  const std::string name =
      options.name.empty() ? unwrap(labs::find_lab("")).identity.name : name_of(options.name);
  if (!unwrap(labs::end_lab(name, progress_of("weft lab")))) {
    complain("weft lab down: of '{}' only a part was there; it is gone now\n", name);
  }
  return kSuccess;
}

// The addresses of a host's NICs, and how many processes are attached to them.
struct Nics {
  std::vector<std::string> addresses;
  std::size_t processes = 0;
};
Nics nics_of(const nlohmann::json& weftd, const std::string& host) {
  Nics nics;
  if (weftd.is_object()) {
    for (const auto& nic : weftd["nics"]) {
      if (nic["host"] == host) {
        nics.addresses.push_back(nic["address"].get<std::string>());
        nics.processes += nic["processes"].size();
      }
    }
  }
  return nics;
}

// Shows what there is of the lab, also if that is only a part: a lab whose weftd or containers have
// died can still be asked about.
int status(const Options& options) {
  const labs::RunningLab running = unwrap(labs::find_lab(name_of(options.name)));
  const auto reply = launch::ask_weftd(running.identity.directory, {{"cmd", "status"}});
  const nlohmann::json weftd = reply ? (*reply)["status"] : nlohmann::json();
  const auto states = unwrap(running.states());
  const bool whole = weftd.is_object() && running.record.complete &&
                     std::ranges::all_of(states, [](const labs::ContainerState& state) {
                       return state.state == "running";
                     });
  ordered_json nodes = ordered_json::array();
  for (const labs::ContainerState& state : states) {
    const auto at =
        std::ranges::find(running.record.addresses, state.node, &labs::NodeAddress::name);
    const Nics nics = nics_of(weftd, state.node);
    nodes.push_back({{"node", state.node},
                     {"container", running.identity.container(state.node)},
                     {"state", state.state},
                     {"exit_code", state.exit_code},
                     {"address", at == running.record.addresses.end() ? "" : at->address},
                     {"nics", nics.addresses},
                     {"processes", nics.processes}});
  }
  if (options.json) {
    fmt::print("{}\n", ordered_json{{"lab", running.identity.name},
                                    {"file", running.record.file},
                                    {"engine", running.record.engine},
                                    {"weftd", weftd.is_object() ? weftd["pid"] : nlohmann::json()},
                                    {"whole", whole},
                                    {"nodes", nodes}}
                           .dump());
    return kSuccess;
  }
  fmt::print("{}  {}  {}\n", running.identity.name,
             weftd.is_object() ? fmt::format("weftd {}", weftd["pid"].get<int>())
                               : "weftd is not running: `weft lab up` starts one",
             running.record.complete ? "" : "its start is not complete");
  fmt::print("{:<12}{:<14}{:<16}{:>9}  {}\n", "node", "container", "address", "processes", "NICs");
  for (const ordered_json& node : nodes) {
    std::string state = node["state"];
    if (state == "exited") {
      state += fmt::format(" ({})", node["exit_code"].get<int>());
    }
    fmt::print("{:<12}{:<14}{:<16}{:>9}  {}\n", node["node"].get<std::string>(), state,
               node["address"].get<std::string>(), node["processes"].get<std::size_t>(),
               joined(node["nics"].get<std::vector<std::string>>(), " "));
  }
  return kSuccess;
}

// Becomes the engine with these words; returns only if that fails.
int become(std::vector<std::string> words) {
  std::vector<char*> arguments;
  for (std::string& word : words) {
    arguments.push_back(word.data());
  }
  arguments.push_back(nullptr);
  // The engine is to end by a broken pipe, as it would have without weft before it.
  launch::restore_write_signals();
  ::execvp(arguments[0], arguments.data());
  complain("weft lab: {}\n", srd::errno_text("cannot run '" + words[0] + "'"));
  // As shells have it: not found, or not to be run.
  return errno == ENOENT ? 127 : 126;
}

int exec(const Options& options) {
  const auto command = words_after_dashes();
  if (command.empty()) {
    complain("weft lab exec: give a command after `--`\n");
    return kUsage;
  }
  const labs::RunningLab running = unwrap(labs::find_lab(name_of(options.name)));
  std::vector<std::string> words{running.engine.program(), "exec", "--interactive"};
  // A terminal changes line ends and reads control characters: with a pipe at either end it would
  // spoil what passes.
  if (::isatty(STDIN_FILENO) != 0 && ::isatty(STDOUT_FILENO) != 0) {
    words.emplace_back("--tty");
  }
  words.push_back(unwrap(running.container(options.node)));
  words.insert(words.end(), command.begin(), command.end());
  return become(words);
}

// The output of one node as the engine gives it, or of all nodes, each line with the node's name in
// front.
int logs(const Options& options) {
  const labs::RunningLab running = unwrap(labs::find_lab(name_of(options.name)));
  if (!options.node.empty()) {
    std::vector<std::string> words{running.engine.program(), "logs"};
    if (options.follow) {
      words.emplace_back("--follow");
    }
    words.push_back(unwrap(running.container(options.node)));
    return become(words);
  }
  if (options.follow) {
    complain("weft lab logs: --follow needs a node\n");
    return kUsage;
  }
  std::vector<labs::Words> commands;
  for (const std::string& node : running.record.nodes) {
    commands.push_back({"logs", running.identity.container(node)});
  }
  const auto answers = unwrap(running.engine.run_all(commands, labs::Interrupts::heed, {}));
  int code = kSuccess;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    const std::string& node = running.record.nodes[i];
    if (answers[i]->code != 0) {
      complain("weft lab logs: {}: {}\n", node, answers[i]->complaint());
      code = kFailure;
      continue;
    }
    for (const std::string* text : {&answers[i]->out, &answers[i]->errors}) {
      for (const std::string& line : labs::lines_of(*text)) {
        fmt::print("[{}] {}\n", node, line);
      }
    }
  }
  return code;
}

// Adds `weft lab <name>`. All parts share the options: one command line has only one part.
CLI::App* add_part(CLI::App& command, const char* name, const char* about,
                   const std::shared_ptr<Options>& options, Work& work,
                   int (*run)(const Options&)) {
  CLI::App* const part = command.add_subcommand(name, about);
  part->callback([&work, options, run] { work = [options, run] { return run(*options); }; });
  return part;
}

}  // namespace

void register_lab(CLI::App& program, Work& work) {
  CLI::App* const command = add_command(program, "lab");
  command->require_subcommand(1);
  const auto options = std::make_shared<Options>();
  CLI::App* part =
      add_part(*command, "up", "Start a lab, or what is missing of it", options, work, up);
  part->add_option("file", options->file, "The lab's file")->required();
  part->add_option(
      "--engine", options->engine,
      "podman, docker or the path of one of them; default: the file's, or what is there");
  part = add_part(*command, "down", "End a lab: containers, networks, everything", options, work,
                  down);
  part->add_option("lab", options->name, "Its name or its file; default: the only one");
  part = add_part(*command, "status", "The nodes and their NICs", options, work, status);
  part->add_option("lab", options->name, "Its name or its file; default: the only one");
  part->add_flag("--json", options->json, "One JSON object");
  part = add_part(*command, "exec", "Run a command in a node's container", options, work, exec);
  part->add_option("node", options->node, "The node; after `--` the command")->required();
  part->add_option("--lab", options->name, "Name or file of the lab; default: the only one");
  part = add_part(*command, "logs", "What nodes have said", options, work, logs);
  part->add_option("node", options->node, "The node; default: all, with names in front");
  part->add_option("--lab", options->name, "Name or file of the lab; default: the only one");
  part->add_flag("-f,--follow", options->follow, "Go on as it says more");
}

}  // namespace weft::cli
