// Owns what container engines are told: the command lines of a lab, as lists of words without the
// engine's own name in front.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "emu/labs/lab_file.hpp"
#include "srd/base/result.hpp"

namespace weft::labs {

// Two programs with the same commands, but for a few words.
enum class EngineKind : std::uint8_t { podman, docker };

using Words = std::vector<std::string>;

// A lab as engines know it. All that is made for it is labelled with its network's directory, which
// no other lab has, so that it is found again by whoever looks.
struct LabIdentity {
  std::string name;
  std::string directory;

  [[nodiscard]] std::string label() const { return "weft.lab=" + directory; }
  [[nodiscard]] std::string network() const;
  [[nodiscard]] std::string container(const std::string& node) const;
};

// What a container is given to be on its host of the emulated network.
struct NodeNics {
  std::vector<std::pair<std::string, std::string>> environment;
  std::string folder;  // of this machine
  std::string mounted_at;
};

struct NodeAddress {
  std::string name;
  std::string address;
};

// The lab's own network. Without `subnet` the engine chooses one; `name` may be another one than
// LabIdentity::network() meanwhile.
[[nodiscard]] Words create_network(EngineKind kind, const LabIdentity& lab, const std::string& name,
                                   const std::string& subnet);
[[nodiscard]] Words create_network(EngineKind kind, const LabIdentity& lab,
                                   const LabNetwork& network);
[[nodiscard]] Words ask_subnet(EngineKind kind, const std::string& network);
// `addresses`: of all nodes in a network of the lab's own, this one's among them; else empty.
[[nodiscard]] Words run_node(EngineKind kind, const LabIdentity& lab, const LabFile& file,
                             const LabNode& node, const NodeNics& nics,
                             const std::vector<NodeAddress>& addresses);
[[nodiscard]] Words list_containers(const LabIdentity& lab, bool only_paused);
[[nodiscard]] Words inspect_containers(const Words& ids);
[[nodiscard]] Words remove_containers(EngineKind kind, const Words& ids);
[[nodiscard]] Words list_networks(const LabIdentity& lab);

// A container as inspect_containers() has it described, one in a line.
struct ContainerState {
  std::string id;
  std::string node;
  std::string state;  // "running", "exited", "paused", ...
  int exit_code = 0;
};
[[nodiscard]] Result<std::vector<ContainerState>> parse_states(std::string_view said);

// `count` addresses of a subnet such as 10.89.0.0/24, behind the first one, which is the engine's.
[[nodiscard]] Result<Words> addresses_in(const std::string& subnet, std::size_t count);

}  // namespace weft::labs
