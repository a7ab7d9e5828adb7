// Owns the families of networks that a few numbers describe.
#pragma once

#include <cstdint>
#include <string>

#include "emu/fabric/topology.hpp"

namespace weft::fabric {

// The properties of all cables of a generated network. Zero for a buffer or threshold: derived from
// the network by the rules of docs/experiments.md (queue of one bandwidth-delay product, marking
// between 0.2 and 0.8 of it).
struct CableSpec {
  Rate rate = Rate::gbps(100);
  Duration delay = std::chrono::microseconds{1};
  Duration switch_latency{};  // added to each hop into a switch
  Bytes buffer = 0;
  Bytes ecn_low = 0;
  Bytes ecn_high = 0;
  bool ecn = true;
  bool ecn_last_hop = true;  // marking on the links that lead down to hosts
  bool trimming = true;
  std::uint32_t mtu = 4150;  // bytes on the wire
};

// Of an acknowledgement on the wire, where a bound of time counts one.
inline constexpr Bytes kAckSize = 64;

// What a few numbers can describe at most; more is refused.
inline constexpr std::uint64_t kMaxNodes = 1U << 20;
inline constexpr std::uint64_t kMaxCables = 1U << 22;

// Folded Clos of 2 or 3 tiers. Every switch of a tier has the same radix; fat_tree() refuses
// numbers that do not divide evenly.
struct FatTreeSpec {
  unsigned tiers = 3;
  std::uint32_t hosts = 128;
  std::uint32_t hosts_per_pod = 16;  // 2 tiers: all of them
  std::uint32_t tor_down = 4, tor_up = 4;
  std::uint32_t agg_down = 4, agg_up = 4;
  std::uint32_t core_down = 8;  // 3 tiers only
  CableSpec cable;
  // Per tier, where files give them apart: [0] host-ToR, [1] ToR-aggregation, [2] aggregation-core.
  // Zero or negative: as `cable` says. queue_up[n] and queue_down[n] are those of the switches of
  // tier n, upwards and downwards.
  Rate rate[3]{};
  Duration delay[3]{Duration{-1}, Duration{-1}, Duration{-1}};
  Duration latency[3]{Duration{-1}, Duration{-1}, Duration{-1}};
  Bytes queue_up[3]{};
  Bytes queue_down[3]{};
};

// The reference simulator's default: the smallest K-ary tree, non-blocking, with at least `hosts`
// hosts.
[[nodiscard]] FatTreeSpec k_ary_fat_tree(std::uint32_t hosts, const CableSpec& cable);
// `ratio` = capacity towards the hosts over capacity towards the spines.
[[nodiscard]] FatTreeSpec leaf_spine(std::uint32_t hosts, std::uint32_t hosts_per_leaf,
                                     double ratio, const CableSpec& cable);

[[nodiscard]] Result<Topology> fat_tree(const FatTreeSpec& spec);
// Switches in a circle, each with its hosts.
[[nodiscard]] Result<Topology> ring(std::uint32_t switches, std::uint32_t hosts_per_switch,
                                    const CableSpec& cable);
// A grid of switches that closes on itself in each dimension.
[[nodiscard]] Result<Topology> torus(const std::vector<std::uint32_t>& sides,
                                     std::uint32_t hosts_per_switch, const CableSpec& cable);
// Equal switches with random cables between them, whose lengths are random too: delay .. delay +
// spread.
[[nodiscard]] Result<Topology> random_graph(std::uint32_t switches, std::uint32_t degree,
                                            std::uint32_t hosts_per_switch, Duration delay_spread,
                                            std::uint64_t seed, const CableSpec& cable);
// Hosts with several NICs: the n-th NIC of every host of a group meets on the group's n-th rail
// switch, and the spines join all rail switches.
[[nodiscard]] Result<Topology> rail_optimised(std::uint32_t groups, std::uint32_t hosts_per_group,
                                              std::uint32_t rails, std::uint32_t spines,
                                              const CableSpec& cable);
// The same leaf-spine network several times over; each host has one NIC in each plane.
[[nodiscard]] Result<Topology> multi_plane(std::uint32_t planes, std::uint32_t hosts,
                                           std::uint32_t hosts_per_leaf, double ratio,
                                           const CableSpec& cable);

// What is wrong with a network of so many hosts and switches, and cables; empty if nothing is.
[[nodiscard]] std::string too_large(std::uint64_t nodes, std::uint64_t cables);
// Round-trip time of a full packet and its acknowledgement over `hops` links of this cable,
// unloaded.
[[nodiscard]] std::int64_t base_rtt_ps(unsigned hops, const CableSpec& cable);
// Fills in the buffer and the thresholds that are zero, for a network whose longest path has so
// many links.
[[nodiscard]] CableSpec derive_queues(CableSpec cable, unsigned hops);

}  // namespace weft::fabric
