// Owns the construction of networks without tiers, and of those whose hosts have several NICs.
#include <algorithm>
#include <numeric>
#include <set>

#include "emu/fabric/generators.hpp"
#include "srd/base/rng.hpp"

namespace weft::fabric {
namespace {

// The three kinds of links of a flat network: from a NIC, whose own queue has no limit and neither
// marks nor trims; down to a host; between switches.
struct Kit {
  LinkProperties nic;
  LinkProperties down;
  LinkProperties trunk;
};

Kit kit_of(const CableSpec& plain, unsigned hops) {
  const CableSpec cable = derive_queues(plain, hops);
  Kit kit;
  kit.trunk = {.rate = cable.rate,
               .delay = cable.delay,
               .buffer = cable.buffer,
               .ecn_low = cable.ecn ? cable.ecn_low : 0,
               .ecn_high = cable.ecn ? cable.ecn_high : 0,
               .trimming = cable.trimming};
  kit.down = kit.trunk;
  if (!cable.ecn_last_hop) {
    kit.down.ecn_low = kit.down.ecn_high = 0;
  }
  kit.nic = kit.trunk;
  kit.nic.ecn_low = kit.nic.ecn_high = 0;
  kit.nic.trimming = false;
  kit.nic.buffer = 0;
  return kit;
}

Result<Topology> bad(const std::string& text) { return fail(ErrorCode::invalid_argument, text); }

// `count` switches named <name>N after the hosts that they get; hosts first, so that ports count
// up.
std::vector<NodeId> switches_with_hosts(Topology& net, const char* name, std::uint32_t count,
                                        std::uint32_t hosts_each, const CableSpec& cable,
                                        const Kit& kit) {
  std::vector<NodeId> hosts;
  for (std::uint32_t host = 0; host < count * hosts_each; ++host) {
    hosts.push_back(net.add_host("host" + std::to_string(host)));
  }
  std::vector<NodeId> switches;
  for (std::uint32_t i = 0; i < count; ++i) {
    switches.push_back(net.add_switch(name + std::to_string(i), 1, cable.switch_latency));
  }
  for (std::uint32_t host = 0; host < hosts.size(); ++host) {
    net.connect(hosts[host], switches[host / hosts_each], kit.nic, kit.down);
  }
  return switches;
}

}  // namespace

Result<Topology> ring(std::uint32_t switches, std::uint32_t hosts_per_switch,
                      const CableSpec& cable) {
  if (switches < 3 || hosts_per_switch == 0) {
    return bad("ring: at least 3 switches with at least 1 host each");
  }
  return torus({switches}, hosts_per_switch, cable);
}

Result<Topology> torus(const std::vector<std::uint32_t>& sides, std::uint32_t hosts_per_switch,
                       const CableSpec& cable) {
  std::uint64_t count = 1;
  // The longest of the shortest paths: half of each side, and the two cables to the hosts.
  unsigned hops = 2;
  for (const std::uint32_t side : sides) {
    if (side < 3) {
      return bad(
          "torus: each side needs at least 3 switches; with 2 the same pair would be joined twice");
    }
    count *= side;
    hops += side / 2;
    if (count > kMaxNodes) {
      return bad("torus: more than " + std::to_string(kMaxNodes) + " switches");
    }
  }
  if (sides.empty() || hosts_per_switch == 0) {
    return bad("torus: give 1 or more sides, and at least 1 host per switch");
  }
  const std::uint64_t hosts = count * hosts_per_switch;
  if (const std::string problem = too_large(count + hosts, count * sides.size() + hosts);
      !problem.empty()) {
    return bad("torus: " + problem);
  }
  Topology net;
  net.name = sides.size() == 1 ? "ring" : "torus";
  const Kit kit = kit_of(cable, hops);
  const auto ids = switches_with_hosts(net, "switch", static_cast<std::uint32_t>(count),
                                       hosts_per_switch, cable, kit);
  // Switches are numbered like digits, the first side varying fastest; along each side each switch
  // is joined to the next one, the last to the first.
  std::uint32_t stride = 1;
  for (const std::uint32_t side : sides) {
    for (std::uint32_t at = 0; at < count; ++at) {
      const std::uint32_t along = at / stride % side;
      const std::uint32_t next = at - along * stride + (along + 1) % side * stride;
      net.connect(ids[at], ids[next], kit.trunk);
    }
    stride *= side;
  }
  return net;
}

Result<Topology> random_graph(std::uint32_t switches, std::uint32_t degree,
                              std::uint32_t hosts_per_switch, Duration delay_spread,
                              std::uint64_t seed, const CableSpec& cable) {
  if (switches < 3 || degree < 2 || degree >= switches || hosts_per_switch == 0 ||
      (static_cast<std::uint64_t>(switches) * degree) % 2 != 0 || delay_spread < Duration::zero()) {
    return bad(
        "random graph: at least 3 switches, 2 <= degree < switches, switches x degree even, at "
        "least 1 "
        "host per switch, spread not negative");
  }
  const std::uint64_t hosts = std::uint64_t{switches} * hosts_per_switch;
  if (const std::string problem =
          too_large(switches + hosts, hosts + std::uint64_t{switches} * degree / 2);
      !problem.empty()) {
    return bad("random graph: " + problem);
  }
  Topology net;
  net.name = "random-graph";
  const Kit kit = kit_of(cable, 5);
  const auto ids = switches_with_hosts(net, "switch", switches, hosts_per_switch, cable, kit);
  Rng rng(seed);
  // A circle connects all switches. The remaining cable ends ("stubs", `degree` - 2 per switch) are
  // shuffled and paired. A pair that would double a cable, or loop, goes back into the next
  // attempt, together with one pair that was good before: otherwise the last ends might never fit.
  // What is left after 64 attempts stays unconnected.
  std::set<std::pair<std::uint32_t, std::uint32_t>> cables;
  const auto norm = [](std::uint32_t a, std::uint32_t b) {
    return std::pair(std::min(a, b), std::max(a, b));
  };
  for (std::uint32_t at = 0; at < switches; ++at) {
    cables.insert(norm(at, (at + 1) % switches));
  }
  std::vector<std::uint32_t> stubs;
  for (std::uint32_t at = 0; at < switches; ++at) {
    stubs.insert(stubs.end(), degree - 2, at);
  }
  std::vector<std::pair<std::uint32_t, std::uint32_t>> swappable;
  for (unsigned attempt = 0; !stubs.empty() && attempt < 64; ++attempt) {
    for (std::size_t i = stubs.size(); i > 1; --i) {
      std::swap(stubs[i - 1], stubs[rng.below(static_cast<std::uint32_t>(i))]);
    }
    std::vector<std::uint32_t> left;
    for (std::size_t i = 0; i + 1 < stubs.size(); i += 2) {
      const auto pair = norm(stubs[i], stubs[i + 1]);
      if (pair.first != pair.second && cables.insert(pair).second) {
        swappable.push_back(pair);
      } else {
        left.push_back(stubs[i]);
        left.push_back(stubs[i + 1]);
        if (!swappable.empty()) {  // give back one more pair to mix with
          const std::size_t victim = rng.below(static_cast<std::uint32_t>(swappable.size()));
          left.push_back(swappable[victim].first);
          left.push_back(swappable[victim].second);
          cables.erase(swappable[victim]);
          swappable.erase(swappable.begin() + static_cast<std::ptrdiff_t>(victim));
        }
      }
    }
    stubs = std::move(left);
  }
  for (const auto& [a, b] : cables) {
    LinkProperties trunk = kit.trunk;
    trunk.delay += Duration{static_cast<std::int64_t>(
        rng.between(0, static_cast<std::uint64_t>(delay_spread.count())))};
    net.connect(ids[a], ids[b], trunk);
  }
  return net;
}

// Ports are numbered host by host, and rail by rail within a host.
Result<Topology> rail_optimised(std::uint32_t groups, std::uint32_t hosts_per_group,
                                std::uint32_t rails, std::uint32_t spines, const CableSpec& cable) {
  if (groups == 0 || hosts_per_group == 0 || rails == 0 || spines == 0) {
    return bad("rail-optimised: groups, hosts per group, rails and spines must all be at least 1");
  }
  const std::uint64_t hosts = std::uint64_t{groups} * hosts_per_group;
  const std::uint64_t leaves = std::uint64_t{groups} * rails;
  if (std::string problem = too_large(std::max(hosts, leaves) + spines, 0); !problem.empty()) {
    return bad("rail-optimised: " + problem);  // and no product below overflows
  }
  if (std::string problem = too_large(hosts + leaves + spines, hosts * rails + leaves * spines);
      !problem.empty()) {
    return bad("rail-optimised: " + problem);
  }
  Topology net;
  net.name = "rail-optimised";
  const Kit kit = kit_of(cable, 4);
  for (std::uint32_t host = 0; host < groups * hosts_per_group; ++host) {
    net.add_host("host" + std::to_string(host));
  }
  std::vector<NodeId> rail_ids;
  for (std::uint32_t i = 0; i < groups * rails; ++i) {
    rail_ids.push_back(net.add_switch("rail" + std::to_string(i), 1, cable.switch_latency));
  }
  std::vector<NodeId> spine_ids;
  for (std::uint32_t i = 0; i < spines; ++i) {
    spine_ids.push_back(net.add_switch("spine" + std::to_string(i), 2, cable.switch_latency));
  }
  for (std::uint32_t host = 0; host < groups * hosts_per_group; ++host) {
    for (std::uint32_t rail = 0; rail < rails; ++rail) {
      net.connect(host, rail_ids[host / hosts_per_group * rails + rail], kit.nic, kit.down);
    }
  }
  for (const NodeId rail : rail_ids) {
    for (const NodeId spine : spine_ids) {
      net.connect(rail, spine, kit.trunk);
    }
  }
  return net;
}

// All planes share the hosts; a frame stays in the plane of the NIC that sends it.
Result<Topology> multi_plane(std::uint32_t planes, std::uint32_t hosts,
                             std::uint32_t hosts_per_leaf, double ratio, const CableSpec& cable) {
  if (planes == 0 || hosts < 2 || hosts_per_leaf == 0 || hosts % hosts_per_leaf != 0 ||
      !(ratio > 0)) {
    return bad(
        "multi-plane: at least 1 plane and 2 hosts, hosts a multiple of the hosts per leaf, ratio "
        "> 0");
  }
  Topology net;
  net.name = "multi-plane";
  const Kit kit = kit_of(cable, 4);
  const FatTreeSpec shape = leaf_spine(hosts, hosts_per_leaf, ratio, cable);
  const std::uint32_t leaves = hosts / hosts_per_leaf;
  // So many spines each plane has, and cables each leaf. First of one plane, so that no product of
  // three overflows.
  const std::uint64_t uplinks = shape.tor_up;
  for (const std::uint64_t count : {std::uint64_t{1}, std::uint64_t{planes}}) {
    if (const std::string problem =
            too_large(hosts + count * (leaves + uplinks), count * (hosts + leaves * uplinks));
        !problem.empty()) {
      return bad("multi-plane: " + problem);
    }
  }
  for (std::uint32_t host = 0; host < hosts; ++host) {
    net.add_host("host" + std::to_string(host));
  }
  for (std::uint32_t plane = 0; plane < planes; ++plane) {
    const std::string prefix = "plane" + std::to_string(plane) + "-";
    std::vector<NodeId> leaf_ids;
    for (std::uint32_t i = 0; i < leaves; ++i) {
      leaf_ids.push_back(
          net.add_switch(prefix + "leaf" + std::to_string(i), 1, cable.switch_latency));
    }
    for (std::uint32_t host = 0; host < hosts; ++host) {
      net.connect(host, leaf_ids[host / hosts_per_leaf], kit.nic, kit.down);
    }
    for (std::uint32_t i = 0; i < shape.tor_up; ++i) {
      const NodeId spine =
          net.add_switch(prefix + "spine" + std::to_string(i), 2, cable.switch_latency);
      for (const NodeId leaf : leaf_ids) {
        net.connect(leaf, spine, kit.trunk);
      }
    }
  }
  return net;
}

}  // namespace weft::fabric
