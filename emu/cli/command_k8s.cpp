// Owns `weft k8s`: manifests for RDMA devices, tried without a cluster.
//
// Reading manifests and deciding about pods is emu/k8s, which is pure; running them is emu/labs.
// Options that describe the cluster count only where the manifests do not.
#include <fmt/core.h>

#include <charconv>
#include <chrono>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "emu/cli/commands.hpp"
#include "emu/cli/complain.hpp"
#include "emu/cli/help.hpp"
#include "emu/cli/progress.hpp"
#include "emu/cli/unwrap.hpp"
#include "emu/fabric/yaml_reader.hpp"
#include "emu/k8s/plan.hpp"
#include "emu/labs/pod_lab.hpp"
#include "emu/labs/pod_watch.hpp"

namespace weft::cli {
namespace {

struct Options {
  std::vector<std::string> files;
  std::vector<std::string> labels;
  std::vector<std::string> resources;
  std::vector<std::string> operator_namespaces;
  k8s::PlanOptions plan;
  bool json = false;

  // --- Of `run`
  std::vector<std::string> images;
  std::vector<std::string> devices;
  std::string rate = "100Gbps";
  std::string engine;
  labs::PodLabOptions lab;
  int timeout = 0;
  bool detach = false;
};

// "NAME=VALUE" in two; nothing without a name.
std::optional<std::pair<std::string, std::string>> divide(const std::string& word) {
  const std::size_t equals = word.rfind('=');
  if (equals == std::string::npos || equals == 0) {
    return std::nullopt;
  }
  return std::pair(word.substr(0, equals), word.substr(equals + 1));
}

// Completes the options from the words given. False, after a complaint, if the command line is
// wrong.
bool finish_options(Options& options) {
  for (const std::string& word : options.labels) {
    const auto label = divide(word);
    if (!label) {
      complain("weft k8s: --label '{}': give NAME=VALUE\n", word);
      return false;
    }
    options.plan.cluster.labels[label->first] = label->second;
  }
  for (const std::string& word : options.resources) {
    const auto resource = divide(word);
    unsigned count = 0;
    const auto read = [&] {
      const char* const end = resource->second.data() + resource->second.size();
      return std::from_chars(resource->second.data(), end, count).ptr == end && count > 0 &&
             count <= 10'000;
    };
    if (!resource || !read()) {
      complain("weft k8s: --resource '{}': give NAME=NUMBER, at most 10000\n", word);
      return false;
    }
    options.plan.cluster.resources[resource->first] = count;
  }
  if (!options.operator_namespaces.empty()) {
    options.plan.read.operator_namespaces = options.operator_namespaces;
  }
  // The operator's one prefix stands both in networks and in what nodes offer.
  options.plan.cluster.prefix = options.plan.read.prefix;
  for (const auto& [option, list, map] :
       {std::tuple("--image", &options.images, &options.lab.images),
        std::tuple("--device", &options.devices, &options.lab.devices)}) {
    for (const std::string& word : *list) {
      const auto pair = divide(word);
      if (!pair || pair->second.empty()) {
        complain("weft k8s: {} '{}': give NAME=OTHER\n", option, word);
        return false;
      }
      (*map)[pair->first] = pair->second;
    }
  }
  const auto rate = fabric::parse_rate(options.rate);
  if (!rate) {
    complain("weft k8s: --rate '{}': give one such as 100Gbps\n", options.rate);
    return false;
  }
  options.lab.rate = *rate;
  return true;
}

// "-" is the standard input, as of kubectl.
k8s::ManifestFile read_file(const std::string& path) {
  if (path == "-") {
    return {path, std::string(std::istreambuf_iterator<char>(std::cin), {})};
  }
  return {path, unwrap(fabric::read_text_file(path))};
}

std::vector<k8s::ManifestFile> read_files(const Options& options) {
  std::vector<k8s::ManifestFile> files;
  for (const std::string& path : options.files) {
    files.push_back(read_file(path));
  }
  return files;
}

// Options by value: finish_options() completes them.
int plan(Options options) {
  if (!finish_options(options)) {
    return kUsage;
  }
  const auto files = read_files(options);
  const k8s::PodPlan made = k8s::make_plan(files, options.plan);
  fmt::print("{}{}", options.json ? k8s::plan_json(made) : k8s::plan_text(made),
             options.json ? "\n" : "");
  return made.is_good() ? kSuccess : kFailure;
}

const char* state_text(labs::PodOutcome::State state) {
  switch (state) {
    case labs::PodOutcome::State::succeeded:
      return "succeeded";
    case labs::PodOutcome::State::failed:
      return "failed";
    case labs::PodOutcome::State::running:
      break;
  }
  return "running";
}

// Prints how each pod ended; returns kFailure if one has failed. A pod that still runs at the end
// (a server) is none of those.
int conclude(const std::vector<labs::PodOutcome>& outcomes) {
  int code = kSuccess;
  fmt::print("{:<40} {:<10} {:>5} {:>9}\n", "pod", "state", "code", "restarts");
  for (const labs::PodOutcome& outcome : outcomes) {
    const bool has_code = outcome.state != labs::PodOutcome::State::running;
    fmt::print("{:<40} {:<10} {:>5} {:>9}\n", outcome.process.node, state_text(outcome.state),
               has_code ? std::to_string(outcome.exit_code) : "", outcome.restarts);
    code = outcome.state == labs::PodOutcome::State::failed ? kFailure : code;
  }
  return code;
}

// The identity of the lab: all names and all texts together, so that another text is another lab.
labs::LabSource source_of(const std::vector<k8s::ManifestFile>& files) {
  labs::LabSource source;
  for (const k8s::ManifestFile& file : files) {
    source.path += (source.path.empty() ? "" : " ") + file.name;
    source.text += file.text + "\n";
  }
  return source;
}

// Shows what the pods print until they have ended; returns the exit code.
int watch(const labs::RunningLab& running, const labs::PodLab& lab, const Options& options) {
  const auto outcomes = unwrap(labs::watch_pods(
      running, lab.processes,
      {.patience = std::chrono::seconds{options.timeout},
       .line = [](const std::string& node,
                  const std::string& line) { fmt::print("[{}] {}\n", node, line); },
       .event = [](const std::string& text) { complain("weft k8s: {}\n", text); }}));
  return conclude(outcomes);
}

// Pods that would not start on the cluster do not start here, which is a failure, but not one of
// the others.
int run(Options options) {
  if (!finish_options(options)) {
    return kUsage;
  }
  const auto files = read_files(options);
  const k8s::PodPlan made = k8s::make_plan(files, options.plan);
  // On the standard error: the standard output is the pods' own.
  complain("{}", k8s::plan_text(made));
  const labs::PodLab lab = unwrap(labs::make_pod_lab(made, options.lab));
  for (const std::string& note : lab.notes) {
    complain("{}\n", note);
  }
  int code = kSuccess;
  const auto show = progress_of("weft k8s");
  if (options.detach) {
    unwrap(labs::start_lab(lab.file, source_of(files), options.engine, show));
    // From here on it is a lab like any other, and outlives this command.
    fmt::print("weft lab status {0}\nweft lab down {0}\n", lab.file.name);
  } else {
    unwrap(labs::run_lab(lab.file, source_of(files), options.engine, show,
                         [&](const labs::RunningLab& running) -> Result<void> {
                           code = watch(running, lab, options);
                           return {};
                         }));
  }
  return made.is_good() ? code : kFailure;
}

void add_run_options(CLI::App& command, Options& options) {
  command
      .add_option("--name", options.lab.name,
                  "Of the lab, and of its network for `weft lab`, `weft fault`, `weft capture`")
      ->check([](const std::string& text) {
        return fabric::is_node_name(text) ? std::string() : std::string(fabric::kNodeNameRule);
      })
      ->capture_default_str();
  command
      .add_option("--image", options.images,
                  "NAME=OTHER, an image instead of one that manifests name; may be repeated")
      ->allow_extra_args(false);
  command
      .add_option("--rootfs", options.lab.rootfs,
                  "A directory with a whole file system, instead of all images")
      ->check(CLI::ExistingDirectory)
      ->transform([](const std::string& text) {
        return std::filesystem::absolute(text).lexically_normal().string();
      });
  command
      .add_option("--device", options.devices,
                  "RESOURCE=KIND, what its devices are: efa, rxe, or as of `weft up --device`; "
                  "default: efa for names that end with /efa, rxe for others")
      ->allow_extra_args(false);
  command.add_option("--rate", options.rate, "Of each NIC, which its virtual functions share")
      ->capture_default_str();
  command.add_option("--engine", options.engine,
                     "podman, docker (for pods without networks) or the path of one of them; "
                     "default: what is there");
  command
      .add_option("--timeout", options.timeout,
                  "Seconds after which pods that have not ended have failed; 0: none")
      ->check(CLI::Range(0, 86400))
      ->capture_default_str();
  command.add_flag("--detach", options.detach, "Leave it up, as a lab, and look after nothing");
}

void add_cluster_options(CLI::App& command, Options& options) {
  command.add_option("files", options.files, "Files of manifests; - is the standard input")
      ->required();
  command
      .add_option("--nodes", options.plan.cluster.virtual_nodes,
                  "Nodes of the cluster, if no manifest is a Node")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command
      .add_option("--pfs", options.plan.cluster.virtual_pfs,
                  "NICs of such a node, where a policy names none")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  command
      .add_option("--label", options.labels, "NAME=VALUE, a label of such nodes; may be repeated")
      ->allow_extra_args(false);
  command
      .add_option("--resource", options.resources,
                  "NAME=N, devices that each node has of another plugin; may be repeated")
      ->allow_extra_args(false);
  command
      .add_option("--resource-prefix", options.plan.read.prefix,
                  "What the SR-IOV operator puts in front of resource names")
      ->capture_default_str();
  command
      .add_option("--operator-namespace", options.operator_namespaces,
                  "The SR-IOV operator's own; default: those of its usual packages")
      ->allow_extra_args(false);
}

}  // namespace

void register_k8s(CLI::App& program, Work& work) {
  CLI::App* const command = add_command(program, "k8s");
  command->require_subcommand(1);
  const auto options = std::make_shared<Options>();
  CLI::App* const part =
      command->add_subcommand("plan", "Which pods get which devices, and why others do not");
  add_cluster_options(*part, *options);
  part->add_flag("--json", options->json, "One JSON object");
  part->callback([&work, options] { work = [options] { return plan(*options); }; });
  CLI::App* const running =
      command->add_subcommand("run", "Run the pods here, with the devices that they would get");
  add_cluster_options(*running, *options);
  add_run_options(*running, *options);
  running->callback([&work, options] { work = [options] { return run(*options); }; });
}

}  // namespace weft::cli
