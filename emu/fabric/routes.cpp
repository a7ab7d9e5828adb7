// Owns the search for shortest paths and the compression of their table.
//
// One breadth-first search per leaf, backwards from it: at each node, the links that lead one step
// closer are the choices for all hosts behind that leaf. Equal sets of one node share a number.
#include "emu/fabric/routes.hpp"

#include <map>
#include <unordered_map>

#include "srd/base/check.hpp"
#include "srd/base/rng.hpp"

namespace weft::fabric {

// The different sets of links of one node, numbered from 1; 0 is "no way".
struct Routes::Sets {
  std::map<std::vector<LinkId>, std::uint16_t> numbers;
  std::vector<const std::vector<LinkId>*> all;  // by number, from 1
  std::uint16_t latest = 0;  // most leaves have the same choices as the one before

  std::uint16_t number_of(const std::vector<LinkId>& set) {
    if (latest != 0 && *all[latest - 1U] == set) {
      return latest;
    }
    const auto [it, added] = numbers.emplace(set, static_cast<std::uint16_t>(all.size() + 1));
    if (added) {
      all.push_back(&it->first);
    }
    return latest = it->second;
  }
};

Routes::Routes(const Topology& topology) {
  number_leaves(topology);
  number_rows(topology);
  std::vector<Sets> sets(topology.nodes().size());
  find_ways(topology, sets);
  lay_out(sets);
}

void Routes::number_leaves(const Topology& topology) {
  const auto& links = topology.links();
  std::unordered_map<NodeId, std::uint32_t> numbers;
  for (const LinkId uplink : topology.ports()) {
    const NodeId leaf = links[uplink].to;
    const auto [it, added] = numbers.emplace(leaf, static_cast<std::uint32_t>(leaves_.size()));
    if (added) {
      leaves_.push_back(leaf);
    }
    ports_.push_back({uplink, Topology::reverse(uplink), links[uplink].from, leaf, it->second});
  }
  WEFT_CHECK(leaves_.size() <= kMaxLeaves);
}

void Routes::number_rows(const Topology& topology) {
  rows_.resize(topology.nodes().size());
  std::size_t entries = leaves_.size();
  for (NodeId node = 0; node < rows_.size(); ++node) {
    if (topology.nodes()[node].kind == Node::Kind::network) {
      rows_[node].entries = entries;
      entries += leaves_.size();
    }
  }
  table_.assign(entries, 0);
}

void Routes::find_ways(const Topology& topology, std::vector<Sets>& sets) {
  const auto& nodes = topology.nodes();
  const auto& links = topology.links();
  std::vector<std::vector<LinkId>> leaving(nodes.size());
  for (LinkId link = 0; link < links.size(); ++link) {
    link_to_.push_back(links[link].to);
    // Hosts do not forward: no path leads through one.
    if (nodes[links[link].to].kind == Node::Kind::network &&
        nodes[links[link].from].kind == Node::Kind::network) {
      leaving[links[link].from].push_back(link);
    }
  }
  std::vector<std::uint32_t> distance;
  std::vector<NodeId> queue;
  std::vector<LinkId> set;
  for (std::size_t leaf = 0; leaf < leaves_.size(); ++leaf) {
    distance.assign(nodes.size(), kNone);
    queue.assign(1, leaves_[leaf]);
    distance[leaves_[leaf]] = 0;
    for (std::size_t head = 0; head < queue.size(); ++head) {
      const NodeId at = queue[head];
      set.clear();
      for (const LinkId link : leaving[at]) {  // cables are symmetric: walk them backwards
        std::uint32_t& there = distance[link_to_[link]];
        if (there == kNone) {
          there = distance[at] + 1;
          queue.push_back(link_to_[link]);
        } else if (there + 1 == distance[at]) {
          set.push_back(link);
        }
      }
      if (!set.empty()) {
        table_[rows_[at].entries + leaf] = sets[at].number_of(set);
      }
    }
  }
}

void Routes::lay_out(const std::vector<Sets>& sets) {
  choices_.push_back({});  // of all hosts: no way
  for (NodeId node = 0; node < rows_.size(); ++node) {
    if (sets[node].all.empty()) {
      continue;
    }
    rows_[node].choices = static_cast<std::uint32_t>(choices_.size());
    choices_.push_back({});
    for (const std::vector<LinkId>* const set : sets[node].all) {
      const auto count = static_cast<std::uint32_t>(set->size());
      if (count == 1) {
        choices_.push_back({set->front(), count});
      } else {
        choices_.push_back({static_cast<std::uint32_t>(members_.size()), count});
        members_.insert(members_.end(), set->begin(), set->end());
      }
    }
  }
}

void Routes::seed(std::uint64_t seed) {
  for (std::size_t node = 0; node < rows_.size(); ++node) {
    rows_[node].seed = static_cast<std::uint32_t>(mix64(seed ^ mix64(node + 1)));
  }
}

std::vector<LinkId> Routes::candidates(NodeId at, PortId destination) const {
  const Port& port = ports_[destination];
  if (port.leaf_node == at) {
    return {port.downlink};
  }
  const Choice choice = choice_of(at, port);
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
  while (result.size() < rows_.size()) {
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
