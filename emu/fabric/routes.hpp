// Owns the routing of a topology: for every switch and destination, the links of the shortest
// paths.
#pragma once

#include <cstdint>
#include <vector>

#include "emu/fabric/topology.hpp"

namespace weft::fabric {

// Made once and not changed: a link that is down stays in its set, as in a real network before its
// routing has noticed. Hosts behind the same switch have the same routes, and most pairs of switch
// and destination share their set of links with other pairs of the same switch. So the table holds
// one 16-bit number per pair, and stays in the cache. Among several links a hash of the flow and
// the switch's own seed choose (ECMP): a frame's path depends on its flow and its path number, and
// neighbouring switches choose independently.
class Routes {
 public:
  // Only for a topology that is valid: then the numbers suffice.
  explicit Routes(const Topology& topology);

  // The link on which node `at` sends a frame for `destination`, or kNone when there is no way.
  [[nodiscard]] LinkId next(NodeId at, PortId destination, std::uint32_t hash) const {
    const Port& port = ports_[destination];
    if (port.leaf_node == at) {
      return port.downlink;
    }
    const Choice choice = choice_of(at, port);
    if (choice.count <= 1) {
      return choice.first;
    }
    return members_[choice.first + pick(hash ^ rows_[at].seed, choice.count)];
  }
  // Every link that `at` may use for `destination`.
  [[nodiscard]] std::vector<LinkId> candidates(NodeId at, PortId destination) const;
  // The links from port to port, for one hash; empty if there is no way.
  [[nodiscard]] std::vector<LinkId> path(PortId from, PortId to, std::uint32_t hash) const;

  // Gives each switch a seed of its own for next(). Unseeded switches all choose alike.
  void seed(std::uint64_t seed);

  [[nodiscard]] std::size_t port_count() const { return ports_.size(); }
  [[nodiscard]] LinkId uplink(PortId port) const { return ports_[port].uplink; }
  [[nodiscard]] LinkId downlink(PortId port) const { return ports_[port].downlink; }
  // The switch that the port is plugged into (or the other host, of a cable without switch).
  [[nodiscard]] NodeId leaf_of(PortId port) const { return ports_[port].leaf_node; }
  [[nodiscard]] NodeId host_of(PortId port) const { return ports_[port].host; }

 private:
  struct Port {
    LinkId uplink = 0;
    LinkId downlink = 0;
    NodeId host = 0;
    NodeId leaf_node = 0;
    std::uint32_t leaf = 0;
  };
  struct Choice {
    std::uint32_t first = kNone;  // several: in members_; one: the link itself
    std::uint32_t count = 0;
  };
  // What belongs to one node. All hosts share the first row of the table: they forward nothing.
  struct Row {
    std::size_t entries = 0;    // its first one in table_
    std::uint32_t choices = 0;  // its first one in choices_, which is "no way"
    std::uint32_t seed = 0;
  };
  struct Sets;

  void number_leaves(const Topology& topology);
  void number_rows(const Topology& topology);
  void find_ways(const Topology& topology, std::vector<Sets>& sets);
  void lay_out(const std::vector<Sets>& sets);
  [[nodiscard]] Choice choice_of(NodeId at, const Port& port) const {
    const Row& row = rows_[at];
    return choices_[row.choices + table_[row.entries + port.leaf]];
  }

  // Mixes the bits (a hash alone may be a flow number, whose low bits say little), then scales the
  // result to [0, count) by a multiplication, which is cheaper than a remainder.
  [[nodiscard]] static std::uint32_t pick(std::uint32_t x, std::uint32_t count) {
    x ^= x >> 16;
    x *= 0x7FEB352DU;
    x ^= x >> 15;
    x *= 0x846CA68BU;
    x ^= x >> 16;
    return static_cast<std::uint32_t>((static_cast<std::uint64_t>(x) * count) >> 32);
  }

  std::vector<Port> ports_;
  std::vector<NodeId> leaves_;
  std::vector<Row> rows_;             // by node
  std::vector<std::uint16_t> table_;  // by row and leaf: which of the node's choices
  std::vector<Choice> choices_;       // by node
  std::vector<LinkId> members_;
  std::vector<NodeId> link_to_;
};

}  // namespace weft::fabric
