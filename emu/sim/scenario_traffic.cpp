// Owns the kinds of traffic that a scenario may ask for, and the keys of each. A table has a reader
// for each kind; all kinds have a start, a size and a group in common.
#include "emu/sim/scenario_traffic.hpp"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <vector>

#include "emu/fabric/topology_yaml.hpp"
#include "emu/sim/traffic.hpp"

namespace weft::sim {
namespace {

constexpr std::int64_t kMaxHosts = 1 << 20;

// What all kinds of traffic have in common, read before the kind's own keys.
struct Group {
  std::uint32_t number = 0;  // in the list of the file
  std::uint32_t ports = 0;   // of the network
  std::uint32_t nodes = 0;   // the first so many of them take part
  Bytes bytes = 2'000'000;   // of each flow
  Duration start{};
  std::vector<fabric::PortId> ranks;
  Rng rng;
};

// Where a reader puts its flows.
struct Target {
  Scenario& scenario;
  TrafficBuilder builder;
  const std::string& directory;
};

std::string beside(const std::string& directory, const std::string& name) {
  return name.starts_with('/') || directory.empty() ? name : directory + "/" + name;
}

std::vector<fabric::PortId> read_ports(fabric::YamlMap& map, const char* key, std::uint32_t ports) {
  std::vector<fabric::PortId> list;
  map.each(key, [&](const YAML::Node& item, const std::string& path) {
    fabric::PortId port = 0;
    if (!item.IsScalar() || !YAML::convert<fabric::PortId>::decode(item, port) || port >= ports) {
      map.file().fail_at(item, path,
                         "expected the number of a NIC from 0 to " + std::to_string(ports - 1));
      return;
    }
    list.push_back(port);
  });
  return list;
}

void read_permutation(fabric::YamlMap& /*map*/, Group& group, Target& to) {
  to.builder.permutation(group.nodes, group.bytes, group.rng, fabric::picos(group.start));
}

// `count` of the ports other than `one`, drawn by lot; all of them if there are not more.
std::vector<fabric::PortId> draw_others(Group& group, fabric::PortId one, std::uint32_t count) {
  std::vector<fabric::PortId> others;
  for (fabric::PortId port = 0; port < group.ports; ++port) {
    if (port != one) {
      others.push_back(port);
    }
  }
  if (count < others.size()) {
    for (std::size_t i = 0; i < count; ++i) {
      std::swap(others[i],
                others[i + group.rng.below(static_cast<std::uint32_t>(others.size() - i))]);
    }
    others.resize(count);
  }
  return others;
}

// The other ends of flows that have one end in common: a list under `list`, or `count` by lot.
std::vector<fabric::PortId> read_others(fabric::YamlMap& map, Group& group, fabric::PortId one,
                                        const char* list, const char* count, const char* conflict) {
  if (!map.has(list)) {
    std::uint32_t number = std::min(group.nodes - 1, 32U);
    map.read(count, number, 1, group.ports - 1);
    return draw_others(group, one, number);
  }
  auto others = read_ports(map, list, group.ports);
  if (std::find(others.begin(), others.end(), one) != others.end()) {
    map.fail(list, conflict);
  }
  return others;
}

void read_incast(fabric::YamlMap& map, Group& group, Target& to) {
  fabric::PortId receiver = 0;
  map.read("receiver", receiver, 0, group.ports - 1);
  const auto senders = read_others(map, group, receiver, "from", "senders",
                                   "the receiver cannot be one of the senders");
  to.builder.incast(senders, receiver, group.bytes, fabric::picos(group.start));
}

void read_fan_out(fabric::YamlMap& map, Group& group, Target& to) {
  fabric::PortId sender = 0;
  map.read("sender", sender, 0, group.ports - 1);
  const auto receivers = read_others(map, group, sender, "to", "receivers",
                                     "the sender cannot be one of the receivers");
  to.builder.fan_out(sender, receivers, group.bytes, fabric::picos(group.start));
}

void read_all_to_all(fabric::YamlMap& map, Group& group, Target& to) {
  std::uint32_t window = 8;
  map.read("window", window, 1, kMaxHosts);
  static constexpr const char* kOrders[] = {"random", "staggered"};
  if (map.choice("order", kOrders, 0) == 0) {
    to.builder.all_to_all(group.nodes, group.bytes, window, group.rng);
  } else {
    to.builder.staggered_all_to_all(group.nodes, group.bytes, window, group.rng);
  }
}

// `chunk` is what a rank sends in a step, where the file gives that and not the whole buffer.
void read_ring_all_reduce(fabric::YamlMap& map, Group& group, Target& to) {
  Bytes chunk = 0;
  map.read_bytes("chunk", chunk);
  to.builder.ring_all_reduce(group.ranks, chunk > 0 ? chunk * group.ranks.size() : group.bytes);
}

void read_tree_all_reduce(fabric::YamlMap& /*map*/, Group& group, Target& to) {
  to.builder.tree_all_reduce(group.ranks, group.bytes);
}

void read_recursive_doubling(fabric::YamlMap& /*map*/, Group& group, Target& to) {
  to.builder.recursive_doubling(group.ranks, group.bytes);
}

// A gather and a scatter send the same, only the reduction differs.
void read_ring_pass(fabric::YamlMap& /*map*/, Group& group, Target& to) {
  to.builder.ring_pass(group.ranks, group.bytes);
}

void read_tornado(fabric::YamlMap& /*map*/, Group& group, Target& to) {
  to.builder.tornado(group.nodes, group.bytes);
}

void read_random(fabric::YamlMap& map, Group& group, Target& to) {
  std::string sizes = "web-search";
  std::uint32_t count = 1000;
  double load = 0.5;
  map.read("sizes", sizes);
  map.read("flows", count, 1, 1 << 24);
  map.read("load", load, 0.001, 1);
  SizeDistribution distribution = size_distribution(sizes);
  if (sizes == "fixed") {
    const auto size = static_cast<double>(group.bytes);
    distribution = {{{size, 0}, {size, 1}}};
  }
  if (distribution.points.empty()) {
    map.fail("sizes", "expected web-search, hadoop, ai or fixed; found '" + sizes + "'");
    return;
  }
  // NICs may differ: the load is that of their mean.
  const fabric::Topology& topology = to.scenario.topology;
  const auto uplinks = topology.ports();
  std::uint64_t sum = 0;
  for (std::uint32_t port = 0; port < group.nodes; ++port) {
    sum += topology.links()[uplinks[port]].properties.rate.bits_per_second();
  }
  to.builder.random(group.nodes, count, distribution, load,
                    Rate::bits_per_second(sum / group.nodes), group.rng);
}

// Triggers are numbered within a matrix, so those of the second one move up.
void append_matrix(fabric::TrafficMatrix& into, fabric::TrafficMatrix&& other,
                   std::uint32_t group) {
  const auto shift = static_cast<std::uint32_t>(into.triggers.size());
  const auto moved = [&](std::uint32_t trigger) {
    return trigger == fabric::kNone ? fabric::kNone : trigger + shift;
  };
  for (fabric::FlowSpec& flow : other.flows) {
    flow.trigger = moved(flow.trigger);
    flow.on_sent = moved(flow.on_sent);
    flow.on_received = moved(flow.on_received);
    flow.group = group;
    into.flows.push_back(flow);
  }
  into.triggers.insert(into.triggers.end(), other.triggers.begin(), other.triggers.end());
  into.nodes = std::max(into.nodes, other.nodes);
}

// The reference simulator takes starts for microseconds, and its generators write picoseconds: a
// file alone does not say which they are.
bool read_start_unit(fabric::YamlMap& map, const std::string& path, fabric::TrafficMatrix& matrix,
                     std::vector<std::string>& warnings) {
  static constexpr const char* kUnits[] = {"ps", "ns", "us", "ms"};
  const bool said = map.has("start_unit");
  fabric::Picos unit = 1;
  for (std::size_t i = map.choice("start_unit", kUnits, 0); i > 0; --i) {
    unit *= 1000;
  }
  constexpr fabric::Picos kLatest = 1'000'000'000'000'000;  // 1000 s
  for (fabric::FlowSpec& flow : matrix.flows) {
    if (flow.start > kLatest / unit) {
      map.fail("start_unit", path + " has a start of " + std::to_string(flow.start) + " " +
                                 kUnits[unit == 1           ? 0
                                        : unit == 1000      ? 1
                                        : unit == 1'000'000 ? 2
                                                            : 3] +
                                 "; 1000 s is the latest");
      return false;
    }
    if (!said && flow.start != 0 && warnings.empty()) {
      warnings.push_back(path +
                         ": starts are taken for picoseconds, as its generators write them; the "
                         "reference simulator itself reads microseconds. Say which it is with "
                         "'start_unit: ps' or 'start_unit: us' beside 'file'");
    }
    flow.start *= unit;
  }
  return true;
}

void read_matrix(fabric::YamlMap& map, Group& group, Target& to) {
  std::string name;
  map.read("file", name);
  const std::string path = beside(to.directory, name);
  auto text = fabric::read_text_file(path);
  auto matrix = text ? fabric::read_htsim_matrix(path, *text)
                     : Result<fabric::TrafficMatrix>(tl::unexpected<Error>(text.error()));
  if (!matrix) {
    map.fail("file", matrix.error().message);
    return;
  }
  if (!read_start_unit(map, path, *matrix, to.scenario.warnings)) {
    return;
  }
  append_matrix(to.scenario.traffic, std::move(*matrix), group.number);
}

void read_flows(fabric::YamlMap& map, Group& group, Target& to) {
  map.each("flows", [&](const YAML::Node& item, const std::string& path) {
    fabric::YamlMap flow(map.file(), item, path);
    fabric::PortId from = 0;
    fabric::PortId destination = 0;
    Bytes bytes = 1;
    Duration start{};
    flow.read("from", from, 0, group.ports - 1);
    flow.read("to", destination, 0, group.ports - 1);
    flow.read_bytes("bytes", bytes);
    flow.read("start", start);
    flow.finish();
    if (from == destination) {
      flow.fail("to", "a flow needs two different NICs");
    }
    to.builder.flow(from, destination, bytes, fabric::picos(start));
  });
}

// The key `kind` chooses the reader of the kind's own keys. The first kind is what a group without
// that key gets.
struct Kind {
  const char* name;
  void (*read)(fabric::YamlMap& map, Group& group, Target& to);
};
constexpr Kind kKinds[] = {
    {"permutation", read_permutation},
    {"incast", read_incast},
    {"fan-out", read_fan_out},
    {"all-to-all", read_all_to_all},
    {"ring-all-reduce", read_ring_all_reduce},
    {"tree-all-reduce", read_tree_all_reduce},
    {"recursive-doubling", read_recursive_doubling},
    {"all-gather", read_ring_pass},
    {"reduce-scatter", read_ring_pass},
    {"tornado", read_tornado},
    {"random", read_random},
    {"matrix", read_matrix},
    {"flows", read_flows},
};

const Kind& kind_of(fabric::YamlMap& map) {
  std::vector<const char*> names;
  std::ranges::transform(kKinds, std::back_inserter(names), &Kind::name);
  return kKinds[map.choice("kind", names, 0)];
}

void read_group(fabric::YamlMap& map, std::uint32_t number, Target& to) {
  const auto ports = static_cast<std::uint32_t>(to.scenario.topology.ports().size());
  std::uint64_t seed = to.scenario.seed;
  map.read("seed", seed, 0, INT64_MAX);
  Group group{.number = number,
              .ports = ports,
              .nodes = ports,
              .start = {},
              .ranks = {},
              .rng = Rng(mix64(seed) + number)};
  map.read("nodes", group.nodes, 2, ports);
  map.read_bytes("bytes", group.bytes);
  map.read("start", group.start);
  if (group.bytes == 0) {
    map.fail("bytes", "a flow carries at least 1 byte");
  }
  const Kind& kind = kind_of(map);
  if (map.has("ranks")) {
    group.ranks = read_ports(map, "ranks", ports);
    if (group.ranks.size() < 2) {
      map.fail("ranks", "a collective needs at least two ranks");
      return;
    }
  } else {
    group.ranks.resize(group.nodes);
    std::iota(group.ranks.begin(), group.ranks.end(), 0U);
  }
  kind.read(map, group, to);
}

}  // namespace

void read_traffic(fabric::YamlMap& top, Scenario& scenario, const std::string& directory) {
  const YAML::Node node = top.raw("traffic");
  scenario.traffic.groups.clear();
  std::vector<YAML::Node> parts;
  if (node.IsDefined() && node.IsSequence()) {
    for (const YAML::Node& part : node) {
      parts.push_back(part);
    }
  } else if (node.IsDefined() && node.IsMap()) {
    parts.push_back(node);
  } else {
    top.fail("traffic", "expected a mapping with 'kind', or a list of such");
  }
  for (std::size_t i = 0; i < parts.size() && !top.file().failed(); ++i) {
    const std::string path = parts.size() == 1 ? "traffic" : "traffic[" + std::to_string(i) + "]";
    fabric::YamlMap map(top.file(), parts[i], path);
    std::string name = parts.size() == 1 ? "flows" : "group " + std::to_string(i);
    map.read_label("name", name);
    scenario.traffic.groups.push_back(name);
    const auto number = static_cast<std::uint32_t>(i);
    Target to{scenario, TrafficBuilder(scenario.traffic, number), directory};
    read_group(map, number, to);
    map.finish();
  }
  if (!top.file().failed()) {
    const auto valid =
        validate(scenario.traffic, static_cast<std::uint32_t>(scenario.topology.ports().size()));
    if (!valid) {
      top.fail("traffic", valid.error().message);
    } else if (scenario.traffic.flows.empty()) {
      top.fail("traffic", "there are no flows");
    }
  }
}

}  // namespace weft::sim
