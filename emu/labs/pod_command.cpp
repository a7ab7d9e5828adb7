// Owns the words of an engine's command line that come from a manifest.
#include "emu/labs/pod_command.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

namespace weft::labs {
namespace {

using k8s::PlannedPod;
using k8s::PodContainer;
using Variables = std::vector<std::pair<std::string, std::string>>;

// Linux gives a program no word of 128 KiB or more. Variables that stand for each other several
// times would be larger than any memory.
constexpr std::size_t kMaxWord = 100'000;

// The value of a field of the pod (fieldRef), of those that are known before the pod runs.
// Addresses are not.
std::optional<std::string> value_of_field(const PlannedPod& pod, const std::string& field) {
  if (field == "metadata.name") {
    return pod.pod->name;
  }
  if (field == "metadata.namespace") {
    return pod.pod->name_space;
  }
  return field == "spec.nodeName" ? std::optional(pod.node) : std::nullopt;
}

// $(NAME) is a variable's value, $$ a dollar; what names no variable stays. Nothing: it is too
// long.
std::optional<std::string> expanded(const std::string& text, const Variables& variables) {
  std::string result;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (result.size() > kMaxWord) {
      return std::nullopt;
    }
    if (text[at] != '$' || at + 1 == text.size()) {
      result += text[at];
      continue;
    }
    // Names have no parenthesis.
    const std::size_t end = text.find(')', at);
    if (text[at + 1] == '$') {
      result += text[++at];
    } else if (text[at + 1] == '(' && end != std::string::npos) {
      const std::string name = text.substr(at + 2, end - at - 2);
      const auto known = std::ranges::find(variables, name, [](const auto& v) { return v.first; });
      result += known == variables.end() ? text.substr(at, end - at + 1) : known->second;
      at = end;
    } else {
      result += text[at];
    }
  }
  return result.size() > kMaxWord ? std::nullopt : std::optional(std::move(result));
}

tl::unexpected<Error> too_long(const PodContainer& container, const std::string& what) {
  return fail(ErrorCode::invalid_argument,
              fmt::format("container '{}': {} is longer than {} bytes, with what stands for its "
                          "variables: a program cannot be given it",
                          container.name, what, kMaxWord));
}

// Adds the variables in their order: each may refer to those before it. One that cannot be known is
// a note.
Result<void> add_environment(const PlannedPod& pod, const PodContainer& container, LabNode& node,
                             std::vector<std::string>& notes) {
  for (const k8s::PodVariable& variable : container.environment) {
    const bool is_text = variable.field.empty();
    const auto value =
        is_text ? expanded(variable.value, node.environment) : value_of_field(pod, variable.field);
    if (is_text && !value) {
      return too_long(container, "the variable " + variable.name);
    }
    if (!value) {
      notes.push_back(fmt::format("{}: {}: the variable {} is not set: {} is not known here",
                                  pod.pod->place.text(), pod.pod->title(), variable.name,
                                  variable.field));
      continue;
    }
    node.environment.emplace_back(variable.name, *value);
  }
  return {};
}

Result<void> add_program(const PodContainer& container, bool has_image, LabNode& node) {
  for (const auto* words : {&container.command, &container.arguments}) {
    for (const std::string& word : *words) {
      auto whole = expanded(word, node.environment);
      if (!whole) {
        return too_long(container, "a word of its command");
      }
      node.command.push_back(std::move(*whole));
    }
  }
  // In a manifest `command` replaces the image's entry point, and `args` its command. The engine
  // takes one word as entry point, so the others of `command` go in front of `args`. A root
  // directory has no entry point to replace.
  if (has_image && !container.command.empty()) {
    node.entry_point = node.command.front();
    node.command.erase(node.command.begin());
  }
  return {};
}

// emptyDir is a folder that goes with the container. Others are the cluster's.
void add_volumes(const PlannedPod& pod, const PodContainer& container, LabNode& node,
                 std::vector<std::string>& notes) {
  for (const auto& [name, path] : container.mounts) {
    const auto volume = std::ranges::find(pod.pod->volumes, name, &k8s::PodVolume::name);
    if (volume != pod.pod->volumes.end() && volume->kind == "emptyDir" && !path.empty()) {
      node.options.insert(node.options.end(), {"--tmpfs", path});
      continue;
    }
    notes.push_back(fmt::format(
        "{}: {}: nothing is mounted at {}: {}", pod.pod->place.text(), pod.pod->title(), path,
        volume == pod.pod->volumes.end() ? "there is no volume '" + name + "'"
                                         : "volumes of kind " + volume->kind + " are not made"));
  }
}

}  // namespace

Result<void> furnish_container(const PlannedPod& pod, const PodContainer& container,
                               const PodLabOptions& options, LabNode& node,
                               std::vector<std::string>& notes) {
  const auto other = options.images.find(container.image);
  node.rootfs = options.rootfs;
  if (node.rootfs.empty()) {
    node.image = other == options.images.end() ? container.image : other->second;
    if (node.image.empty() || node.image.starts_with('-')) {
      return fail(ErrorCode::invalid_argument,
                  fmt::format("container '{}' has no image", container.name));
    }
  }
  if (auto done = add_environment(pod, container, node, notes); !done) {
    return done;
  }
  if (auto done = add_program(container, node.rootfs.empty(), node); !done) {
    return done;
  }
  add_volumes(pod, container, node, notes);
  node.user = container.user;
  node.memory = container.memory_bytes;
  node.cpu = container.cpu;
  if (container.is_read_only) {
    node.options.emplace_back("--read-only");
  }
  if (container.gains_no_privileges) {
    node.options.emplace_back("--security-opt=no-new-privileges");
  }
  for (const std::string& capability : container.capabilities_dropped) {
    node.options.push_back("--cap-drop=" + capability);
  }
  for (const std::string& capability : container.capabilities_added) {
    node.options.push_back("--cap-add=" + capability);
  }
  return {};
}

}  // namespace weft::labs
