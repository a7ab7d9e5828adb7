// Owns the reading of scenario files.
//
// In this order: settings of the command line are written into the YAML tree; topology; traffic,
// which needs to know the ports; faults; transport, which is told of rates and round trips; bounds
// and variants. Errors are kept by the YamlFile with their line; the first one ends the reading.
#include "emu/sim/scenario.hpp"

#include <algorithm>
#include <charconv>

#include "emu/fabric/generators.hpp"
#include "emu/fabric/topology_yaml.hpp"
#include "emu/fabric/trimming.hpp"
#include "emu/fabric/yaml_reader.hpp"
#include "emu/sim/engine_transport.hpp"
#include "emu/sim/scenario_traffic.hpp"
#include "srd/engine/cc/congestion_control.hpp"
#include "srd/engine/paths/path_selector.hpp"

namespace weft::sim {
namespace {

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
  // reset() and not assignment: assigning to a yaml-cpp node overwrites what it refers to.
  node.reset(root);
  for (const std::string& part : parts) {
    if (part.empty() || (node.IsDefined() && node.IsScalar())) {
      file.fail_at(YAML::Node(YAML::NodeType::Undefined), "--set " + key,
                   "there is no such place in the file");
      return;
    }
    YAML::Node next;
    if (node.IsSequence()) {
      std::size_t index = 0;
      const char* const end = part.data() + part.size();
      const auto [read, status] = std::from_chars(part.data(), end, index);
      if (status != std::errc{} || read != end || index >= node.size()) {
        file.fail_at(node, "--set " + key,
                     "the list has no element '" + part + "': it has " +
                         std::to_string(node.size()) + ", counted from 0");
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

// --- Transport.
// What transports are told about the network. Of many flows some thousand are looked at; the round
// trip is that of a full frame and its acknowledgement on the longest path, without queues.
struct NetworkFacts {
  unsigned hops = 0;
  Duration base_rtt{};
  Rate rate;  // of the fastest NIC
  bool trimming = false;
};

NetworkFacts facts_of(const Scenario& scenario, const fabric::Routes& routes) {
  NetworkFacts facts;
  const auto& links = scenario.topology.links();
  facts.trimming = fabric::reports_losses(scenario.topology);
  for (fabric::PortId port = 0; port < routes.port_count(); ++port) {
    facts.rate = std::max(facts.rate, links[routes.uplink(port)].properties.rate);
  }
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
             static_cast<fabric::Picos>(is.rate.picoseconds_for(scenario.options.fabric.mtu) +
                                        is.rate.picoseconds_for(fabric::kAckSize));
    }
    facts.hops = std::max(facts.hops, static_cast<unsigned>(path.size()));
    // From picoseconds to nanoseconds, rounded up: a round trip must not be too short.
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
  map.read("pace_step", engine.pace_step);
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

// Refuses flows that the one-path transports cannot number; otherwise the run would abort.
void check_flow_sizes(fabric::YamlMap& map, const Scenario& scenario, const char* kind) {
  const std::uint32_t payload = scenario.transport.one_path.payload;
  for (const fabric::FlowSpec& flow : scenario.traffic.flows) {
    if (OnePathTransport::packets_of(flow.bytes, payload) > OnePathTransport::kMaxPackets) {
      map.fail("kind", "a flow of " + std::to_string(flow.bytes) + " bytes is too large for " +
                           kind + ": at most " + std::to_string(OnePathTransport::kMaxPackets) +
                           " packets of " + std::to_string(payload) + " bytes");
      return;
    }
  }
}

void read_transport(fabric::YamlMap& map, Scenario& scenario, const fabric::Routes& routes) {
  const NetworkFacts facts = facts_of(scenario, routes);
  scenario.hops = facts.hops;
  TransportSpec& spec = scenario.transport;
  const std::uint32_t payload = scenario.options.fabric.mtu - scenario.options.data_overhead;
  static constexpr const char* kKinds[] = {"srd", "rc", "rc-dcqcn", "tcp-reno", "dctcp"};
  spec.kind = static_cast<TransportSpec::Kind>(map.choice("kind", kKinds, 0));
  srd::EngineConfig& engine = spec.engine;
  engine.seed = scenario.seed;
  engine.mtu_payload = payload;
  // Memory carries the packets, so nothing is wrong in them unless a fault sees to it.
  engine.checksum =
      std::any_of(scenario.faults.begin(), scenario.faults.end(),
                  [](const fabric::Fault& it) { return it.impairment.corruption > 0; });
  // Defaults from the network, which the keys read after them may replace.
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
  if (spec.kind != Kind::srd) {
    check_flow_sizes(map, scenario, kKinds[static_cast<std::size_t>(spec.kind)]);
  }
  map.finish();
}

Bounds read_bounds(fabric::YamlMap map) {
  Bounds bounds;
  const auto read = [&](const char* key, std::optional<double>& to, double high, double low = 0) {
    if (map.has(key)) {
      double value = 0;
      map.read(key, value, low, high);
      to = value;
    }
  };
  constexpr double kMinReference = 1e-3;  // results are told as parts of it
  read("tail_fct_us", bounds.tail_fct_us, 1e12);
  read("ratio", bounds.ratio, 1e6);
  read("least_jain", bounds.least_jain, 1);
  read("retransmitted_per_new", bounds.retransmitted_per_new, 1e6);
  read("path_abandoned_us", bounds.path_abandoned_us, 1e9);
  read("reference_us", bounds.reference_us, 1e12, kMinReference);
  read("reference_p50_us", bounds.reference_p50_us, 1e12, kMinReference);
  read("reference_p99_us", bounds.reference_p99_us, 1e12, kMinReference);
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

// Each fault is applied to a fabric that is made for this alone, so that a wrong name is reported
// at its line in the file. With the seed of the run it draws the same links that the run will draw,
// which is what fault_links has to say.
void read_faults(fabric::YamlMap& top, Scenario& scenario) {
  std::optional<fabric::Fabric> probe;
  top.each("faults", [&](const YAML::Node& node, const std::string& path) {
    scenario.faults.push_back(fabric::read_fault(top.file(), node, path));
    if (top.file().failed()) {
      return;
    }
    if (!probe) {
      probe.emplace(scenario.topology, fabric::FabricOptions{.seed = scenario.options.fabric.seed});
    }
    const auto applied = probe->apply(0, scenario.faults.back());
    if (!applied) {
      top.file().fail_at(node, path, applied.error().message);
      return;
    }
    const auto links = probe->links_of(*applied);
    scenario.fault_links.emplace_back(links.begin(), links.end());
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
    read_traffic(top, scenario, directory);
  }
  if (!file.failed()) {
    read_faults(top, scenario);
  }
  if (!file.failed()) {
    const fabric::Routes routes(scenario.topology);
    fabric::YamlMap transport = top.map("transport");
    read_transport(transport, scenario, routes);
    if (!file.failed()) {
      scenario.ideal = ideal_times({.topology = scenario.topology,
                                    .routes = routes,
                                    .traffic = scenario.traffic,
                                    .faults = scenario.faults,
                                    .fault_links = scenario.fault_links,
                                    .payload = scenario.transport.one_path.payload,
                                    .overhead = scenario.options.data_overhead,
                                    .control = scenario.options.control_size,
                                    .largest_write = srd::kMaxTransfer});
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
  std::vector<Rate> rates;
  for (const fabric::LinkId uplink : scenario.topology.ports()) {
    rates.push_back(scenario.topology.links()[uplink].properties.rate);
  }
  return [&spec, keys,
          rates = std::move(rates)](fabric::PortId port) -> std::unique_ptr<HostTransport> {
    if (spec.kind == TransportSpec::Kind::srd) {
      srd::EngineConfig engine = spec.engine;
      engine.line_rate = rates[port];
      return std::make_unique<EngineTransport>(port, std::move(engine), keys);
    }
    OnePathConfig one_path = spec.one_path;
    one_path.line_rate = rates[port];
    return std::make_unique<OnePathTransport>(one_path);
  };
}

}  // namespace weft::sim
