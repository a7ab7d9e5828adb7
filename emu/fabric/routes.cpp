// Owns the search for shortest paths and the compression of their table.
//
// One breadth-first search per leaf, backwards from it: at each node, the links that lead one step
// closer are the choices for all hosts behind that leaf. Equal sets of links share a number.
#include "emu/fabric/routes.hpp"

#include <map>

#include "srd/base/check.hpp"
#include "srd/base/rng.hpp"

namespace weft::fabric {

Routes::Routes(const Topology& topology) {
  const auto& nodes = topology.nodes();
  const auto& links = topology.links();
  std::map<NodeId, std::uint32_t> leaf_index;
  for (const LinkId uplink : topology.ports()) {
    const NodeId leaf = links[uplink].to;
    const auto [it, added] =
        leaf_index.emplace(leaf, static_cast<std::uint32_t>(leaf_index.size()));
    ports_.push_back({uplink, Topology::reverse(uplink), links[uplink].from, leaf, it->second});
  }
  leaves_ = static_cast<std::uint32_t>(leaf_index.size());
  std::vector<std::vector<LinkId>> leaving(nodes.size());
  for (LinkId link = 0; link < links.size(); ++link) {
    link_to_.push_back(links[link].to);
    // Hosts do not forward: no path leads through one.
    if (nodes[links[link].to].kind == Node::Kind::network &&
        nodes[links[link].from].kind == Node::Kind::network) {
      leaving[links[link].from].push_back(link);
    }
  }
  // Row 0 is shared by all hosts, which forward nothing: no way to anywhere.
  rows_.assign(nodes.size(), 0);
  std::uint32_t rows = 1;
  for (NodeId node = 0; node < nodes.size(); ++node) {
    if (nodes[node].kind == Node::Kind::network) {
      rows_[node] = rows++;
    }
  }
  table_.assign(std::size_t{rows} * leaves_, 0);
  choices_.push_back({});  // 0: no way
  std::map<std::vector<LinkId>, std::uint16_t> known;
  std::vector<std::uint32_t> distance;
  std::vector<NodeId> queue;
  std::vector<LinkId> set;
  std::vector<std::pair<std::uint16_t, std::vector<LinkId>>> latest(nodes.size());
  for (const auto& [leaf, index] : leaf_index) {
    distance.assign(nodes.size(), kNone);
    queue.assign(1, leaf);
    distance[leaf] = 0;
    for (std::size_t head = 0; head < queue.size(); ++head) {
      const NodeId at = queue[head];
      for (const LinkId link : leaving[at]) {  // cables are symmetric: walk them backwards
        if (distance[links[link].to] == kNone) {
          distance[links[link].to] = distance[at] + 1;
          queue.push_back(links[link].to);
        }
      }
      if (at == leaf) {
        continue;
      }
      set.clear();
      for (const LinkId link : leaving[at]) {
        if (distance[links[link].to] == distance[at] - 1) {
          set.push_back(link);
        }
      }
      auto& [number, same] = latest[at];  // most leaves have the same choices as the one before
      if (set == same) {
        table_[rows_[at] * leaves_ + index] = number;
        continue;
      }
      auto [it, added] = known.emplace(set, static_cast<std::uint16_t>(choices_.size()));
      if (added) {
        WEFT_CHECK(choices_.size() < 0xFFFF);
        const auto count = static_cast<std::uint32_t>(set.size());
        if (count == 1) {
          choices_.push_back({set.front(), count});
        } else {
          choices_.push_back({static_cast<std::uint32_t>(members_.size()), count});
          members_.insert(members_.end(), set.begin(), set.end());
        }
      }
      table_[rows_[at] * leaves_ + index] = it->second;
      number = it->second;
      same = set;
    }
  }
  seeds_.assign(nodes.size(), 0);
}

void Routes::seed(std::uint64_t seed) {
  for (std::size_t node = 0; node < seeds_.size(); ++node) {
    seeds_[node] = static_cast<std::uint32_t>(mix64(seed ^ mix64(node + 1)));
  }
}

std::vector<LinkId> Routes::candidates(NodeId at, PortId destination) const {
  const Port& port = ports_[destination];
  if (port.leaf_node == at) {
    return {port.downlink};
  }
  const Choice choice = choices_[table_[rows_[at] * leaves_ + port.leaf]];
  if (choice.count <= 1) {
    return choice.count == 0 ? std::vector<LinkId>{} : std::vector<LinkId>{choice.first};
  }
  return {members_.begin() + choice.first, members_.begin() + choice.first + choice.count};
}

std::vector<LinkId> Routes::path(PortId from, PortId to, std::uint32_t hash) const {
  std::vector<LinkId> result{ports_[from].uplink};
  if (ports_[from].leaf_node == ports_[to].host) {
    return result;  // a cable from host to host
  }
  NodeId at = ports_[from].leaf_node;
  while (result.size() < seeds_.size()) {
    const LinkId link = next(at, to, hash);
    if (link == kNone) {
      return {};
    }
    result.push_back(link);
    at = link_to_[link];
    if (at == ports_[to].host) {
      return result;
    }
  }
  return {};
}

}  // namespace weft::fabric
