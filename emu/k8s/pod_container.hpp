// Owns what a manifest says of the containers of a pod, for whoever runs them. Field names are
// those of the API.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace weft::k8s {

// A variable, or what it is to be filled with: "metadata.name", "status.podIP", ...
struct PodVariable {
  std::string name;
  std::string value;
  std::string field;  // of fieldRef; empty: `value` counts
};

// One container of a pod. Empty texts and lists: the manifest says nothing.
struct PodContainer {
  std::string name;
  std::string image;
  std::vector<std::string> command;    // instead of the image's entry point
  std::vector<std::string> arguments;  // instead of what the image gives it
  std::vector<PodVariable> environment;
  std::string user;  // "UID" or "UID:GID"; empty: the image's
  std::string memory_bytes;
  std::string cpu;  // cores: "0.5"
  bool is_read_only = false;
  bool gains_no_privileges = false;
  std::vector<std::string> capabilities_added;
  std::vector<std::string> capabilities_dropped;
  std::vector<std::pair<std::string, std::string>> mounts;  // name of the volume, and where
};

// How the kubelet goes on when a container has ended.
enum class PodRestart : std::uint8_t { always, on_failure, never };

struct PodVolume {
  std::string name;
  std::string kind;  // "emptyDir", "configMap", ...
  bool is_in_memory = false;
};

// A byte or core count as the API writes it: "256Mi" -> "268435456", "500m" -> "0.5"; rounded up to
// a byte, or to a thousandth and at least a hundredth of a core. None where it is no such number,
// or more than 64 bits hold.
[[nodiscard]] std::optional<std::string> bytes_of_quantity(const std::string& text);
[[nodiscard]] std::optional<std::string> cores_of_quantity(const std::string& text);
// The same of what is counted and not divided: "2", "2k", "2000m". None also where something is
// left over, or the count is larger than the number holds.
[[nodiscard]] std::optional<std::uint64_t> count_of_quantity(const std::string& text);

}  // namespace weft::k8s
