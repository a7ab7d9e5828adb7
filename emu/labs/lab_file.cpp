// Owns reading lab files. What is said of a network is read by the network's own reader; this one
// adds what is said of containers.
#include "emu/labs/lab_file.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>

#include "emu/fabric/topology_yaml.hpp"
#include "emu/fabric/yaml_reader.hpp"
#include "emu/k8s/address_pool.hpp"

namespace weft::labs {
namespace {

using fabric::YamlFile;
using fabric::YamlMap;

// weftd's limits.
constexpr std::size_t kMaxNodes = 254;
constexpr std::int64_t kMaxNics = 16;

std::string place_of(const YamlFile& file, const YAML::Node& node) {
  return file.name() + ":" + std::to_string(node.Mark().line + 1);
}

// The key `cmd`: a text is a line for the shell, a list is the words themselves.
void read_command(YamlMap& keys, std::vector<std::string>& command) {
  if (!keys.has("cmd")) {
    return;
  }
  if (keys.raw("cmd").IsScalar()) {
    std::string line;
    keys.read("cmd", line);
    // As a shell has quotes and variables, which words do not.
    command = {"sh", "-c", line};
    return;
  }
  command.clear();
  keys.each("cmd", [&](const YAML::Node& word, const std::string& path) {
    if (!word.IsScalar()) {
      keys.file().fail_at(word, path, "expected a word of the command");
      return;
    }
    command.push_back(word.Scalar());
  });
}

void read_words(YamlMap& keys, const char* key, std::vector<std::string>& words) {
  if (!keys.has(key)) {
    return;
  }
  words.clear();
  keys.each(key, [&](const YAML::Node& word, const std::string& path) {
    if (!word.IsScalar() || word.Scalar().empty()) {
      keys.file().fail_at(word, path, "expected a text");
      return;
    }
    words.push_back(word.Scalar());
  });
}

// A variable of a node comes instead of one that its kind or the defaults give.
void read_environment(YamlMap& keys,
                      std::vector<std::pair<std::string, std::string>>& environment) {
  keys.each_pair("env", [&](const std::string& name, const YAML::Node& value,
                            const std::string& path) {
    if (name.empty() || name.find('=') != std::string::npos || !value.IsScalar()) {
      keys.file().fail_at(value, path, "expected NAME: value");
      return;
    }
    if (name.starts_with("WEFT_") || name == "LD_PRELOAD") {
      keys.file().fail_at(value, path,
                          "the lab sets this variable itself: it leads to the emulated NICs");
      return;
    }
    const auto before = std::ranges::find(environment, name, [](const auto& v) { return v.first; });
    if (before != environment.end()) {
      before->second = value.Scalar();
    } else {
      environment.emplace_back(name, value.Scalar());
    }
  });
}

// What a container is made from is one thing: a node's own word replaces that of its kind.
void read_source(YamlMap& keys, const std::string& directory, LabNode& node) {
  const bool image = keys.has("image");
  const bool rootfs = keys.has("rootfs");
  if (image && rootfs) {
    keys.fail("rootfs", "a container is made from an image or from a rootfs, not from both");
  }
  if (image) {
    node.rootfs.clear();
    keys.read("image", node.image);
    if (node.image.empty() || node.image.starts_with('-')) {
      // A name that begins with a dash would be an option of the engine.
      keys.fail("image", "expected the name of an image");
    }
  }
  if (rootfs) {
    node.image.clear();
    keys.read("rootfs", node.rootfs);
    if (node.rootfs.empty()) {
      keys.fail("rootfs", "expected a directory that holds a whole file system");
    } else {
      node.rootfs = std::filesystem::absolute(std::filesystem::path(directory) / node.rootfs)
                        .lexically_normal()
                        .string();
    }
  }
}

void read_node_keys(YamlMap& keys, const std::string& directory, LabNode& node) {
  read_source(keys, directory, node);
  read_command(keys, node.command);
  read_environment(keys, node.environment);
  read_words(keys, "ports", node.ports);
  read_words(keys, "binds", node.binds);
  read_words(keys, "options", node.options);
  keys.read("user", node.user);
  keys.read("memory", node.memory);
  keys.read("cpu", node.cpu);
}

// Reads one file, once. Errors stay in the YamlFile; the lab is of no use if it has one.
class LabReader {
 public:
  LabReader(YamlFile& file, std::string directory)
      : file_(file), directory_(std::move(directory)) {}

  LabFile read(const YAML::Node& root) {
    YamlMap top(file_, root, "");
    // "pair.lab.yaml" is "pair".
    lab_.name = std::filesystem::path(file_.name()).stem().stem().string();
    top.read("name", lab_.name);
    if (!fabric::is_node_name(lab_.name)) {
      top.fail("name", std::string("names a network: ") + fabric::kNodeNameRule);
    }
    top.read("engine", lab_.engine);
    top.read("device", lab_.device);
    top.read("seed", lab_.seed, 0, std::numeric_limits<std::int64_t>::max());
    top.each("allow_uids", [&](const YAML::Node& item, const std::string& path) {
      uid_t user = 0;
      if (!item.IsScalar() || !YAML::convert<uid_t>::decode(item, user)) {
        file_.fail_at(item, path, "expected the number of a user");
      }
      lab_.other_users.push_back(user);
    });
    read_ip_network(top);
    if (!top.has("topology")) {
      top.fail_here("expected 'topology:' with 'nodes:' (docs/containers.md has an example)");
    }
    YamlMap topology = top.map("topology");
    top_.emplace(top.raw("topology"));
    read_topology(topology);
    top.finish();
    if (!file_.failed()) {
      gather_nodes(topology);
    }
    return std::move(lab_);
  }

 private:
  // What the file says of a node, gathered while the topology is read: which nodes are hosts is
  // known only after that.
  struct Said {
    LabNode node;
    std::optional<YAML::Node> where;
    bool is_container = false;
  };

  void read_ip_network(YamlMap& top) {
    YamlMap management = top.map("mgmt");
    constexpr std::array kKinds{"own", "host", "none"};
    lab_.ip_network = static_cast<IpNetwork>(management.choice("network", kKinds, 0));
    management.read("ipv4-subnet", lab_.subnet);
    if (!lab_.subnet.empty() && lab_.ip_network != IpNetwork::own) {
      management.fail("ipv4-subnet", "only a network of the lab's own has a subnet");
    }
    management.finish();
  }

  void read_topology(YamlMap& topology) {
    has_nics_ = topology.has("nics");
    topology.read("nics", lab_.nics, 1, kMaxNics);
    const fabric::NodeKeys more{
        [&](const std::string& name, YamlMap& keys, const YAML::Node& where) {
          // Keys under `defaults`, which the topology's reader hands over before those of any node.
          if (name.empty()) {
            read_node_keys(keys, directory_, defaults_);
            return;
          }
          // A node's kind is read first and the node itself after it, into the same entry.
          Said& said = said_.try_emplace(name, Said{defaults_, {}, false}).first->second;
          said.node.place = place_of(file_, where);
          said.where.emplace(where);
          said.is_container =
              said.is_container || keys.has("image") || keys.has("rootfs") || keys.has("cmd");
          read_node_keys(keys, directory_, said.node);
        }};
    lab_.topology = fabric::read_topology_map(topology, directory_, &more);
    lab_.topology.name = lab_.name;
  }

  void gather_nodes(YamlMap& topology) {
    for (const fabric::Node& host : lab_.topology.nodes()) {
      const auto said = said_.find(host.name);
      // Hosts of a generator are named nowhere in the file.
      const YAML::Node where = said == said_.end() ? *top_ : *said->second.where;
      const std::string path = topology.path() + ".nodes." + host.name;
      if (host.kind != fabric::Node::Kind::host) {
        if (said != said_.end() && said->second.is_container) {
          file_.fail_at(where, path, "is a switch, and no container: leave image and cmd out");
        }
        continue;
      }
      LabNode node = said == said_.end() ? defaults_ : said->second.node;
      node.name = host.name;
      if (node.place.empty()) {  // a host of a generator
        node.place = place_of(file_, where);
      }
      if (node.image.empty() && node.rootfs.empty()) {
        file_.fail_at(
            where, path,
            "has no 'image' (or 'rootfs: DIRECTORY'), nor have its kind and the defaults");
      }
      admit_user_of(node, lab_.other_users);
      lab_.nodes.push_back(std::move(node));
    }
    if (lab_.nodes.empty()) {
      topology.fail_here("has no host: a node without 'kind: switch' is one");
    }
    if (lab_.nodes.size() > kMaxNodes) {
      topology.fail_here("has " + std::to_string(lab_.nodes.size()) + " hosts; a lab has at most " +
                         std::to_string(kMaxNodes));
    }
    if (!lab_.is_modelled() && lab_.nodes.size() < lab_.topology.nodes().size()) {
      topology.fail_here("has switches and no links: say what is connected, or leave them out");
    }
    if (const auto subnet = k8s::parse_subnet(lab_.subnet);
        !lab_.subnet.empty() &&
        (!subnet || subnet->first.is_v6 ||
         // The network's own address, the engine's and the broadcast: three beside the nodes'.
         subnet->last.number - subnet->first.number < lab_.nodes.size() + 2)) {
      topology.fail_here("has " + std::to_string(lab_.nodes.size()) +
                         " nodes, for which 'ipv4-subnet: " + lab_.subnet +
                         "' has no room: give one such as 10.89.0.0/24");
    }
    if (lab_.is_modelled() && has_nics_) {
      topology.fail("nics", "a host has a NIC for each of its links: leave this out");
    }
  }

  YamlFile& file_;
  std::string directory_;
  LabFile lab_;
  LabNode defaults_;
  std::map<std::string, Said> said_;  // by the node's name
  std::optional<YAML::Node> top_;     // the topology
  bool has_nics_ = false;
};

}  // namespace

void admit_user_of(const LabNode& node, std::vector<uid_t>& users) {
  uid_t user = 0;
  const std::string number = node.user.substr(0, node.user.find(':'));
  const auto [end, status] = std::from_chars(number.data(), number.data() + number.size(), user);
  // Names of users are the image's own, and root may attach anyway.
  if (status == std::errc{} && end == number.data() + number.size() && user != 0 &&
      std::ranges::find(users, user) == users.end()) {
    users.push_back(user);
  }
}

Result<LabFile> read_lab(const std::string& file_name, const std::string& text,
                         const std::string& directory) {
  YamlFile file(file_name);
  const YAML::Node root = file.load(text);
  LabFile lab = LabReader(file, directory).read(root);
  if (file.failed()) {
    return tl::unexpected(file.error());
  }
  return lab;
}

}  // namespace weft::labs
