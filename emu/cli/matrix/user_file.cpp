// Owns reading users' matrices, and asking of each condition whether there can be such a network.
//
// A condition names one that everybody has, or gives keys: a topology or generator, faults,
// programs to kill or stop. The network is built here once, only to find mistakes before the first
// cell runs: names of links and hosts that do not exist, and networks too small for the programs.
#include "emu/cli/matrix/user_file.hpp"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "emu/cli/programs.hpp"
#include "emu/fabric/fabric.hpp"
#include "emu/fabric/generators.hpp"
#include "emu/fabric/topology_yaml.hpp"
#include "emu/launch/host_environment.hpp"

namespace weft::cli {
namespace {

// Each is a run under every condition on every device: more is taken for a typing mistake.
constexpr std::size_t kMaxSeeds = 10000;

// Names in a file are relative to the folder of that file, wherever the command is called.
std::string from_folder(const std::string& folder, const std::string& path) {
  return path.starts_with('/') || folder.empty() ? path : folder + "/" + path;
}

// As a word of a command line has it, without the braces.
std::string flow_text(YAML::Node node) {
  node.SetStyle(YAML::EmitterStyle::Flow);
  YAML::Emitter out;
  out << node;
  const std::string text = out.c_str();
  return text.size() < 2 ? text : text.substr(1, text.size() - 2);
}

// A host may have several ports, one after the other.
std::size_t count_hosts(const fabric::Topology& network) {
  std::size_t hosts = 0;
  fabric::NodeId previous = fabric::kNone;
  for (const fabric::LinkId uplink : network.ports()) {
    const fabric::NodeId host = network.links()[uplink].from;
    hosts += host == previous ? 0 : 1;
    previous = host;
  }
  return hosts;
}

class Reader {
 public:
  Reader(const std::string& name, std::string folder, std::size_t hosts)
      : file_(name), folder_(std::move(folder)), hosts_(hosts) {}

  Result<UserMatrix> read(const std::string& text) {
    const YAML::Node root = file_.load(text);
    YamlMap top(file_, root, "");
    read_devices(top);
    read_seeds(top);
    top.each("conditions",
             [&](const YAML::Node& node, const std::string& path) { add(node, path); });
    top.finish();
    if (file_.failed()) {
      return tl::unexpected(file_.error());
    }
    return std::move(matrix_);
  }

 private:
  using YamlMap = fabric::YamlMap;

  void read_devices(YamlMap& top) {
    top.each("devices", [&](const YAML::Node& node, const std::string& path) {
      std::string device = node.IsScalar() ? node.Scalar() : "";
      const std::size_t colon = device.find(':');
      if (colon != std::string::npos && device.ends_with(".yaml")) {  // the user's own profile
        device = device.substr(0, colon + 1) + from_folder(folder_, device.substr(colon + 1));
      }
      if (const auto kind = launch::parse_device_kind(device); !kind) {
        file_.fail_at(node, path, kind.error().message);
      } else if (std::ranges::find(matrix_.devices, device) != matrix_.devices.end()) {
        file_.fail_at(node, path, "'" + device + "' was already given");
      }
      matrix_.devices.push_back(device);
    });
  }

  void read_seeds(YamlMap& top) {
    top.each("seeds", [&](const YAML::Node& node, const std::string& path) {
      std::uint64_t seed = 0;
      if (!node.IsScalar() || node.Scalar().starts_with('-') ||
          !YAML::convert<std::uint64_t>::decode(node, seed)) {
        file_.fail_at(node, path, "expected a seed, a number from 0 on");
      } else if (std::ranges::find(matrix_.seeds, seed) != matrix_.seeds.end()) {
        file_.fail_at(node, path, "seed " + std::to_string(seed) + " was already given");
      } else if (matrix_.seeds.size() == kMaxSeeds) {
        file_.fail_at(node, path, "more than " + std::to_string(kMaxSeeds) + " seeds");
      }
      matrix_.seeds.push_back(seed);
    });
  }

  // The name of one that everybody has, or keys.
  void add(const YAML::Node& node, const std::string& path) {
    Condition condition;
    if (node.IsScalar()) {
      const Condition* const known = find_condition(node.Scalar());
      if (known == nullptr) {
        file_.fail_at(node, path,
                      "there is no condition '" + node.Scalar() +
                          "'; `weft matrix --list` lists them, and one of your own begins with "
                          "'name:'");
        return;
      }
      condition = *known;
    } else {
      condition = read_condition(node, path);
    }
    if (find(condition.name) != nullptr) {
      file_.fail_at(node, path, "condition '" + condition.name + "' was already given");
    }
    matrix_.conditions.push_back(std::move(condition));
  }

  const Condition* find(const std::string& name) const {
    const auto found = std::ranges::find(matrix_.conditions, name, &Condition::name);
    return found == matrix_.conditions.end() ? nullptr : &*found;
  }

  Condition read_condition(const YAML::Node& node, const std::string& path) {
    YamlMap map(file_, node, path);
    Condition condition;
    map.read("name", condition.name);
    if (!fabric::is_node_name(condition.name)) {
      map.fail("name", fabric::kNodeNameRule);
    } else if (find_condition(condition.name) != nullptr) {
      map.fail("name", "'" + condition.name +
                           "' is one of `weft matrix --list`: give the name alone, or another one");
    }
    map.read_label("about", condition.about);
    map.read_label("shows", condition.shows);
    // First, as faults are tried out on it.
    const fabric::Topology network = read_network(map, condition);
    read_faults(map, condition, network);
    read_mishaps(map, "kill", parse_kill, condition.kills);
    read_mishaps(map, "stop", parse_stop, condition.stops);
    map.read("late_receives", condition.late_receives);
    if (map.has("late_receives")) {
      if (const auto time = parse_time(condition.late_receives); !time) {
        map.fail("late_receives", time.error().message);
      }
    }
    map.read("through_weftd", condition.through_weftd);
    map.finish();
    return condition;
  }

  // The network in which the condition's cells will run; a star where it names none. One that is
  // described here is written out for the cells, with as many hosts as they need; a file they read
  // themselves.
  fabric::Topology read_network(YamlMap& map, Condition& condition) {
    if (!map.has("topology")) {
      return star();
    }
    fabric::Topology network;
    if (YAML::Node node = map.raw("topology"); node.IsMap()) {
      network = read_own_network(map, node);
      condition.topology = fabric::write_topology(network);
    } else {
      map.read("topology", condition.topology_file);
      condition.topology_file = from_folder(folder_, condition.topology_file);
      auto read = fabric::read_topology_file(condition.topology_file);
      if (!read) {
        map.fail("topology", read.error().message);
        return network;
      }
      network = std::move(*read);
    }
    if (const std::size_t there = count_hosts(network); there < hosts_) {
      map.fail("topology", "the programs take " + std::to_string(hosts_) +
                               " hosts, and this network has " + std::to_string(there));
    }
    return network;
  }

  // A generator that is not told how many hosts there are makes at least as many as the programs
  // take.
  fabric::Topology read_own_network(YamlMap& map, YAML::Node& node) {
    constexpr std::size_t kMinHosts = 2;
    constexpr std::uint32_t kHostsPerLeaf = 16;  // what topology files mean without the key
    const YAML::Node generator = node["generator"];
    const std::string shape =
        generator.IsDefined() && generator.IsScalar() ? generator.Scalar() : "";
    const bool counts_hosts =
        shape == "fat-tree" || shape == "leaf-spine" || shape == "multi-plane";
    if (counts_hosts && !node["hosts"].IsDefined()) {
      const auto hosts = static_cast<std::uint32_t>(std::max(hosts_, kMinHosts));
      const std::uint32_t per_leaf =
          std::max(node["hosts_per_leaf"].as<std::uint32_t>(kHostsPerLeaf), 1U);
      node["hosts"] = shape == "fat-tree" ? fabric::k_ary_fat_tree(hosts, {}).hosts
                                          : (hosts + per_leaf - 1) / per_leaf * per_leaf;
    }
    YamlMap keys = map.map("topology");
    return fabric::read_topology_map(keys, folder_);
  }

  // What an ideal network becomes when something is to happen to it.
  fabric::Topology star() const {
    fabric::Topology network;
    const fabric::NodeId middle = network.add_switch("fabric");
    for (std::size_t host = 1; host <= hosts_; ++host) {
      network.connect(network.add_host("h" + std::to_string(host)), middle, {});
    }
    return network;
  }

  // Applied to a network that nobody uses: whether a fault's link exists, only the network can say.
  void read_faults(YamlMap& map, Condition& condition, const fabric::Topology& network) {
    // The network is the one that was meant only if all of it could be read.
    if (file_.failed()) {
      return;
    }
    fabric::Fabric fabric(network, {});
    map.each("faults", [&](const YAML::Node& node, const std::string& path) {
      const fabric::Fault fault = fabric::read_fault(file_, node, path);
      if (file_.failed()) {
        return;
      }
      if (const auto applied = fabric.apply(0, fault); !applied) {
        file_.fail_at(node, path, applied.error().message);
      }
      condition.faults.push_back(flow_text(node));
    });
  }

  void read_mishaps(YamlMap& map, const char* key, Result<Mishap> (*parse)(const std::string&),
                    std::vector<std::string>& into) {
    map.each(key, [&](const YAML::Node& node, const std::string& path) {
      const std::string text = node.IsScalar() ? node.Scalar() : "";
      // Read as `weft run` will read it; what is kept is the text with its placeholder.
      const auto mishap = parse(of_the_last_host(text, hosts_));
      if (!mishap) {
        file_.fail_at(node, path, mishap.error().message);
      } else if (!is_host(mishap->name.substr(0, mishap->name.find('.')))) {
        file_.fail_at(node, path,
                      "there is no '" + mishap->name + "' among the " + std::to_string(hosts_) +
                          " hosts; {last} stands for the last one");
      }
      into.push_back(text);
    });
  }

  bool is_host(const std::string& name) const {
    for (std::size_t host = 1; host <= hosts_; ++host) {
      if (name == "h" + std::to_string(host)) {
        return true;
      }
    }
    return false;
  }

  fabric::YamlFile file_;
  std::string folder_;
  std::size_t hosts_;
  UserMatrix matrix_;
};

}  // namespace

Result<UserMatrix> read_user_matrix(const std::string& name, const std::string& text,
                                    const std::string& folder, std::size_t hosts) {
  return Reader(name, folder, hosts).read(text);
}

Result<UserMatrix> read_user_matrix(const std::string& path, std::size_t hosts) {
  const auto text = fabric::read_text_file(path);
  if (!text) {
    return tl::unexpected(text.error());
  }
  return read_user_matrix(path, *text, std::filesystem::path(path).parent_path().string(), hosts);
}

}  // namespace weft::cli
