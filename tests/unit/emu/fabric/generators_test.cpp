// Owns the tests of generated topologies.
//
// A generated network is judged by what can be counted (switches, cables, hosts), by the length of
// its paths, and by whether every host reaches every other one. Numbers that come from a file may
// be anything, so each generator is also given some that do not fit.
#include "emu/fabric/generators.hpp"

#include <gtest/gtest.h>

#include <set>

#include "emu/fabric/picos.hpp"
#include "emu/fabric/routes.hpp"

namespace weft::fabric {
namespace {

std::size_t count_tier(const Topology& net, std::uint8_t tier) {
  std::size_t count = 0;
  for (const Node& node : net.nodes()) {
    count += node.tier == tier ? 1U : 0U;
  }
  return count;
}

// A sample of the pairs: steps of 7 and 5 reach every residue, and keep large networks quick.
void expect_all_pairs_connected(const Topology& net) {
  ASSERT_TRUE(net.validate()) << net.validate().error().message;
  const Routes routes(net);
  for (PortId from = 0; from < routes.port_count(); from += 7) {
    for (PortId to = 0; to < routes.port_count(); to += 5) {
      if (from != to) {
        EXPECT_FALSE(routes.path(from, to, from * 31 + to).empty()) << from << " to " << to;
      }
    }
  }
}

// The sizes, queues and thresholds that the reference simulator prints for its default networks.
TEST(Generators, KAryFatTreeHasTheReferenceSizes) {
  struct Row {
    std::uint32_t hosts, tors, aggs, cores;
  };
  for (const Row& row : {Row{16, 8, 8, 4}, Row{128, 32, 32, 16}, Row{1024, 128, 128, 64}}) {
    const Topology net = fat_tree(k_ary_fat_tree(row.hosts, {})).value();
    EXPECT_EQ(net.ports().size(), row.hosts);
    EXPECT_EQ(count_tier(net, 1), row.tors);
    EXPECT_EQ(count_tier(net, 2), row.aggs);
    EXPECT_EQ(count_tier(net, 3), row.cores);
    expect_all_pairs_connected(net);
  }
}

// What a queue holds is derived from the round trip of the longest path, so that one flow can keep
// its path full. The values are those of the reference simulator, to the byte.
TEST(Generators, QueuesFollowTheReferenceRule) {
  CableSpec cable;
  EXPECT_EQ(base_rtt_ps(6, cable), 14'022'720);
  CableSpec three = derive_queues(cable, 6);
  EXPECT_EQ(three.buffer, 178'450U);
  EXPECT_EQ(three.ecn_low, 37'350U);
  EXPECT_EQ(three.ecn_high, 145'250U);
  cable.trimming = false;
  EXPECT_EQ(derive_queues(cable, 6).buffer, 892'250U);
  cable.trimming = true;
  CableSpec two = derive_queues(cable, 4);
  EXPECT_EQ(base_rtt_ps(4, cable), 9'348'480);
  EXPECT_EQ(two.buffer, 120'350U);
  EXPECT_EQ(two.ecn_low, 24'900U);
  EXPECT_EQ(two.ecn_high, 99'600U);
  cable.rate = Rate::gbps(400);
  CableSpec fast = derive_queues(cable, 6);
  EXPECT_EQ(base_rtt_ps(6, cable), 12'505'680);
  EXPECT_EQ(fast.buffer, 626'650U);
  EXPECT_EQ(fast.ecn_low, 128'650U);
  EXPECT_EQ(fast.ecn_high, 502'150U);
}

// 32 hosts below a leaf and a factor of 4 leave 8 uplinks, one to each of 8 spines.
TEST(Generators, LeafSpineOversubscribes) {
  const Topology net = fat_tree(leaf_spine(1024, 32, 4, {})).value();
  EXPECT_EQ(count_tier(net, 1), 32U);
  EXPECT_EQ(count_tier(net, 2), 8U);
  EXPECT_EQ(net.find_links("tor0->spine*").size(), 8U);
  expect_all_pairs_connected(net);
}

// All switches of a tier have the same ports. Numbers that do not divide would leave cables without
// an end.
TEST(Generators, FatTreeRefusesWhatCannotBeWired) {
  FatTreeSpec spec = k_ary_fat_tree(16, {});
  spec.agg_down = 3;
  const auto made = fat_tree(spec);
  ASSERT_FALSE(made);
  EXPECT_NE(made.error().message.find("whole aggregation switches"), std::string::npos)
      << made.error().message;
  spec = k_ary_fat_tree(16, {});
  spec.hosts = 17;
  EXPECT_FALSE(fat_tree(spec));
  spec.tiers = 4;
  EXPECT_FALSE(fat_tree(spec));
}

// Products of what a file says that do not fit into 32 bits, or not into memory.
TEST(Generators, WhatIsTooLargeIsRefused) {
  FatTreeSpec spec;
  spec.tiers = 2;
  spec.hosts = 65536;
  spec.tor_down = 1;
  spec.tor_up = 65536;  // uplinks: 2^32
  spec.agg_down = 4;
  EXPECT_FALSE(fat_tree(spec));
  spec.agg_down = 65536;
  const auto wide = fat_tree(spec);
  ASSERT_FALSE(wide);
  EXPECT_NE(wide.error().message.find("4295032832 cables"), std::string::npos)
      << wide.error().message;
  spec = k_ary_fat_tree(16, {});
  spec.core_down = 0;
  EXPECT_FALSE(fat_tree(spec));
  EXPECT_FALSE(fat_tree(k_ary_fat_tree(0xFFFFFFFF, {})));
  constexpr std::uint32_t kMost = 0xFFFFFFFF;
  EXPECT_FALSE(torus({1024, 1024}, 1, {}));
  EXPECT_FALSE(torus({65536, 65536}, kMost, {}));
  EXPECT_FALSE(torus({3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3}, 1, {}));
  EXPECT_FALSE(ring(3, kMost, {}));
  EXPECT_FALSE(random_graph(3, 2, kMost, {}, 1, {}));
  EXPECT_FALSE(random_graph(4096, 4094, 1, {}, 1, {}));
  EXPECT_FALSE(rail_optimised(1, 1, 1, kMost, {}));
  EXPECT_FALSE(rail_optimised(kMost, kMost, kMost, kMost, {}));
  EXPECT_FALSE(rail_optimised(1024, 1, 8, 1024, {})) << "8388608 cables to the spines";
  EXPECT_FALSE(multi_plane(kMost, 16, 4, 1, {}));
  EXPECT_FALSE(multi_plane(1, 1U << 19, 1U << 18, 1e-9, {}));
}

// The network has 90300 sets of links, more than a route has bits for; each spine has 300.
TEST(Generators, SwitchesNumberTheirChoicesApart) {
  const Topology net = fat_tree(leaf_spine(300, 1, 1.0 / 300, {})).value();
  ASSERT_TRUE(net.validate());
  ASSERT_EQ(count_tier(net, 2), 300U);
  const Routes routes(net);
  for (PortId from = 0; from < 300; from += 13) {
    for (PortId to = 0; to < 300; to += 17) {
      const std::vector<LinkId> path = routes.path(from, to, from * 31 + to);
      ASSERT_EQ(path.size(), from == to ? 2U : 4U) << from << " to " << to;
      EXPECT_EQ(path.back(), routes.downlink(to));
    }
  }
}

TEST(Generators, RingAndTorusCloseOnThemselves) {
  const Topology circle = ring(8, 2, {}).value();
  expect_all_pairs_connected(circle);
  EXPECT_EQ(Routes(circle).path(0, 8, 1).size(), 6U)
      << "half way round: 4 cables and the two of the hosts";
  EXPECT_EQ(Routes(circle).path(0, 14, 1).size(), 3U);
  const Topology cube = torus({3, 4, 5}, 1, {}).value();
  EXPECT_EQ(cube.links().size(), 2 * (60 + 3 * 60));
  expect_all_pairs_connected(cube);
  EXPECT_FALSE(torus({2, 4}, 1, {}));
  EXPECT_FALSE(ring(2, 1, {}));
}

// Regular but for a few ends: the last free ones may belong to switches that are joined already.
TEST(Generators, RandomGraphIsRegularConnectedAndOfUnequalLengths) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    const Topology net = random_graph(24, 5, 2, std::chrono::microseconds{2}, seed, {}).value();
    expect_all_pairs_connected(net);
    std::set<Duration> delays;
    std::set<std::pair<NodeId, NodeId>> pairs;
    std::vector<std::size_t> degree(net.nodes().size(), 0);
    for (const Link& link : net.links()) {
      if (net.nodes()[link.from].tier == 1 && net.nodes()[link.to].tier == 1) {
        delays.insert(link.properties.delay);
        EXPECT_TRUE(pairs.emplace(link.from, link.to).second)
            << "two cables between the same switches";
        ++degree[link.from];
      }
    }
    EXPECT_GT(delays.size(), 30U);
    std::size_t total = 0;
    for (const std::size_t d : degree) {
      EXPECT_LE(d, 5U);
      total += d;
    }
    EXPECT_GE(total, 24U * 5 - 4);
  }
  EXPECT_FALSE(random_graph(5, 3, 1, {}, 1, {})) << "odd number of cable ends";
}

// NIC n of each host of a group hangs at the switch of rail n. So traffic of one rail stays below
// its switch, and only traffic between rails, or groups, crosses a spine.
TEST(Generators, RailsKeepToTheirNumberWithinAGroup) {
  const Topology net = rail_optimised(2, 4, 3, 2, {}).value();
  expect_all_pairs_connected(net);
  EXPECT_EQ(net.ports().size(), 24U);
  const Routes routes(net);
  EXPECT_EQ(routes.path(0, 3, 1).size(), 2U) << "same rail, next host: one switch";
  EXPECT_EQ(routes.path(0, 4, 1).size(), 4U) << "another rail: over a spine";
  EXPECT_EQ(net.port_name(4), "host1/nic1");
}

// Each plane is a network of its own. A host reaches another one by NICs of the same number only,
// which validate() must accept all the same.
TEST(Generators, PlanesDoNotMeet) {
  const Topology net = multi_plane(2, 16, 4, 1, {}).value();
  ASSERT_TRUE(net.validate());
  const Routes routes(net);
  EXPECT_FALSE(routes.path(0, 30, 1).empty());
  EXPECT_TRUE(routes.path(0, 31, 1).empty()) << "NIC 0 of one host, NIC 1 of another";
}

// The routing table has a number for each pair of a switch and a leaf, and 16 bits for a leaf.
TEST(Topology, RefusesMoreRoutesThanTheTableHolds) {
  const Topology leaves = fat_tree(leaf_spine(70000, 1, 1, {})).value();
  const auto many = leaves.validate();
  ASSERT_FALSE(many);
  EXPECT_NE(many.error().message.find("70000 switches have hosts; at most 65535"),
            std::string::npos)
      << many.error().message;
  const Topology square = torus({256, 250}, 1, {}).value();
  const auto large = square.validate();
  ASSERT_FALSE(large);
  EXPECT_NE(large.error().message.find("routes"), std::string::npos) << large.error().message;
}

// 1 Mb/s; times of 1024 bytes have to fit into 32 bits of picoseconds.
TEST(Topology, RefusesLinksTooSlowToModel) {
  Topology net = ring(3, 1, {.rate = Rate::gbps(0.001)}).value();
  const auto slow = net.validate();
  ASSERT_FALSE(slow);
  EXPECT_NE(slow.error().message.find("2 Mb/s"), std::string::npos) << slow.error().message;
}

// `->` is one direction, `-` both. The last loop is the other way round: the name of each link
// finds that link alone.
TEST(Topology, FindsLinksByNameAndPattern) {
  const Topology net = fat_tree(k_ary_fat_tree(16, {})).value();
  EXPECT_EQ(net.find_links("tor0->agg0").size(), 1U);
  EXPECT_EQ(net.find_links("tor0-agg0").size(), 2U);
  EXPECT_EQ(net.find_links("tor*->agg*").size(), 16U);
  EXPECT_EQ(net.find_links("core0->*").size(), 4U);
  EXPECT_TRUE(net.find_links("tor0->core0").empty());
  EXPECT_TRUE(net.find_links("nonsense").empty());
  EXPECT_EQ(*net.links_called("tor*->agg*"), net.find_links("tor*->agg*"));
  const auto none = net.links_called("nonsense");
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().message.find("'nonsense'"), std::string::npos) << none.error().message;
  EXPECT_NE(none.error().message.find(net.link_name(0)), std::string::npos);
  EXPECT_TRUE(net.find_links("tor0->agg0#x").empty());
  for (LinkId link = 0; link < net.links().size(); ++link) {
    EXPECT_EQ(net.find_links(net.link_name(link)), std::vector<LinkId>{link});
  }
}

// One fault after the other is repaired, and the next one has to be named.
TEST(Topology, ValidationNamesTheCulprit) {
  Topology net;
  net.add_host("a");
  net.add_host("b");
  net.add_host("lonely");
  net.connect(0, 1, LinkProperties{});
  EXPECT_NE(net.validate().error().message.find("'lonely' has no link"), std::string::npos);
  const NodeId other = net.add_switch("s");
  net.connect(2, other, LinkProperties{});
  EXPECT_NE(net.validate().error().message.find("'lonely' cannot be reached"), std::string::npos);
  Topology twice;
  twice.add_host("a");
  twice.add_host("a");
  EXPECT_NE(twice.validate().error().message.find("two nodes are called 'a'"), std::string::npos);
}

}  // namespace
}  // namespace weft::fabric
