// Owns the time that a scenario's traffic would take in a network without queues or faults.
#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "emu/fabric/generators.hpp"
#include "emu/sim/scenario.hpp"

namespace weft::sim {

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
  const auto ack = static_cast<double>(rate.picoseconds_for(fabric::kAckSize));
  const std::size_t ports = routes.port_count();
  std::vector<double> sent(ports, 0);
  std::vector<double> received(ports, 0);
  std::vector<std::uint32_t> flows_in(ports, 0);
  std::map<fabric::NodeId, double>
      leaving;  // data time that must cross a leaf's uplinks, at one host's rate
  std::map<fabric::NodeId, double> entering;
  double best = 0;
  double rtt = 0;
  std::map<std::pair<fabric::NodeId, fabric::NodeId>, std::pair<double, double>>
      shape;  // hops and round trip between leaves
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
