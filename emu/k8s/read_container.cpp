// Owns reading what is said of a pod's containers beside the devices that they ask for.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>

#include "emu/k8s/objects.hpp"

namespace weft::k8s {
namespace {

struct Factor {
  std::int64_t power_of_ten = 0;
  unsigned power_of_two = 0;
};

std::optional<Factor> factor_of(const std::string& unit) {
  static const std::map<std::string, Factor> kUnits{
      {"", {}},        {"n", {-9, 0}},  {"u", {-6, 0}},  {"m", {-3, 0}},
      {"k", {3, 0}},   {"M", {6, 0}},   {"G", {9, 0}},   {"T", {12, 0}},
      {"P", {15, 0}},  {"E", {18, 0}},  {"Ki", {0, 10}}, {"Mi", {0, 20}},
      {"Gi", {0, 30}}, {"Ti", {0, 40}}, {"Pi", {0, 50}}, {"Ei", {0, 60}}};
  if (const auto found = kUnits.find(unit); found != kUnits.end()) {
    return found->second;
  }
  // An exponent: e3, E+3, e-3.
  if (unit.front() != 'e' && unit.front() != 'E') {
    return std::nullopt;
  }
  const bool is_signed = unit[1] == '-' || unit[1] == '+';
  const auto exponent = whole_number<std::uint32_t>(unit.substr(is_signed ? 2 : 1));
  return exponent ? std::optional(Factor{*exponent * std::int64_t{unit[1] == '-' ? -1 : 1}, 0})
                  : std::nullopt;
}

struct WholeNumber {
  std::uint64_t rounded_up = 0;
  bool is_exact = true;
};

// The quantity times ten to the power of `extra_power_of_ten`. In whole numbers: a double would
// make another one of what it does not hold exactly.
std::optional<WholeNumber> whole_number_of(const std::string& text, int extra_power_of_ten = 0) {
  const std::size_t begin = text.starts_with('+') ? 1 : 0;
  const std::size_t end = std::min(text.find_first_not_of("0123456789.", begin), text.size());
  std::string digits = text.substr(begin, end - begin);
  const auto factor = factor_of(text.substr(end));
  if (!factor) {
    return std::nullopt;
  }
  std::int64_t tens = factor->power_of_ten + extra_power_of_ten;
  if (const std::size_t point = digits.find('.'); point != std::string::npos) {
    digits.erase(point, 1);
    tens -= static_cast<std::int64_t>(digits.size() - point);
  }
  while (digits.size() > 1 && digits.ends_with('0')) {
    digits.pop_back();
    ++tens;
  }
  const auto significant = whole_number<std::uint64_t>(digits);
  if (!significant) {
    return std::nullopt;
  }
  // Of 124 bits at most, before tens are multiplied with it or taken out of it.
  unsigned __int128 number = *significant;
  number <<= factor->power_of_two;
  constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();
  bool is_exact = true;
  // However large the exponent is, these loops end within forty turns.
  for (; tens < 0 && number != 0; ++tens) {
    is_exact = is_exact && number % 10 == 0;
    number /= 10;
  }
  for (; tens > 0 && number != 0 && number <= kMax; --tens) {
    number *= 10;
  }
  number += is_exact ? 0 : 1;
  return number <= kMax ? std::optional(WholeNumber{static_cast<std::uint64_t>(number), is_exact})
                        : std::nullopt;
}

void read_words(const YAML::Node& list, std::vector<std::string>& words) {
  if (list.IsDefined() && list.IsSequence()) {
    for (const YAML::Node& word : list) {
      words.push_back(text_of(word));
    }
  }
}

// A value that is missing is neither true nor false.
bool is_true(const YAML::Node& node) { return text_of(node) == "true"; }
bool is_false(const YAML::Node& node) { return text_of(node) == "false"; }

// What a container says counts more than what its pod says.
void read_security(const YAML::Node& of_pod, const YAML::Node& own, PodContainer& container) {
  std::string user;
  std::string group;
  for (const YAML::Node* context : {&of_pod, &own}) {
    user = text_of(value_of(*context, "runAsUser"), user);
    group = text_of(value_of(*context, "runAsGroup"), group);
  }
  // Container engines take a group only behind a user.
  container.user = user.empty() || group.empty() ? user : user + ":" + group;
  container.is_read_only = is_true(value_of(own, "readOnlyRootFilesystem"));
  container.gains_no_privileges = is_false(value_of(own, "allowPrivilegeEscalation"));
  const YAML::Node capabilities = value_of(own, "capabilities");
  read_words(value_of(capabilities, "add"), container.capabilities_added);
  read_words(value_of(capabilities, "drop"), container.capabilities_dropped);
}

void read_environment(const YAML::Node& list, PodContainer& container) {
  if (!list.IsDefined() || !list.IsSequence()) {
    return;
  }
  for (const YAML::Node& variable : list) {
    const YAML::Node field = value_of(value_of(variable, "valueFrom"), "fieldRef");
    container.environment.push_back({text_of(value_of(variable, "name")),
                                     text_of(value_of(variable, "value")),
                                     text_of(value_of(field, "fieldPath"))});
  }
}

}  // namespace

std::optional<std::string> bytes_of_quantity(const std::string& text) {
  const auto bytes = whole_number_of(text);
  // Container engines read a number with a sign.
  constexpr std::uint64_t kMax = std::numeric_limits<std::int64_t>::max();
  return bytes && bytes->rounded_up <= kMax ? std::optional(std::to_string(bytes->rounded_up))
                                            : std::nullopt;
}

// Docker and podman take cores as a decimal number: 500m is 0.5. What is less than the kernel
// shares out is that, as the kubelet has it.
std::optional<std::string> cores_of_quantity(const std::string& text) {
  const auto thousandths = whole_number_of(text, 3);
  if (!thousandths) {
    return std::nullopt;
  }
  constexpr std::uint64_t kLeast = 10;
  const std::uint64_t given =
      thousandths->rounded_up == 0 ? 0 : std::max(thousandths->rounded_up, kLeast);
  std::string cores =
      std::to_string(given / 1000) + "." + std::to_string(1000 + given % 1000).substr(1);
  cores.erase(cores.find_last_not_of('0') + 1);
  return cores.ends_with('.') ? cores.substr(0, cores.size() - 1) : cores;
}

std::optional<std::uint64_t> count_of_quantity(const std::string& text) {
  const auto count = whole_number_of(text);
  return count && count->is_exact ? std::optional(count->rounded_up) : std::nullopt;
}

PodContainer read_pod_container(const YAML::Node& node, const YAML::Node& pod_security) {
  PodContainer container;
  container.name = text_of(value_of(node, "name"));
  container.image = text_of(value_of(node, "image"));
  read_words(value_of(node, "command"), container.command);
  read_words(value_of(node, "args"), container.arguments);
  read_environment(value_of(node, "env"), container);
  read_security(pod_security, value_of(node, "securityContext"), container);
  // Limits alone: requests are for a scheduler, and that of a plan looks at devices only.
  const YAML::Node limits = value_of(value_of(node, "resources"), "limits");
  container.memory_bytes = bytes_of_quantity(text_of(value_of(limits, "memory"))).value_or("");
  container.cpu = cores_of_quantity(text_of(value_of(limits, "cpu"))).value_or("");
  const YAML::Node mounts = value_of(node, "volumeMounts");
  if (mounts.IsDefined() && mounts.IsSequence()) {
    for (const YAML::Node& mount : mounts) {
      container.mounts.emplace_back(text_of(value_of(mount, "name")),
                                    text_of(value_of(mount, "mountPath")));
    }
  }
  return container;
}

std::vector<PodVolume> read_pod_volumes(const YAML::Node& list) {
  std::vector<PodVolume> volumes;
  if (!list.IsDefined() || !list.IsSequence()) {
    return volumes;
  }
  for (const YAML::Node& node : list) {
    PodVolume volume{text_of(value_of(node, "name")), "", false};
    if (node.IsMap()) {
      for (const auto& pair : node) {
        if (const std::string key = text_of(pair.first); key != "name") {
          // A volume is an object with its name and one more key, which is its kind.
          volume.kind = key;
        }
      }
    }
    volume.is_in_memory = text_of(value_of(value_of(node, "emptyDir"), "medium")) == "Memory";
    volumes.push_back(std::move(volume));
  }
  return volumes;
}

// Only its name and whose pods it stands for matter here: it becomes a name for them.
void read_service(const Manifest& manifest, Objects& objects) {
  const Labels selector = read_labels(value_of(value_of(manifest.root, "spec"), "selector"));
  if (!selector.empty()) {
    objects.services.push_back({manifest.name, manifest.name_space, selector});
  }
}

}  // namespace weft::k8s
