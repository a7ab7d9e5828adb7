// Owns the command lines for podman and docker, and reading what they answer.
//
// Nothing is kept of what was started: containers and networks are found again by the label that
// they were made with. So a lab can be ended by another process than the one that started it, and
// also when that one was killed half-way.
#include "emu/labs/container_words.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "emu/k8s/address_pool.hpp"
#include "srd/base/joined.hpp"

namespace weft::labs {
namespace {

constexpr const char* kNodeLabel = "weft.node";

void add(Words& words, std::initializer_list<std::string> more) { words.insert(words.end(), more); }

// The beginning of all names of a lab: "weft-" and the name, with its dashes doubled. See
// LabIdentity::container().
std::string front_of(const LabIdentity& lab) {
  std::string front = "weft-";
  for (const char c : lab.name) {
    front += c == '-' ? std::string("--") : std::string(1, c);
  }
  return front;
}

// Several networks: the lab's own as eth0, then those of the pod's interfaces. In this form each
// option carries the address and the name of the interface.
void add_interfaces(Words& words, const LabIdentity& lab, const LabNode& node,
                    const std::string& own_address) {
  add(words,
      {"--network", lab.network() + ":" + (own_address.empty() ? "" : "ip=" + own_address + ",") +
                        "interface_name=eth0"});
  for (const LabInterface& interface : node.interfaces) {
    add(words, {"--network", lab.container(interface.network) +
                                 ":ip=" + joined(interface.addresses, ",ip=") +
                                 ",interface_name=" + interface.name});
  }
}

void add_ip_network(Words& words, const LabIdentity& lab, const LabFile& file, const LabNode& node,
                    const std::vector<NodeAddress>& addresses) {
  // A pod's second container lives in the network namespace of the first.
  if (!node.beside.empty()) {
    add(words, {"--network", "container:" + lab.container(node.beside)});
    return;
  }
  if (file.ip_network != IpNetwork::own) {
    add(words, {"--network", file.ip_network == IpNetwork::host ? "host" : "none"});
    return;
  }
  const auto own = std::ranges::find(addresses, node.name, &NodeAddress::name);
  const std::string own_address = own == addresses.end() ? "" : own->address;
  if (!node.interfaces.empty()) {
    add_interfaces(words, lab, node, own_address);
  } else {
    add(words, {"--network", lab.network()});
    if (!own_address.empty()) {
      add(words, {"--ip", own_address});
    }
  }
  for (const auto& [name, address] : addresses) {
    if (name != node.name) {
      add(words, {"--add-host", name + ":" + address});
    }
  }
  for (const auto& [alias, name] : file.aliases) {
    const auto meant = std::ranges::find(addresses, name, &NodeAddress::name);
    if (meant != addresses.end()) {
      add(words, {"--add-host", alias + ":" + meant->address});
    }
  }
}

}  // namespace

// Labs and nodes may have dashes in their names. Those of the lab are doubled, and no node's name
// begins with one, so a single dash ends the lab's name and two labs never mean the same container.
std::string LabIdentity::network() const { return front_of(*this); }
std::string LabIdentity::container(const std::string& node) const {
  return front_of(*this) + "-" + node;
}

// The lab's own network. Its nodes find each other by /etc/hosts (--add-host), so podman's server
// of names is left out.
Words create_network(EngineKind kind, const LabIdentity& lab, const std::string& name,
                     const std::string& subnet) {
  Words words{"network", "create", "--label", lab.label()};
  if (kind == EngineKind::podman) {
    words.emplace_back("--disable-dns");
  }
  if (!subnet.empty()) {
    add(words, {"--subnet", subnet});
  }
  words.push_back(name);
  return words;
}

// One of the further networks, which pods have. --internal: nothing leaves it, and it cannot
// disturb the machine's routes.
Words create_network(EngineKind kind, const LabIdentity& lab, const LabNetwork& network) {
  Words words{"network", "create", "--label", lab.label(), "--internal"};
  if (kind == EngineKind::podman) {
    words.emplace_back("--disable-dns");
  }
  for (const auto& [subnet, gateway] : network.subnets) {
    if (subnet.find(':') != std::string::npos) {
      words.emplace_back("--ipv6");
    }
    add(words, {"--subnet", subnet, "--gateway", gateway});
  }
  words.push_back(lab.container(network.name));
  return words;
}

// Each engine has a template language over its own description of a network.
Words ask_subnet(EngineKind kind, const std::string& network) {
  const char* const subnets = kind == EngineKind::podman
                                  ? "{{range .Subnets}}{{.Subnet}} {{end}}"
                                  : "{{range .IPAM.Config}}{{.Subnet}} {{end}}";
  return {"network", "inspect", "--format", subnets, network};
}

// The command of many images is a shell, which ends at once if it has no terminal. So a node to
// which the lab's file gives no command gets a terminal.
Words run_node(EngineKind kind, const LabIdentity& lab, const LabFile& file, const LabNode& node,
               const NodeNics& nics, const std::vector<NodeAddress>& addresses) {
  Words words{"run",     "--detach",  "--name",  lab.container(node.name),
              "--label", lab.label(), "--label", fmt::format("{}={}", kNodeLabel, node.name)};
  if (file.ip_network != IpNetwork::host && node.beside.empty()) {
    add(words, {"--hostname", node.name});
  }
  add_ip_network(words, lab, file, node, addresses);
  // The lab's own come last, so that they win over what the file says.
  for (const auto* variables : {&node.environment, &nics.environment}) {
    for (const auto& [name, value] : *variables) {
      add(words, {"--env", name + "=" + value});
    }
  }
  if (node.has_nics) {
    add(words, {"--volume", nics.folder + ":" + nics.mounted_at + ":rw"});
  }
  for (const std::string& bind : node.binds) {
    add(words, {"--volume", bind});
  }
  for (const std::string& port : node.ports) {
    add(words, {"--publish", port});
  }
  const std::array<std::pair<const char*, const std::string*>, 3> limits{
      {{"--user", &node.user}, {"--memory", &node.memory}, {"--cpus", &node.cpu}}};
  for (const auto& [option, value] : limits) {
    if (!value->empty()) {
      add(words, {option, *value});
    }
  }
  words.insert(words.end(), node.options.begin(), node.options.end());
  Words command = node.command;
  if (!node.rootfs.empty()) {
    // `:O`: what the container writes goes into an overlay, and the directory stays as it is.
    // Docker has no --rootfs at all.
    add(words, {"--rootfs", node.rootfs + (kind == EngineKind::podman ? ":O" : "")});
    if (command.empty()) {
      command = {"sleep", "infinity"};
    }
  } else {
    if (!node.entry_point.empty()) {
      add(words, {"--entrypoint", node.entry_point});
    } else if (command.empty() && node.has_terminal) {
      add(words, {"--interactive", "--tty"});
    }
    words.push_back(node.image);
  }
  words.insert(words.end(), command.begin(), command.end());
  return words;
}

Words list_containers(const LabIdentity& lab, bool only_paused) {
  Words words{"ps", "--all", "--quiet", "--no-trunc", "--filter", "label=" + lab.label()};
  if (only_paused) {
    add(words, {"--filter", "status=paused"});
  }
  return words;
}

Words inspect_containers(const Words& ids) {
  Words words{"container", "inspect", "--format",
              fmt::format("{{{{.Id}}}} {{{{index .Config.Labels \"{}\"}}}} "
                          "{{{{.State.Status}}}} {{{{.State.ExitCode}}}}",
                          kNodeLabel)};
  words.insert(words.end(), ids.begin(), ids.end());
  return words;
}

Words remove_containers(EngineKind kind, const Words& ids) {
  Words words{"rm", "--force", "--volumes"};
  if (kind == EngineKind::podman) {
    add(words, {"--time", "0"});
  }
  words.insert(words.end(), ids.begin(), ids.end());
  return words;
}

Words list_networks(const LabIdentity& lab) {
  return {"network", "ls", "--filter", "label=" + lab.label(), "--format", "{{.Name}}"};
}

Result<std::vector<ContainerState>> parse_states(std::string_view said) {
  std::vector<ContainerState> states;
  for (std::string_view rest = said; !rest.empty();) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    // A line that has fewer leaves the rest empty, and is refused below for its code.
    std::array<std::string_view, 4> words{};
    std::size_t from = 0;
    for (std::string_view& word : words) {
      const std::size_t to = std::min(line.find(' ', from), line.size());
      word = line.substr(std::min(from, line.size()), to - std::min(from, line.size()));
      from = std::min(to + 1, line.size());
    }
    if (line.empty()) {
      continue;
    }
    ContainerState state{std::string(words[0]), std::string(words[1]), std::string(words[2])};
    const auto code = words[3];
    if (std::from_chars(code.data(), code.data() + code.size(), state.exit_code).ptr !=
            code.data() + code.size() ||
        code.empty()) {
      return fail(ErrorCode::parse_error,
                  fmt::format("the container engine says '{}' of a container, which cannot be read",
                              line.substr(0, 200)));
    }
    states.push_back(std::move(state));
  }
  return states;
}

Result<Words> addresses_in(const std::string& text, std::size_t count) {
  const auto subnet = k8s::parse_subnet(text);
  if (!subnet || subnet->first.is_v6) {
    return fail(ErrorCode::invalid_argument,
                "'" + text + "' is no IPv4 subnet: expected one such as 10.89.0.0/24");
  }
  auto pool = k8s::AddressPool::of(*subnet, std::nullopt, std::nullopt);
  if (!pool || pool->size(count + 1) < count + 1) {
    return fail(ErrorCode::invalid_argument,
                fmt::format("the subnet {} has no room for the engine and {} nodes", text, count));
  }
  (void)pool->take();  // the engine's
  Words addresses;
  while (addresses.size() < count) {
    const std::string address = *pool->take();
    addresses.push_back(address.substr(0, address.find('/')));
  }
  return addresses;
}

}  // namespace weft::labs
