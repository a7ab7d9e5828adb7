// Owns the construction of fat trees and leaf-spine networks, and the rule that sizes queues.
#include "emu/fabric/generators.hpp"

#include <algorithm>
#include <cmath>

#include "emu/fabric/picos.hpp"

namespace weft::fabric {
namespace {

Result<Topology> bad(const std::string& text) { return fail(ErrorCode::invalid_argument, text); }

struct Tier {
  Rate rate;
  Duration delay;
  LinkProperties up;
  LinkProperties down;
  Duration latency;
};

// The switches of a tier and the cables below them: `up` is the way from below into the tier,
// `down` the way back. What the file does not say about the tier holds for all cables.
Tier tier_of(const FatTreeSpec& spec, unsigned tier, const CableSpec& cable) {
  Tier result;
  result.rate = spec.rate[tier].is_zero() ? cable.rate : spec.rate[tier];
  result.delay = spec.delay[tier] < Duration::zero() ? cable.delay : spec.delay[tier];
  result.latency =
      spec.latency[tier] < Duration::zero() ? cable.switch_latency : spec.latency[tier];
  LinkProperties link{.rate = result.rate,
                      .delay = result.delay,
                      .buffer = cable.buffer,
                      .ecn_low = cable.ecn ? cable.ecn_low : 0,
                      .ecn_high = cable.ecn ? cable.ecn_high : 0,
                      .trimming = cable.trimming};
  result.up = link;
  result.down = link;
  if (spec.queue_down[tier] != 0) {
    result.down.buffer = spec.queue_down[tier];
  }
  if (tier > 0 && spec.queue_up[tier - 1] != 0) {
    result.up.buffer = spec.queue_up[tier - 1];
  }
  if (tier == 0 && !cable.ecn_last_hop) {
    result.down.ecn_low = result.down.ecn_high = 0;
  }
  return result;
}

// How many switches there are, and cables above the hosts. In 64 bits no product of two numbers of
// a file overflows.
struct Size {
  std::uint64_t pod = 0;  // hosts of one pod
  std::uint64_t pods = 0;
  std::uint64_t tors = 0;   // of one pod
  std::uint64_t aggs = 0;   // of one pod
  std::uint64_t cores = 0;  // of all
};

// Only where the radices are not 0. What does not divide evenly is found by check().
Size size_of(const FatTreeSpec& s) {
  Size size;
  size.pod = s.tiers == 2 ? s.hosts : s.hosts_per_pod;
  size.pods = size.pod == 0 ? 0 : s.hosts / size.pod;
  size.tors = size.pod / s.tor_down;
  size.aggs = size.tors * s.tor_up / s.agg_down;
  size.cores = s.tiers == 2 ? 0 : size.pods * size.aggs * s.agg_up / s.core_down;
  return size;
}

// Radices must divide evenly at each tier, or switches of one tier would differ. Returns what is
// wrong, or nothing.
std::string check(const FatTreeSpec& s) {
  const auto text = [](const std::string& what) { return "fat tree: " + what; };
  if (s.tiers != 2 && s.tiers != 3) {
    return text("there are fat trees of 2 and of 3 tiers; set tiers to one of them");
  }
  if (s.hosts < 2 || s.tor_down == 0 || s.tor_up == 0 || s.agg_down == 0 ||
      (s.tiers == 3 && (s.agg_up == 0 || s.core_down == 0))) {
    return text("at least 2 hosts and no radix of 0");
  }
  if (s.hosts % s.tor_down != 0) {
    return text(std::to_string(s.hosts) + " hosts do not divide among ToRs of " +
                std::to_string(s.tor_down) + "; take a multiple of " + std::to_string(s.tor_down));
  }
  const auto [pod, pods, tors, aggs, cores] = size_of(s);
  if (pod == 0 || s.hosts % pod != 0 || pod % s.tor_down != 0) {
    return text("pods must have equal numbers of hosts, and whole ToRs: " +
                std::to_string(s.hosts) + " hosts, pods of " + std::to_string(pod) + ", ToRs of " +
                std::to_string(s.tor_down) + " do not");
  }
  if (aggs == 0 || tors * s.tor_up % s.agg_down != 0) {
    return text("the ToRs' uplinks of a pod must fill whole aggregation switches (radix down)");
  }
  if (s.tor_up % aggs != 0) {
    return text(
        "each ToR must reach each aggregation switch of its pod by the same number of cables");
  }
  if (s.tiers == 3) {
    if (cores == 0 || pods * aggs * s.agg_up % s.core_down != 0) {
      return text(
          "the uplinks of the aggregation switches must fill whole core switches (radix down)");
    }
    if (cores % aggs != 0 || s.agg_up * aggs % cores != 0) {
      return text(
          "each aggregation switch must reach its share of the cores by equally many cables");
    }
  }
  return too_large(s.hosts + pods * (tors + aggs) + cores,
                   s.hosts + pods * tors * s.tor_up + (s.tiers == 3 ? pods * aggs * s.agg_up : 0));
}

}  // namespace

std::string too_large(std::uint64_t nodes, std::uint64_t cables) {
  if (nodes <= kMaxNodes && cables <= kMaxCables) {
    return {};
  }
  return "the network would have " + std::to_string(nodes) + " hosts and switches and " +
         std::to_string(cables) + " cables; at most " + std::to_string(kMaxNodes) + " and " +
         std::to_string(kMaxCables) + " can be made";
}

std::int64_t base_rtt_ps(unsigned hops, const CableSpec& cable) {
  const auto data = static_cast<std::int64_t>(cable.rate.picoseconds_for(cable.mtu));
  const auto ack = static_cast<std::int64_t>(cable.rate.picoseconds_for(kAckSize));
  const auto switches = static_cast<std::int64_t>(hops) - 1;
  return 2 * hops * picos(cable.delay) + 2 * switches * picos(cable.switch_latency) +
         hops * (data + ack);
}

// A queue holds what a round trip without queues holds (the bandwidth-delay product), in whole
// packets; marking begins at a fifth of it and is certain from four fifths on.
CableSpec derive_queues(CableSpec cable, unsigned hops) {
  const double bdp = static_cast<double>(base_rtt_ps(hops, cable)) * 1e-12 *
                     static_cast<double>(cable.rate.bits_per_second()) / 8;
  const double packets = std::ceil(bdp / cable.mtu);
  const auto whole = [&](double share) {
    return static_cast<Bytes>(std::ceil(packets * share)) * cable.mtu;
  };
  if (cable.buffer == 0) {
    // Without trimming a full queue loses packets without a sign to the sender: give it five times
    // the room.
    cable.buffer = whole(1.0) * (cable.trimming ? 1 : 5);
  }
  if (cable.ecn && cable.ecn_high == 0) {
    cable.ecn_low = whole(0.2);
    cable.ecn_high = whole(0.8);
  }
  return cable;
}

FatTreeSpec k_ary_fat_tree(std::uint32_t hosts, const CableSpec& cable) {
  std::uint32_t k = 2;
  // A K-ary tree has K pods of (K/2)^2 hosts.
  while (std::uint64_t{k} * k * k / 4 < std::min<std::uint64_t>(hosts, kMaxNodes)) {
    k += 2;
  }
  FatTreeSpec spec;
  spec.tiers = 3;
  spec.hosts = k * k * k / 4;
  spec.hosts_per_pod = k * k / 4;
  spec.tor_down = spec.tor_up = spec.agg_down = spec.agg_up = k / 2;
  spec.core_down = k;
  spec.cable = cable;
  return spec;
}

FatTreeSpec leaf_spine(std::uint32_t hosts, std::uint32_t hosts_per_leaf, double ratio,
                       const CableSpec& cable) {
  FatTreeSpec spec;
  spec.tiers = 2;
  spec.hosts = hosts;
  spec.hosts_per_pod = hosts;
  spec.tor_down = hosts_per_leaf;
  // A leaf has at least one way up, and each spine reaches each leaf once.
  spec.tor_up =
      static_cast<std::uint32_t>(std::max(1.0, std::round(hosts_per_leaf / std::max(ratio, 1e-3))));
  spec.agg_down = hosts_per_leaf == 0 ? 0 : hosts / hosts_per_leaf;
  spec.cable = cable;
  return spec;
}

// Hosts first, so that ports are numbered like hosts; then ToRs, aggregation switches and cores,
// tier by tier. With 2 tiers the whole network is one pod whose aggregation switches are the
// spines. The n-th aggregation switch of each pod is wired to the n-th share of the cores.
Result<Topology> fat_tree(const FatTreeSpec& spec) {
  if (const std::string problem = check(spec); !problem.empty()) {
    return bad(problem);
  }
  const CableSpec cable = derive_queues(spec.cable, spec.tiers == 2 ? 4 : 6);
  const Tier access = tier_of(spec, 0, cable);
  const Tier middle = tier_of(spec, 1, cable);
  const Tier top = tier_of(spec, 2, cable);
  Topology net;
  net.name = "fat-tree";
  const Size size = size_of(spec);
  const auto pods = static_cast<std::uint32_t>(size.pods);
  const auto tors = static_cast<std::uint32_t>(size.tors);
  const auto aggs = static_cast<std::uint32_t>(size.aggs);
  const char* const agg_name = spec.tiers == 2 ? "spine" : "agg";
  for (std::uint32_t host = 0; host < spec.hosts; ++host) {
    net.add_host("host" + std::to_string(host));
  }
  std::vector<NodeId> tor_ids;
  std::vector<NodeId> agg_ids;
  for (std::uint32_t tor = 0; tor < pods * tors; ++tor) {
    tor_ids.push_back(net.add_switch("tor" + std::to_string(tor), 1, access.latency));
  }
  for (std::uint32_t agg = 0; agg < pods * aggs; ++agg) {
    agg_ids.push_back(net.add_switch(agg_name + std::to_string(agg), 2, middle.latency));
  }
  LinkProperties nic =
      access.up;  // a NIC's own queue: the transport paces it, nothing is cut or marked
  nic.ecn_low = nic.ecn_high = 0;
  nic.trimming = false;
  nic.buffer = 0;
  for (std::uint32_t host = 0; host < spec.hosts; ++host) {
    net.connect(host, tor_ids[host / spec.tor_down], nic, access.down);
  }
  for (std::uint32_t tor = 0; tor < pods * tors; ++tor) {
    for (std::uint32_t up = 0; up < spec.tor_up; ++up) {
      net.connect(tor_ids[tor], agg_ids[tor / tors * aggs + up % aggs], middle.up, middle.down);
    }
  }
  if (spec.tiers == 2) {
    return net;
  }
  const auto cores = static_cast<std::uint32_t>(size.cores);
  const std::uint32_t share =
      cores / aggs;  // cores that the n-th aggregation switch of each pod reaches
  for (std::uint32_t core = 0; core < cores; ++core) {
    net.add_switch("core" + std::to_string(core), 3, top.latency);
  }
  const auto first_core = static_cast<NodeId>(net.nodes().size() - cores);
  for (std::uint32_t agg = 0; agg < pods * aggs; ++agg) {
    for (std::uint32_t up = 0; up < spec.agg_up; ++up) {
      net.connect(agg_ids[agg], first_core + agg % aggs * share + up % share, top.up, top.down);
    }
  }
  return net;
}

}  // namespace weft::fabric
