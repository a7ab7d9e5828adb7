// Owns `weft k8s`: manifests for RDMA devices, tried without a cluster.
#include <fmt/core.h>

#include <charconv>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "emu/cli/commands.hpp"
#include "emu/cli/complain.hpp"
#include "emu/cli/help.hpp"
#include "emu/cli/unwrap.hpp"
#include "emu/fabric/yaml_reader.hpp"
#include "emu/k8s/plan.hpp"

namespace weft::cli {
namespace {

struct Options {
  std::vector<std::string> files;
  std::vector<std::string> labels;
  std::vector<std::string> resources;
  std::vector<std::string> operator_namespaces;
  k8s::PlanOptions plan;
  bool json = false;
};

// "NAME=VALUE" in two; nothing without a name.
std::optional<std::pair<std::string, std::string>> divide(const std::string& word) {
  const std::size_t equals = word.rfind('=');
  if (equals == std::string::npos || equals == 0) {
    return std::nullopt;
  }
  return std::pair(word.substr(0, equals), word.substr(equals + 1));
}

// False, and says why: a wrong command line.
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
  options.plan.cluster.prefix = options.plan.read.prefix;
  return true;
}

// "-" is the standard input, as of kubectl.
k8s::ManifestFile read_file(const std::string& path) {
  if (path == "-") {
    return {path, std::string(std::istreambuf_iterator<char>(std::cin), {})};
  }
  return {path, unwrap(fabric::read_text_file(path))};
}

int plan(Options options) {
  if (!finish_options(options)) {
    return kUsage;
  }
  std::vector<k8s::ManifestFile> files;
  for (const std::string& path : options.files) {
    files.push_back(read_file(path));
  }
  const k8s::PodPlan made = k8s::make_plan(files, options.plan);
  fmt::print("{}{}", options.json ? k8s::plan_json(made) : k8s::plan_text(made),
             options.json ? "\n" : "");
  return made.is_good() ? kSuccess : kFailure;
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
}

}  // namespace weft::cli
