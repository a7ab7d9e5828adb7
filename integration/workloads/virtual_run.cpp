// Owns ranks as hosts of the simulator. To the simulator the whole life of a rank is one flow: it
// needs flows to know when a run is over, but the traffic is what the ranks' engines send.
#include "integration/workloads/virtual_run.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "emu/fabric/fabric.hpp"
#include "emu/fabric/fault.hpp"
#include "emu/fabric/topology_yaml.hpp"
#include "srd/wire/srd_codec.hpp"

namespace weft::workloads {
namespace {

constexpr std::uint32_t kHostsPerLeaf = 4;
constexpr srd::Qpn kQpn{1};

std::uint32_t leaves_for(std::uint32_t ranks) {
  return std::max((ranks + kHostsPerLeaf - 1) / kHostsPerLeaf, 2U);
}

// Any of `nodes` NICs may send to any other one: what the transport is told of distances follows
// from the traffic.
std::string scenario_text(const VirtualGround& ground, std::uint32_t hosts, std::uint32_t nodes) {
  std::string text = ground.topology;
  if (text.empty()) {
    text = "topology: {generator: leaf-spine, hosts: " + std::to_string(hosts) +
           ", hosts_per_leaf: " + std::to_string(kHostsPerLeaf) + ", rate: " + ground.rate +
           ", delay: 1us}\n";
  }
  text += "\nseed: " + std::to_string(ground.seed) + "\ntime_limit: " + ground.time_limit +
          "\nmtu: " + std::to_string(ground.mtu) +
          "\ntransport: {paths: " + std::to_string(ground.paths) +
          ", peer_timeout: " + ground.peer_timeout +
          (ground.path_selector.empty() ? "" : ", path_selector: " + ground.path_selector) +
          "}\ntraffic: {kind: all-to-all, nodes: " + std::to_string(nodes) + "}\n";
  if (!ground.faults.empty()) {
    text += "faults:\n";
    for (const std::string& fault : ground.faults) {
      text += "  - {" + fault + "}\n";
    }
  }
  return text;
}

// Reads the scenario as `weft sim` would, so that a topology or a fault means the same in both.
Result<sim::Scenario> read_with_nodes(const VirtualGround& ground, std::uint32_t nodes) {
  const std::uint32_t hosts = leaves_for(ground.ranks) * kHostsPerLeaf;
  const std::string name = ground.topology.empty()        ? "--rate " + ground.rate
                           : ground.topology_file.empty() ? "the topology"
                                                          : ground.topology_file;
  return sim::read_scenario(name, scenario_text(ground, hosts, nodes), {}, "");
}

// What is wrong with one fault of a network that is right without it; nothing if that is fine.
std::optional<Error> find_problem(const std::string& fault, const sim::Scenario& network) {
  const std::string name = "--fault '" + fault + "'";
  fabric::YamlFile file(name);
  const YAML::Node node = file.load("{" + fault + "}");
  const auto read = file.failed() ? fabric::Fault{} : fabric::read_fault(file, node, "fault");
  if (file.failed()) {
    return file.error();
  }
  fabric::Fabric probe(network.topology, {.seed = network.options.fabric.seed});
  const auto applied = probe.apply(0, read);
  return applied
             ? std::nullopt
             : std::optional(Error{applied.error().code, name + ": " + applied.error().message});
}

// The scenario is put together from what the user has given in several places, so its own lines
// mean nothing to the user: where it is wrong, the places are tried one by one.
Result<sim::Scenario> read_ground(const VirtualGround& ground) {
  if (ground.seed > INT64_MAX) {
    return fail(ErrorCode::invalid_argument, "--seed: 9223372036854775807 is the largest");
  }
  const std::uint32_t all =
      ground.topology.empty() ? leaves_for(ground.ranks) * kHostsPerLeaf : ground.ranks;
  auto scenario = read_with_nodes(ground, all);
  if (scenario) {
    return scenario;
  }
  VirtualGround healthy = ground;
  healthy.faults.clear();
  const auto network = read_with_nodes(healthy, 2);
  if (!network) {
    return network;
  }
  if (const std::size_t nics = network->topology.ports().size(); nics < ground.ranks) {
    return fail(ErrorCode::invalid_argument, "the network has " + std::to_string(nics) +
                                                 " NICs, too few for " +
                                                 std::to_string(ground.ranks) + " ranks");
  }
  for (const std::string& fault : ground.faults) {
    if (auto problem = find_problem(fault, *network)) {
      return tl::unexpected(std::move(*problem));
    }
  }
  return scenario;
}

}  // namespace

// A flow begins a rank's run, and has been sent when the rank has finished.
class VirtualRun::RankTransport final : public sim::HostTransport {
 public:
  RankTransport(const srd::EngineConfig& config, const WorkerMachine::Make& make)
      : machine_(config, make), checks_packets_(config.checksum) {}

  [[nodiscard]] srd::Machine& machine() override { return machine_; }
  [[nodiscard]] WorkerMachine& own() { return machine_; }

  void start(TimePoint now, const sim::FlowStart& flow) override {
    flow_ = flow.flow;
    started_ = true;
    machine_.worker().prepare();
    machine_.worker().begin(now);
  }
  [[nodiscard]] std::size_t poll(std::span<sim::FlowEvent> events) override {
    Worker& worker = machine_.worker();
    if (!started_ || ended_ || (!worker.section_over() && worker.failure().empty())) {
      // Preparing takes no virtual time, so ranks need not meet between sections.
      return 0;
    }
    if (worker.failure().empty()) {
      worker.prepare();
      if (!worker.finished()) {
        worker.begin(machine_.now());
        return 0;
      }
    }
    ended_ = true;
    events[0] = {flow_, worker.failure().empty() ? sim::FlowEvent::Kind::sent
                                                 : sim::FlowEvent::Kind::failed};
    return 1;
  }
  [[nodiscard]] bool is_control(const srd::TxPacket& packet) const override {
    return srd::wire::SrdCodec::dscp_of(packet) == srd::wire::kDscpControl;
  }
  [[nodiscard]] bool knows_trimming() const override { return true; }
  [[nodiscard]] bool checks_packets() const override { return checks_packets_; }
  [[nodiscard]] sim::TransportCounters counters() const override { return {}; }

 private:
  WorkerMachine machine_;
  bool checks_packets_;
  std::uint32_t flow_ = 0;
  bool started_ = false;
  bool ended_ = false;
};

VirtualRun::~VirtualRun() = default;

Result<std::unique_ptr<VirtualRun>> VirtualRun::create(const VirtualGround& ground) {
  std::unique_ptr<VirtualRun> run(new VirtualRun);
  const std::uint32_t leaves = leaves_for(ground.ranks);
  auto scenario = read_ground(ground);
  if (!scenario) {
    return tl::unexpected(scenario.error());
  }
  run->ranks_ = ground.ranks;
  run->scenario_ = std::move(*scenario);
  fabric::TrafficMatrix& traffic = run->scenario_.traffic;
  // The flows of the scenario's text have served their purpose (scenario_text()). Each rank's own
  // one has a byte, which nobody sends: start() and poll() are all that matters.
  traffic.flows.clear();
  for (std::uint32_t rank = 0; rank < ground.ranks; ++rank) {
    run->ports_.push_back(ground.topology.empty() ? rank % leaves * kHostsPerLeaf + rank / leaves
                                                  : rank);
  }
  for (std::uint32_t rank = 0; rank < ground.ranks; ++rank) {
    fabric::FlowSpec flow;
    flow.source = run->ports_[rank];
    flow.destination = run->ports_[(rank + 1) % ground.ranks];
    flow.bytes = 1;
    traffic.flows.push_back(flow);
  }
  return run;
}

// Workers know each other only after all have been made, because their keys come with their
// engines. Hence two passes: make all, then meet().
Result<void> VirtualRun::run(const Make& make, bool real_payload) {
  scenario_.options.real_payload = real_payload;
  std::vector<RankPlace> places(ranks_);
  transports_.assign(ranks_, nullptr);
  const auto make_transport = [&](fabric::PortId port) -> std::unique_ptr<sim::HostTransport> {
    const auto rank =
        static_cast<std::uint32_t>(std::find(ports_.begin(), ports_.end(), port) - ports_.begin());
    srd::EngineConfig config = scenario_.transport.engine;
    config.attachment = srd::AttachmentId{0};
    config.seed = mix64(config.seed ^ mix64(rank + 1));
    places[rank].address = sim::address_of(port);
    places[rank].attachment = config.attachment;
    places[rank].qpn = kQpn;
    auto made = std::make_unique<RankTransport>(
        config, [&](srd::Engine& engine) { return make(engine, rank, places[rank]); });
    transports_[rank] = made.get();
    return made;
  };
  simulation_ = std::make_unique<sim::Simulation>(scenario_.topology, scenario_.traffic,
                                                  scenario_.options, make_transport);
  for (const fabric::Fault& fault : scenario_.faults) {
    if (auto applied = simulation_->fabric().apply(0, fault); !applied) {
      return tl::unexpected(applied.error());
    }
  }
  for (RankTransport* const one : transports_) {
    one->own().worker().meet(places);
  }
  simulation_->run();
  for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
    const std::string& failure = worker(rank).failure();
    if (!failure.empty()) {
      return fail(ErrorCode::wrong_state, "rank " + std::to_string(rank) + ": " + failure);
    }
  }
  for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
    if (!worker(rank).finished() || !worker(rank).section_over()) {
      return fail(ErrorCode::wrong_state,
                  "rank " + std::to_string(rank) + " had not finished when the time was up");
    }
  }
  return {};
}

Worker& VirtualRun::worker(std::uint32_t rank) { return transports_[rank]->own().worker(); }

PacketCounters VirtualRun::counters() const {
  PacketCounters sum;
  for (RankTransport* const one : transports_) {
    sum.add(one->own().engine().counters());
  }
  return sum;
}

double VirtualRun::simulated_us() const { return fabric::microseconds(simulation_->now()); }

std::uint64_t VirtualRun::digest() const { return simulation_->digest(); }

}  // namespace weft::workloads
