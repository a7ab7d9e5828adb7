// Owns the translation between topology files and topologies.
//
// Readers ask a YamlMap for keys by name. An error is noted in the YamlFile with its place, and
// everything after it does nothing; so the readers need no checks of their own in between.
#include "emu/fabric/topology_yaml.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <map>
#include <sstream>

#include "emu/fabric/fault.hpp"
#include "emu/fabric/htsim_topo.hpp"
#include "srd/base/joined.hpp"

namespace weft::fabric {
namespace {

constexpr std::int64_t kMax = 1 << 20;

// `link` keeps what the file does not say.
void read_link_keys(YamlMap& map, LinkProperties& link) {
  map.read("rate", link.rate);
  map.read("delay", link.delay);
  map.read_bytes("buffer", link.buffer);
  map.read("trimming", link.trimming);
  std::vector<Bytes> marks;
  if (map.has("ecn")) {
    YAML::Node node = map.raw("ecn");
    if (node.IsScalar() && (node.Scalar() == "off" || node.Scalar() == "false")) {
      link.ecn_low = link.ecn_high = 0;
      return;
    }
    map.each("ecn", [&](const YAML::Node& item, const std::string& path) {
      const auto bytes = item.IsScalar() ? parse_bytes(item.Scalar()) : std::nullopt;
      if (!bytes) {
        map.file().fail_at(item, path, "expected a size such as 37350");
        return;
      }
      marks.push_back(*bytes);
    });
    if (!map.file().failed() && (marks.size() != 2 || marks[0] > marks[1] || marks[1] == 0)) {
      map.fail("ecn", "expected [low, high] in bytes with low <= high, or off");
    } else if (marks.size() == 2) {
      link.ecn_low = marks[0];
      link.ecn_high = marks[1];
    }
  }
}

CableSpec read_cable(YamlMap& map, const CableSpec& defaults) {
  CableSpec cable = defaults;
  map.read("rate", cable.rate);
  map.read("delay", cable.delay);
  map.read("switch_latency", cable.switch_latency);
  map.read_bytes("buffer", cable.buffer);
  map.read_bytes("ecn_low", cable.ecn_low);
  map.read_bytes("ecn_high", cable.ecn_high);
  map.read("ecn", cable.ecn);
  map.read("ecn_last_hop", cable.ecn_last_hop);
  map.read("trimming", cable.trimming);
  map.read("mtu", cable.mtu, 128, 65535);
  if (cable.ecn_low > cable.ecn_high) {
    map.fail("ecn_low", "must not exceed ecn_high");
  }
  return cable;
}

// --- Generators. A file names one, and its numbers are keys beside that name. Keys that belong to
// another generator are refused by the caller's finish(), because none of these has asked for them.

// What readers have to know besides the keys.
struct Generator {
  YamlMap& map;
  CableSpec cable;
  const std::string& directory;  // where relative names of files start

  // A number of things; without the key `otherwise`.
  [[nodiscard]] std::uint32_t count(const char* key, std::uint32_t otherwise) const {
    map.read(key, otherwise, 1, kMax);
    return otherwise;
  }
};

// Multiples of `step` around `count`, where that is none itself.
std::string nearest_multiples(std::uint32_t count, std::uint32_t step) {
  const std::uint32_t below = count / step * step;
  return below == 0 ? std::to_string(step)
                    : std::to_string(below) + " and " + std::to_string(below + step);
}

// What is asked for is made, or refused: a network of another size is another experiment.
Result<Topology> exact_fat_tree(std::uint32_t hosts, const CableSpec& cable) {
  const FatTreeSpec spec = k_ary_fat_tree(hosts, cable);
  if (spec.hosts == hosts) {
    return fat_tree(spec);
  }
  const std::uint64_t k = spec.core_down;
  const std::uint64_t smaller = (k - 2) * (k - 2) * (k - 2) / 4;
  return fail(ErrorCode::invalid_argument,
              "fat tree: there is none of " + std::to_string(hosts) +
                  " hosts: with switches of K ports it has K^3/4. The nearest sizes are " +
                  (smaller > 0 ? std::to_string(smaller) + " and " : "") +
                  std::to_string(spec.hosts) +
                  "; `generator: clos` makes others, and `nodes` of traffic takes part of them");
}

struct Leaves {
  std::uint32_t hosts = 128;
  std::uint32_t each = 16;
  double ratio = 1;
};

Result<Leaves> read_leaves(YamlMap& map) {
  Leaves leaves;
  map.read("hosts", leaves.hosts, 1, kMax);
  map.read("hosts_per_leaf", leaves.each, 1, kMax);
  map.read("oversubscription", leaves.ratio, 0.01, 1000);
  if (leaves.hosts % leaves.each != 0) {
    return fail(ErrorCode::invalid_argument,
                std::to_string(leaves.hosts) + " hosts do not fill leaves of " +
                    std::to_string(leaves.each) + "; the nearest sizes are " +
                    nearest_multiples(leaves.hosts, leaves.each));
  }
  const double uplinks = leaves.each / leaves.ratio;
  constexpr double kRounding = 1e-6;  // of a ratio that a file gives with some digits
  const double whole = std::max(1.0, std::round(uplinks));
  if (std::abs(uplinks - whole) <= kRounding * whole) {
    return leaves;
  }
  const double fewer = std::max(1.0, std::floor(uplinks));
  std::ostringstream text;
  text << "an oversubscription of " << leaves.ratio << " asks for " << uplinks
       << " uplinks of each leaf of " << leaves.each << " hosts; the nearest ratios are "
       << leaves.each / (fewer + 1) << " and " << leaves.each / fewer;
  return fail(ErrorCode::invalid_argument, text.str());
}

// `hosts` says the same as `switches` times `hosts_per_switch`, and stands for one of them.
Result<void> read_switches(YamlMap& map, std::uint32_t& switches, std::uint32_t& per_switch) {
  std::uint32_t hosts = 0;
  map.read("switches", switches, 1, kMax);
  map.read("hosts_per_switch", per_switch, 1, kMax);
  map.read("hosts", hosts, 1, kMax);
  if (hosts == 0 || map.file().failed()) {
    return {};
  }
  const auto text = [](std::uint32_t number) { return std::to_string(number); };
  if (map.has("switches") && map.has("hosts_per_switch")) {
    if (std::uint64_t{switches} * per_switch != hosts) {
      return fail(ErrorCode::invalid_argument,
                  text(switches) + " switches with " + text(per_switch) + " hosts each are not " +
                      text(hosts) + " hosts; leave one of the three out");
    }
    return {};
  }
  const bool by_switch = map.has("switches");
  const std::uint32_t step = by_switch ? switches : per_switch;
  if (hosts % step != 0) {
    return fail(ErrorCode::invalid_argument,
                text(hosts) + " hosts do not divide among " + text(step) +
                    (by_switch ? " switches" : " hosts of each switch") +
                    "; the nearest sizes are " + nearest_multiples(hosts, step));
  }
  (by_switch ? per_switch : switches) = hosts / step;
  return {};
}

Result<Topology> read_fat_tree(const Generator& from) {
  return exact_fat_tree(from.count("hosts", 128), from.cable);
}

Result<Topology> read_leaf_spine(const Generator& from) {
  const auto leaves = read_leaves(from.map);
  return !leaves ? tl::unexpected(leaves.error())
                 : fat_tree(leaf_spine(leaves->hosts, leaves->each, leaves->ratio, from.cable));
}

// A folded Clos network with every radix by hand.
Result<Topology> read_clos(const Generator& from) {
  FatTreeSpec spec;
  spec.cable = from.cable;
  from.map.read("tiers", spec.tiers, 2, 3);
  spec.hosts = from.count("hosts", spec.hosts);
  spec.hosts_per_pod = from.count("hosts_per_pod", spec.hosts_per_pod);
  spec.tor_down = from.count("tor_down", spec.tor_down);
  spec.tor_up = from.count("tor_up", spec.tor_up);
  spec.agg_down = from.count("agg_down", spec.agg_down);
  spec.agg_up = from.count("agg_up", spec.agg_up);
  spec.core_down = from.count("core_down", spec.core_down);
  return fat_tree(spec);
}

Result<Topology> read_ring(const Generator& from) {
  std::uint32_t switches = 8;
  std::uint32_t per_switch = 16;
  const auto read = read_switches(from.map, switches, per_switch);
  return !read ? tl::unexpected(read.error()) : ring(switches, per_switch, from.cable);
}

Result<Topology> read_torus(const Generator& from) {
  std::vector<std::uint32_t> sides;
  from.map.each("sides", [&](const YAML::Node& item, const std::string& path) {
    std::uint32_t side = 0;
    if (!item.IsScalar() || !YAML::convert<std::uint32_t>::decode(item, side)) {
      from.map.file().fail_at(item, path, "expected a number of switches");
    }
    sides.push_back(side);
  });
  return torus(sides, from.count("hosts_per_switch", 16), from.cable);
}

Result<Topology> read_random_graph(const Generator& from) {
  std::uint32_t switches = 8;
  std::uint32_t per_switch = 16;
  if (const auto read = read_switches(from.map, switches, per_switch); !read) {
    return tl::unexpected(read.error());
  }
  const std::uint32_t degree = from.count("degree", 4);
  Duration spread{};
  std::uint64_t seed = 1;
  from.map.read("delay_spread", spread);
  from.map.read("seed", seed, 0, INT64_MAX);
  return random_graph(switches, degree, per_switch, spread, seed, from.cable);
}

Result<Topology> read_rail_optimised(const Generator& from) {
  const std::uint32_t groups = from.count("groups", 4);
  const std::uint32_t per_group = from.count("hosts_per_group", 16);
  const std::uint32_t rails = from.count("rails", 4);
  return rail_optimised(groups, per_group, rails, from.count("spines", 8), from.cable);
}

Result<Topology> read_multi_plane(const Generator& from) {
  const std::uint32_t planes = from.count("planes", 2);
  const auto leaves = read_leaves(from.map);
  return !leaves ? tl::unexpected(leaves.error())
                 : multi_plane(planes, leaves->hosts, leaves->each, leaves->ratio, from.cable);
}

// A file of the htsim simulator.
Result<Topology> read_htsim(const Generator& from) {
  std::string name;
  from.map.read("file", name);
  const bool is_whole = name.starts_with('/') || from.directory.empty();
  const std::string path = is_whole ? name : from.directory + "/" + name;
  auto text = read_text_file(path);
  if (!text) {
    return tl::unexpected<Error>(text.error());
  }
  return read_htsim_topology(path, *text, from.cable);
}

// The names, and for each in the same order the function that reads its keys.
constexpr std::initializer_list<const char*> kShapes{
    "fat-tree",     "leaf-spine",     "clos",        "ring", "torus",
    "random-graph", "rail-optimised", "multi-plane", "htsim"};
using ReadShape = Result<Topology>(const Generator& from);
constexpr ReadShape* kReaders[] = {read_fat_tree,       read_leaf_spine,  read_clos,
                                   read_ring,           read_torus,       read_random_graph,
                                   read_rail_optimised, read_multi_plane, read_htsim};
static_assert(kShapes.size() == std::size(kReaders));

// In quotes, so that YAML reads any content as text.
std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
    }
    out += c;
  }
  return out + "\"";
}

// --- Nodes and links one by one.

// One entry under `nodes`. `kinds` are the file's own: what the node does not say, its kind does.
void read_node(YamlMap& map, const std::map<std::string, YAML::Node>& kinds, const NodeKeys* more,
               Topology& net, const std::string& name, const YAML::Node& node,
               const std::string& path) {
  if (!is_node_name(name)) {
    map.file().fail_at(node, path, kNodeNameRule);
  }
  YamlMap keys(map.file(), node, path);
  std::string kind = more == nullptr ? "switch" : "host";
  std::int64_t tier = 1;
  Duration latency{};
  keys.read("kind", kind);
  std::string base = kind;
  if (const auto it = kinds.find(kind); it != kinds.end()) {
    YamlMap kind_map(map.file(), it->second, "kinds." + kind);
    base = "switch";
    kind_map.read("base", base);
    kind_map.read("tier", tier, 1, 200);
    kind_map.read("latency", latency);
    if (more != nullptr) {
      more->read(name, kind_map, it->second);
    }
    kind_map.finish();
  }
  keys.read("tier", tier, 1, 200);
  keys.read("latency", latency);
  if (more != nullptr) {
    more->read(name, keys, node);
  }
  keys.finish();
  if (net.find(name) != kNone) {
    map.file().fail_at(node, path, "a node of this name was already given");
  } else if (base == "host" || (more != nullptr && base == "linux")) {  // as containerlab says
    net.add_host(name);
  } else if (base == "switch") {
    net.add_switch(name, static_cast<std::uint8_t>(tier), latency);
  } else {
    map.file().fail_at(node, path + ".kind",
                       "expected host, switch, or a name under 'kinds'; found '" + kind + "'");
  }
}

// A NIC's own queue has no limit, and neither marks nor cuts, whatever the link says: the transport
// paces it.
LinkProperties leaving(const Node& node, LinkProperties properties) {
  if (node.kind == Node::Kind::host) {
    properties.buffer = 0;
    properties.ecn_low = properties.ecn_high = 0;
    properties.trimming = false;
  }
  return properties;
}

// One entry under `links`. What it does not say comes from `defaults`.
void read_link(YamlMap& map, const LinkProperties& defaults, Topology& net, const YAML::Node& node,
               const std::string& path) {
  YamlMap keys(map.file(), node, path);
  std::vector<NodeId> ends;
  keys.each("endpoints", [&](const YAML::Node& item, const std::string& item_path) {
    std::string name = item.IsScalar() ? item.Scalar() : "";
    name = name.substr(0, name.find(':'));  // "node:interface" as containerlab writes it
    const NodeId id = net.find(name);
    if (id == kNone) {
      map.file().fail_at(item, item_path, "there is no node called '" + name + "' under 'nodes'");
    }
    ends.push_back(id);
  });
  LinkProperties link = defaults;
  read_link_keys(keys, link);
  LinkProperties back = link;
  YamlMap reverse = keys.map("reverse");  // where the way back differs
  read_link_keys(reverse, back);
  reverse.finish();
  keys.finish();
  if (!map.file().failed() && ends.size() != 2) {
    map.file().fail_at(node, path, "expected endpoints: [one, other]");
  }
  if (!map.file().failed()) {
    net.connect(ends[0], ends[1], leaving(net.nodes()[ends[0]], link),
                leaving(net.nodes()[ends[1]], back));
  }
}

Topology explicit_nodes(YamlMap& map, const NodeKeys* more) {
  Topology net;
  LinkProperties defaults;
  YamlMap default_map = map.map("defaults");
  read_link_keys(default_map, defaults);
  if (more != nullptr) {
    more->read("", default_map, map.raw("defaults"));
  }
  default_map.finish();
  std::map<std::string, YAML::Node> kinds;
  map.each_pair("kinds", [&](const std::string& name, const YAML::Node& node, const std::string&) {
    kinds[name] = node;
  });
  map.each_pair("nodes",
                [&](const std::string& name, const YAML::Node& node, const std::string& path) {
                  read_node(map, kinds, more, net, name, node, path);
                });
  map.each("links", [&](const YAML::Node& node, const std::string& path) {
    read_link(map, defaults, net, node, path);
  });
  return net;
}

}  // namespace

Result<Topology> read_topology_file(const std::string& path) {
  const auto text = read_text_file(path);
  if (!text) {
    return tl::unexpected(text.error());
  }
  return read_topology(path, *text, std::filesystem::path(path).parent_path().string());
}

Topology read_topology_map(YamlMap& map, const std::string& directory, const NodeKeys* more) {
  Topology net;
  if (map.has("generator")) {
    if (more != nullptr) {
      YamlMap defaults = map.map("defaults");
      more->read("", defaults, map.raw("defaults"));
      defaults.finish();
    }
    const auto shape = static_cast<std::size_t>(map.choice("generator", kShapes, 0));
    auto made = kReaders[shape](Generator{map, read_cable(map, {}), directory});
    if (!made) {
      map.fail("generator", made.error().message);
      return net;
    }
    net = std::move(*made);
  } else if (map.has("nodes")) {
    net = explicit_nodes(map, more);
  } else {
    map.fail_here("expected 'generator: NAME' or 'nodes:' and 'links:'");
  }
  map.finish();
  if (!map.file().failed() && (more == nullptr || !net.links().empty())) {
    if (auto valid = net.validate(); !valid) {
      map.fail_here(valid.error().message);
    }
  }
  return net;
}

Result<Topology> read_topology(const std::string& file_name, const std::string& text,
                               const std::string& directory) {
  YamlFile file(file_name);
  const YAML::Node root = file.load(text);
  YamlMap top(file, root, "");
  std::string name = "network";
  top.read_label("name", name);
  YamlMap map = top.map("topology");
  Topology net = read_topology_map(map, directory);
  top.finish();
  if (file.failed()) {
    return tl::unexpected<Error>(file.error());
  }
  net.name = name;
  return net;
}

namespace {

// What a fault of a link may do. The other keys say when, to which links, or how exactly.
constexpr std::array<const char*, 10> kTroubles = {
    "down",        "loss",       "burst_loss",  "grey",   "corruption",
    "duplication", "reordering", "extra_delay", "jitter", "rate_factor"};

// The value does not count: `loss: 0` is what a series of values begins with.
bool says_what_happens(YamlMap& map) {
  return std::ranges::any_of(kTroubles, [&map](const char* key) { return map.has(key); });
}

}  // namespace

Fault read_fault(YamlFile& file, const YAML::Node& node, const std::string& path) {
  YamlMap map(file, node, path);
  Fault fault;
  Impairment& is = fault.impairment;
  map.read_label("name", fault.name);
  const bool link = map.has("link");
  const bool node_dies = map.has("switch");
  const bool host = map.has("host");
  if (int{link} + int{node_dies} + int{host} != 1) {
    map.fail_here("expected exactly one of link, switch (it dies) and host (it pauses)");
  }
  map.read("link", fault.where);
  map.read("switch", fault.where);
  map.read("host", fault.where);
  fault.target = link        ? Fault::Target::links
                 : node_dies ? Fault::Target::node
                             : Fault::Target::host;
  if (node_dies && map.has("down")) {
    bool down = true;
    map.read("down", down);
    if (!down) {
      map.fail("down", "a switch in a fault is one that dies; for links of it name them as 'link'");
    }
  }
  map.read("share", fault.share, 0, 1);
  map.read("at", fault.at);
  map.read("lasts", fault.lasts);
  map.read("every", fault.every);
  map.read("times", fault.times, 1, 100'000);
  if (link) {
    map.read("down", is.down);
    map.read("rate_factor", is.rate_factor, 1e-6, 1000);
    map.read("extra_delay", is.extra_delay);
    map.read("jitter", is.jitter);
    map.read("loss", is.loss, 0, 1);
    map.read("min_bytes", is.min_bytes, 0, 65535);
    map.read("corruption", is.corruption, 0, 1);
    map.read("duplication", is.duplication, 0, 1);
    map.read("reordering", is.reordering, 0, 1);
    map.read("reorder_delay", is.reorder_delay);
    map.read("grey", is.grey, 0, 1);
    if (map.has("burst_loss")) {
      YamlMap burst = map.map("burst_loss");
      burst.read("enter", is.burst.enter, 0, 1);
      burst.read("leave", is.burst.leave, 0, 1);
      burst.read("loss", is.burst.loss, 0, 1);
      burst.finish();
    }
  }
  map.finish();
  if (link && !says_what_happens(map)) {
    map.fail_here("nothing happens to the link: say one of " + joined(kTroubles, ", "));
  }
  return fault;
}

std::string write_topology(const Topology& topology) {
  std::string text = "name: " + quoted(topology.name) + "\ntopology:\n  nodes:\n";
  for (const Node& node : topology.nodes()) {
    text += "    " + node.name + ": {kind: ";
    if (node.kind == Node::Kind::host) {
      text += "host}\n";
    } else {
      text += "switch, tier: " + std::to_string(node.tier) +
              ", latency: " + std::to_string(node.latency.count()) + "ns}\n";
    }
  }
  const auto keys = [](const LinkProperties& link) {
    const std::string ecn = link.ecn_high == 0 ? "off"
                                               : "[" + std::to_string(link.ecn_low) + ", " +
                                                     std::to_string(link.ecn_high) + "]";
    return "rate: " + std::to_string(link.rate.bits_per_second()) +
           ", delay: " + std::to_string(link.delay.count()) +
           "ns, buffer: " + std::to_string(link.buffer) + ", ecn: " + ecn +
           ", trimming: " + (link.trimming ? "true" : "false");
  };
  text += "  links:\n";
  const auto& links = topology.links();
  for (LinkId link = 0; link + 1 < links.size(); link += 2) {
    text += "    - {endpoints: [" + topology.nodes()[links[link].from].name + ", " +
            topology.nodes()[links[link].to].name + "], " + keys(links[link].properties) +
            ", reverse: {" + keys(links[link + 1].properties) + "}}\n";
  }
  return text;
}

}  // namespace weft::fabric
