// Owns the reading of scenario files.
#include "emu/sim/scenario.hpp"

#include <algorithm>
#include <numeric>

#include "emu/fabric/generators.hpp"
#include "emu/fabric/topology_yaml.hpp"
#include "emu/fabric/yaml_reader.hpp"
#include "emu/sim/engine_transport.hpp"
#include "emu/sim/traffic.hpp"
#include "srd/engine/cc/congestion_control.hpp"
#include "srd/engine/paths/path_selector.hpp"

namespace weft::sim {
namespace {

constexpr std::int64_t kMostHosts = 1 << 20;
constexpr Bytes kAckSize = 64;  // on the wire

std::string beside(const std::string& directory, const std::string& name) {
  return name.starts_with('/') || directory.empty() ? name : directory + "/" + name;
}

// --- Settings: "a.b.c" = value, lists by number. Places that are not in the file come into being;
// the readers then refuse keys that mean nothing.
void apply_setting(fabric::YamlFile& file, YAML::Node& root, const std::string& key,
                   const std::string& value) {
  std::vector<std::string> parts;
  for (std::size_t at = 0; at <= key.size();) {
    const std::size_t dot = std::min(key.find('.', at), key.size());
    parts.push_back(key.substr(at, dot - at));
    at = dot + 1;
  }
  YAML::Node node;
  node.reset(root);
  for (const std::string& part : parts) {
    if (part.empty() || (node.IsDefined() && node.IsScalar())) {
      file.fail_at(YAML::Node(YAML::NodeType::Undefined), "--set " + key,
                   "there is no such place in the file");
      return;
    }
    YAML::Node next;
    if (node.IsSequence()) {
      const std::size_t index = static_cast<std::size_t>(std::strtoull(part.c_str(), nullptr, 10));
      if (index >= node.size()) {
        file.fail_at(node, "--set " + key, "the list has no element " + part);
        return;
      }
      next.reset(node[index]);
    } else {
      next.reset(node[part]);
    }
    node.reset(next);
  }
  YAML::Node parsed = file.load(value);
  if (!file.failed()) {
    node = parsed;
  }
}

// --- Traffic.
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

void read_pairs(fabric::YamlMap& map, TrafficBuilder& builder, std::uint32_t ports) {
  map.each("flows", [&](const YAML::Node& item, const std::string& path) {
    fabric::YamlMap flow(map.file(), item, path);
    fabric::PortId from = 0;
    fabric::PortId to = 0;
    Bytes bytes = 1;
    Duration start{};
    flow.read("from", from, 0, ports - 1);
    flow.read("to", to, 0, ports - 1);
    flow.read_bytes("bytes", bytes);
    flow.read("start", start);
    flow.finish();
    if (from == to) {
      flow.fail("to", "a flow needs two different NICs");
    }
    builder.flow(from, to, bytes, fabric::picos(start));
  });
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

// One entry of `traffic`; what its generators draw depends on the seed and on its place in the list
// alone.
void read_traffic(fabric::YamlMap& map, Scenario& scenario, std::uint32_t group,
                  const std::string& directory) {
  const auto ports = static_cast<std::uint32_t>(scenario.topology.ports().size());
  TrafficBuilder builder(scenario.traffic, group);
  std::uint64_t seed = scenario.seed;
  std::uint32_t nodes = ports;
  Bytes bytes = 2'000'000;
  Duration start{};
  map.read("seed", seed, 0, INT64_MAX);
  map.read("nodes", nodes, 2, ports);
  map.read_bytes("bytes", bytes);
  map.read("start", start);
  if (bytes == 0) {
    map.fail("bytes", "a flow carries at least 1 byte");
  }
  Rng rng(mix64(seed) + group);
  std::vector<fabric::PortId> ranks(nodes);
  std::iota(ranks.begin(), ranks.end(), 0U);
  const std::size_t kind = map.choice("kind",
                                      {"permutation", "incast", "all-to-all", "ring-all-reduce",
                                       "tree-all-reduce", "recursive-doubling", "all-gather",
                                       "reduce-scatter", "tornado", "random", "matrix", "flows"},
                                      0);
  if (map.has("ranks")) {
    ranks = read_ports(map, "ranks", ports);
    if (ranks.size() < 2) {
      map.fail("ranks", "a collective needs at least two ranks");
      return;
    }
  }
  switch (kind) {
    case 0:
      builder.permutation(nodes, bytes, rng, fabric::picos(start));
      break;
    case 1: {
      fabric::PortId receiver = 0;
      map.read("receiver", receiver, 0, ports - 1);
      std::vector<fabric::PortId> senders;
      if (map.has("from")) {
        senders = read_ports(map, "from", ports);
      } else {
        std::uint32_t count = std::min(nodes - 1, 32U);
        map.read("senders", count, 1, ports - 1);
        for (fabric::PortId port = 0; port < ports; ++port) {
          if (port != receiver) {
            senders.push_back(port);
          }
        }
        if (count < senders.size()) {
          for (std::size_t i = 0; i < count; ++i) {
            std::swap(senders[i],
                      senders[i + rng.below(static_cast<std::uint32_t>(senders.size() - i))]);
          }
          senders.resize(count);
        }
      }
      if (std::find(senders.begin(), senders.end(), receiver) != senders.end()) {
        map.fail("from", "the receiver cannot be one of the senders");
      }
      builder.incast(senders, receiver, bytes, fabric::picos(start));
      break;
    }
    case 2: {
      std::uint32_t window = 8;
      map.read("window", window, 1, kMostHosts);
      if (map.choice("order", {"random", "staggered"}, 0) == 0) {
        builder.all_to_all(nodes, bytes, window, rng);
      } else {
        builder.staggered_all_to_all(nodes, bytes, window, rng);
      }
      break;
    }
    case 3:
      builder.ring_all_reduce(ranks, bytes);
      break;
    case 4:
      builder.tree_all_reduce(ranks, bytes);
      break;
    case 5:
      builder.recursive_doubling(ranks, bytes);
      break;
    case 6:
    case 7:
      builder.ring_pass(ranks, bytes);
      break;
    case 8:
      builder.tornado(nodes, bytes);
      break;
    case 9: {
      std::string sizes = "web-search";
      std::uint32_t count = 1000;
      double load = 0.5;
      map.read("sizes", sizes);
      map.read("flows", count, 1, 1 << 24);
      map.read("load", load, 0.001, 1);
      SizeDistribution distribution = size_distribution(sizes);
      if (sizes == "fixed") {
        const auto size = static_cast<double>(bytes);
        distribution = {{{size, 0}, {size, 1}}};
      }
      if (distribution.points.empty()) {
        map.fail("sizes", "expected web-search, hadoop, ai or fixed; found '" + sizes + "'");
        return;
      }
      const Rate rate =
          scenario.topology.links()[scenario.topology.ports().front()].properties.rate;
      builder.random(nodes, count, distribution, load, rate, rng);
      break;
    }
    case 10: {
      std::string name;
      map.read("file", name);
      auto text = fabric::read_text_file(beside(directory, name));
      auto matrix = text ? fabric::read_htsim_matrix(beside(directory, name), *text)
                         : Result<fabric::TrafficMatrix>(tl::unexpected<Error>(text.error()));
      if (!matrix) {
        map.fail("file", matrix.error().message);
        return;
      }
      append_matrix(scenario.traffic, std::move(*matrix), group);
      break;
    }
    default:
      read_pairs(map, builder, ports);
  }
}

void read_all_traffic(fabric::YamlMap& top, Scenario& scenario, const std::string& directory) {
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
    read_traffic(map, scenario, static_cast<std::uint32_t>(i), directory);
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

// --- Transport.
// What transports are told about the network. Of many flows some thousand are looked at; the round
// trip is that of a full frame and its acknowledgement on the longest path, without queues.
struct NetworkFacts {
  unsigned hops = 0;
  Duration base_rtt{};
  Rate rate;
  bool trimming = false;
};

NetworkFacts facts_of(const Scenario& scenario, const fabric::Routes& routes) {
  NetworkFacts facts;
  const auto& links = scenario.topology.links();
  for (const fabric::Link& link : links) {
    facts.trimming = facts.trimming || link.properties.trimming;
  }
  facts.rate = links[routes.uplink(0)].properties.rate;
  const std::size_t step = std::max<std::size_t>(scenario.traffic.flows.size() / 4096, 1);
  for (std::size_t i = 0; i < scenario.traffic.flows.size(); i += step) {
    const fabric::FlowSpec& flow = scenario.traffic.flows[i];
    const auto path =
        routes.path(flow.source, flow.destination, static_cast<std::uint32_t>(mix64(i)));
    fabric::Picos rtt = 0;
    for (const fabric::LinkId id : path) {
      const fabric::LinkProperties& is = links[id].properties;
      const Duration latency = scenario.topology.nodes()[links[id].to].latency;
      rtt += 2 * fabric::picos(is.delay + latency) +
             static_cast<fabric::Picos>(facts.rate.picoseconds_for(scenario.options.fabric.mtu) +
                                        facts.rate.picoseconds_for(kAckSize));
    }
    facts.hops = std::max(facts.hops, static_cast<unsigned>(path.size()));
    facts.base_rtt = std::max(facts.base_rtt, Duration{(rtt + 999) / 1000});
  }
  return facts;
}

void read_engine(fabric::YamlMap& map, srd::EngineConfig& engine) {
  map.read("paths", engine.paths, 1, 256);
  map.read("path_selector", engine.path_selector);
  map.read("congestion_control", engine.congestion_control);
  // In a data centre senders of one receiver are many and their link is known: receivers ration it.
  engine.receiver_credits = true;
  map.read("receiver_credits", engine.receiver_credits);
  map.read("ack_every", engine.ack_every, 1, 255);
  map.read("ack_delay", engine.ack_delay);
  map.read("min_rto", engine.min_rto);
  map.read("max_rto", engine.max_rto);
  map.read("peer_timeout", engine.peer_timeout);
  map.read("window_packets", engine.window_packets, 1, 2048);
  map.read("path_reorder_tolerance", engine.path_reorder_tolerance, 0, 255);
  map.read("path_timeouts_to_abandon", engine.path_timeouts_to_abandon, 0, 255);
  map.read("path_probe_interval", engine.path_probe_interval);
  map.read("checksum", engine.checksum);
  if (const auto ok = srd::parse_path_selector(engine.path_selector); !ok) {
    map.fail("path_selector", ok.error().message);
  }
  if (const auto ok = srd::parse_congestion_control(engine.congestion_control); !ok) {
    map.fail("congestion_control", ok.error().message);
  }
  if (const auto ok = srd::validate(engine); !ok) {
    map.fail_here(ok.error().message);
  }
}

void read_transport(fabric::YamlMap& map, Scenario& scenario, const fabric::Routes& routes) {
  const NetworkFacts facts = facts_of(scenario, routes);
  scenario.hops = facts.hops;
  TransportSpec& spec = scenario.transport;
  const std::uint32_t payload = scenario.options.fabric.mtu - scenario.options.data_overhead;
  spec.kind = static_cast<TransportSpec::Kind>(
      map.choice("kind", {"srd", "rc", "rc-dcqcn", "tcp-reno", "dctcp"}, 0));
  srd::EngineConfig& engine = spec.engine;
  engine.seed = scenario.seed;
  engine.mtu_payload = payload;
  // Memory carries the packets, so nothing is wrong in them unless a fault sees to it.
  engine.checksum =
      std::any_of(scenario.faults.begin(), scenario.faults.end(),
                  [](const fabric::Fault& it) { return it.impairment.corruption > 0; });
  engine.line_rate = facts.rate;
  engine.base_rtt = facts.base_rtt;
  engine.trimming = facts.trimming;
  read_engine(map, engine);
  map.read("fresh_entropies", scenario.options.fresh_entropies);
  OnePathConfig& one = spec.one_path;
  using Kind = TransportSpec::Kind;
  one.recovery = spec.kind == Kind::rc || spec.kind == Kind::rc_dcqcn
                     ? OnePathConfig::Recovery::go_back_n
                     : OnePathConfig::Recovery::selective;
  one.control = spec.kind == Kind::rc_dcqcn   ? OnePathConfig::Control::dcqcn
                : spec.kind == Kind::tcp_reno ? OnePathConfig::Control::reno
                : spec.kind == Kind::dctcp    ? OnePathConfig::Control::dctcp
                                              : OnePathConfig::Control::none;
  one.payload = payload;
  one.line_rate = facts.rate;
  one.base_rtt = facts.base_rtt;
  one.seed = scenario.seed;
  map.read("window_bdps", one.window_bdps, 0.01, 1000);
  if (engine.min_rto != Duration::zero()) {
    one.min_rto = engine.min_rto;
  }
  map.finish();
}

Bounds read_bounds(fabric::YamlMap map) {
  Bounds bounds;
  const auto read = [&](const char* key, std::optional<double>& to, double high) {
    if (map.has(key)) {
      double value = 0;
      map.read(key, value, 0, high);
      to = value;
    }
  };
  read("tail_fct_us", bounds.tail_fct_us, 1e12);
  read("ratio", bounds.ratio, 1e6);
  read("least_jain", bounds.least_jain, 1);
  read("retransmitted_per_new", bounds.retransmitted_per_new, 1e6);
  read("path_abandoned_us", bounds.path_abandoned_us, 1e9);
  read("reference_us", bounds.reference_us, 1e12);
  read("reference_p50_us", bounds.reference_p50_us, 1e12);
  read("reference_p99_us", bounds.reference_p99_us, 1e12);
  map.read("reference_within", bounds.reference_within, 0, 10);
  map.finish();
  return bounds;
}

void read_variants(fabric::YamlMap& top, Scenario& scenario) {
  top.each("variants", [&](const YAML::Node& node, const std::string& path) {
    fabric::YamlMap map(top.file(), node, path);
    Variant variant;
    map.read_label("name", variant.name);
    if (variant.name.empty()) {
      map.fail_here("a variant needs a name");
    }
    map.each_pair(
        "set", [&](const std::string& key, const YAML::Node& value, const std::string& value_path) {
          YAML::Emitter out;
          out << YAML::Flow << value;
          if (!out.good() || !value.IsDefined()) {
            top.file().fail_at(value, value_path, "expected a value");
          }
          variant.set.emplace_back(key, out.c_str());
        });
    variant.bounds = read_bounds(map.map("bounds"));
    map.finish();
    scenario.variants.push_back(std::move(variant));
  });
}

// Each is tried on a network of its own, so that a wrong name is found where it stands in the file.
void read_faults(fabric::YamlMap& top, Scenario& scenario) {
  top.each("faults", [&](const YAML::Node& node, const std::string& path) {
    scenario.faults.push_back(fabric::read_fault(top.file(), node, path));
    if (!top.file().failed()) {
      fabric::Fabric probe(scenario.topology, {});
      if (const auto ok = probe.apply(0, scenario.faults.back()); !ok) {
        top.file().fail_at(node, path, ok.error().message);
      }
    }
  });
}

}  // namespace

Result<Scenario> read_scenario(const std::string& file_name, const std::string& text,
                               const Settings& settings, const std::string& directory) {
  fabric::YamlFile file(file_name);
  YAML::Node root = file.load(text);
  if (!file.failed() && !root.IsMap()) {
    file.fail_at(root, "", "expected a scenario: keys such as topology, traffic and transport");
  }
  try {
    for (const auto& [key, value] : settings) {
      if (!file.failed()) {
        apply_setting(file, root, key, value);
      }
    }
  } catch (const YAML::Exception& problem) {
    return fail(ErrorCode::parse_error, file_name + ": --set: " + problem.what());
  }
  Scenario scenario;
  fabric::YamlMap top(file, root, "");
  top.read_label("name", scenario.name);
  top.read("title", scenario.title);
  top.read("reference", scenario.reference);
  top.read("seed", scenario.seed, 0, INT64_MAX);
  top.read("mtu", scenario.options.fabric.mtu, 256, 65535);
  top.read("data_overhead", scenario.options.data_overhead, 0, 200);
  top.read("control_size", scenario.options.control_size, 1, 1024);
  Duration limit = std::chrono::seconds{1};
  top.read("time_limit", limit);
  scenario.options.time_limit = fabric::picos(limit);
  scenario.options.fabric.seed = scenario.seed;
  scenario.options.fabric.by_node = true;
  scenario.options.fabric.trimmed_size = scenario.options.control_size;
  if (top.has("ideal_us")) {
    double ideal = 0;
    top.read("ideal_us", ideal, 1e-3, 1e12);
    scenario.ideal_us = ideal;
  }
  fabric::YamlMap topology = top.map("topology");
  if (!file.failed()) {
    scenario.topology = fabric::read_topology_map(topology, directory);
  }
  if (!file.failed()) {
    read_all_traffic(top, scenario, directory);
  }
  if (!file.failed()) {
    read_faults(top, scenario);
  }
  if (!file.failed()) {
    const fabric::Routes routes(scenario.topology);
    fabric::YamlMap transport = top.map("transport");
    read_transport(transport, scenario, routes);
    if (!file.failed() && !scenario.ideal_us) {
      scenario.ideal_us = ideal_us(scenario, routes);
    }
  }
  scenario.bounds = read_bounds(top.map("bounds"));
  read_variants(top, scenario);
  top.finish();
  if (file.failed()) {
    return tl::unexpected<Error>(file.error());
  }
  return scenario;
}

Simulation::MakeTransport transport_factory(const Scenario& scenario) {
  const TransportSpec& spec = scenario.transport;
  auto keys = std::make_shared<EngineTransport::Keys>();
  return [&spec, keys](fabric::PortId port) -> std::unique_ptr<Transport> {
    if (spec.kind == TransportSpec::Kind::srd) {
      return std::make_unique<EngineTransport>(port, spec.engine, keys);
    }
    return std::make_unique<OnePathTransport>(spec.one_path);
  };
}

double ideal_us(const Scenario& scenario) {
  return scenario.ideal_us ? *scenario.ideal_us
                           : ideal_us(scenario, fabric::Routes(scenario.topology));
}

// The largest of several lower limits, in picoseconds until the end: each flow alone; the bytes of
// each NIC in either direction; the bytes that must cross the uplinks of a leaf.
double ideal_us(const Scenario& scenario, const fabric::Routes& routes) {
  const auto& links = scenario.topology.links();
  const auto mtu = static_cast<Bytes>(scenario.options.fabric.mtu);
  const Bytes payload = mtu - scenario.options.data_overhead;
  const Rate rate = scenario.transport.engine.line_rate;
  const auto full = static_cast<double>(rate.picoseconds_for(mtu));
  const auto ack = static_cast<double>(rate.picoseconds_for(kAckSize));
  const std::size_t ports = routes.port_count();
  std::vector<double> sent(ports, 0);
  std::vector<double> received(ports, 0);
  std::vector<std::uint32_t> flows_in(ports, 0);
  // Time of the data that must cross a leaf's uplinks, at one host's rate.
  std::map<fabric::NodeId, double> leaving;
  std::map<fabric::NodeId, double> entering;
  double best = 0;
  double rtt = 0;
  // Hops and round trip between two leaves; those of the first pair of ports stand for all.
  std::map<std::pair<fabric::NodeId, fabric::NodeId>, std::pair<double, double>> shape;
  for (const fabric::FlowSpec& flow : scenario.traffic.flows) {
    const auto packets = static_cast<double>((flow.bytes + payload - 1) / payload);
    const auto last = static_cast<double>(rate.picoseconds_for(
        flow.bytes - static_cast<Bytes>(packets - 1) * payload + scenario.options.data_overhead));
    const fabric::NodeId from = routes.leaf_of(flow.source);
    const fabric::NodeId to = routes.leaf_of(flow.destination);
    auto [it, added] = shape.try_emplace({from, to});
    if (added) {
      for (const fabric::LinkId id : routes.path(flow.source, flow.destination, 0)) {
        it->second.first += 1;
        it->second.second +=
            2.0 *
            static_cast<double>(fabric::picos(links[id].properties.delay +
                                              scenario.topology.nodes()[links[id].to].latency));
      }
    }
    const auto [hops, delays] = it->second;
    const double own = (packets + hops - 2) * full + last + delays + hops * ack;
    rtt = std::max(rtt, delays + hops * (full + ack));
    best = std::max(best, own);
    sent[flow.source] += packets * full;
    received[flow.destination] += packets * full;
    ++flows_in[flow.destination];
    if (from != to) {
      leaving[from] += packets * full;
      entering[to] += packets * full;
    }
  }
  for (std::size_t port = 0; port < ports; ++port) {
    best = std::max(best, flows_in[port] > 1 ? received[port] + rtt : received[port]);
    best = std::max(best, sent[port]);
  }
  std::map<fabric::NodeId, double> up;  // capacity out of a leaf, in units of one host's rate
  for (const fabric::Link& link : links) {
    if (scenario.topology.nodes()[link.from].kind == fabric::Node::Kind::network &&
        scenario.topology.nodes()[link.to].kind == fabric::Node::Kind::network) {
      up[link.from] += static_cast<double>(link.properties.rate.bits_per_second()) /
                       static_cast<double>(rate.bits_per_second());
    }
  }
  for (const auto* side : {&leaving, &entering}) {
    for (const auto& [leaf, time] : *side) {
      // Only where the uplinks, and not the hosts, are what limits.
      if (const double ideal = up[leaf] > 0 ? time / up[leaf] : 0; ideal > best) {
        best = ideal + rtt;
      }
    }
  }
  return best * 1e-6;
}

}  // namespace weft::sim
