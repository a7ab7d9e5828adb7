// Owns the tests of topology and matrix files.
//
// What is right is tried on a few files; most cases are wrong files, because people write these. A
// message must say the line, the key, and what would be right: it is compared as text.
#include <gtest/gtest.h>

#include "emu/fabric/fault.hpp"
#include "emu/fabric/htsim_topo.hpp"
#include "emu/fabric/topology_yaml.hpp"
#include "emu/fabric/traffic_matrix.hpp"

namespace weft::fabric {
namespace {

Result<Topology> yaml(const std::string& text) { return read_topology("net.yaml", text, ""); }

// One of each that a file may have: defaults, a kind, named ports, a link with another rate and
// other marks on its way back.
const char* const kSmall = R"(name: two-leaves
topology:
  defaults: {rate: 100Gbps, delay: 500ns, buffer: 64KiB, ecn: [8KB, 32KB], trimming: true}
  kinds:
    leaf: {base: switch, tier: 1, latency: 250ns}
  nodes:
    a: {kind: host}
    b: {kind: host}
    leaf-0: {kind: leaf}
    leaf-1: {kind: leaf}
  links:
    - {endpoints: ["a:eth0", "leaf-0:eth1"]}
    - {endpoints: [b, leaf-1]}
    - {endpoints: [leaf-0, leaf-1], rate: 400G, reverse: {rate: 200G, ecn: off}}
)";

TEST(TopologyFile, ReadsNodesKindsAndLinks) {
  const auto net = yaml(kSmall);
  ASSERT_TRUE(net) << net.error().message;
  EXPECT_EQ(net->name, "two-leaves");
  EXPECT_EQ(net->ports().size(), 2U);
  const auto trunk = net->find_links("leaf-0->leaf-1");
  ASSERT_EQ(trunk.size(), 1U);
  const LinkProperties& out = net->links()[trunk[0]].properties;
  EXPECT_EQ(out.rate, Rate::gbps(400));
  EXPECT_EQ(out.delay, Duration{500});
  EXPECT_EQ(out.ecn_high, 32'000U);
  EXPECT_TRUE(out.trimming);
  const LinkProperties& back = net->links()[Topology::reverse(trunk[0])].properties;
  EXPECT_EQ(back.rate, Rate::gbps(200));
  EXPECT_EQ(back.ecn_high, 0U);
  EXPECT_EQ(net->nodes()[net->find("leaf-1")].latency, Duration{250});
  const LinkProperties& nic = net->links()[net->find_links("a->leaf-0")[0]].properties;
  EXPECT_EQ(nic.ecn_high, 0U) << "a NIC's own queue does not mark";
}

// Labs and `weft matrix` hand a network to weftd as text: nothing may be lost or rounded on the
// way.
TEST(TopologyFile, WrittenAndReadBackIsTheSame) {
  const auto net = yaml(kSmall);
  ASSERT_TRUE(net);
  const std::string text = write_topology(*net);
  const auto again = yaml(text);
  ASSERT_TRUE(again) << again.error().message << text;
  EXPECT_EQ(write_topology(*again), text);
}

// Names become parts of paths, of environment variables, of link patterns (`*`, `->`) and of
// metrics, and are printed to terminals. So all that means something in one of these is refused.
TEST(TopologyFile, NamesOfNodesAreNoPathsAndNoPatterns) {
  const auto with = [](const std::string& name) {
    return yaml("topology:\n  nodes:\n    \"" + name +
                "\": {kind: host}\n    sw: {}\n  links: [{endpoints: [\"" + name + "\", sw]}]\n");
  };
  for (const char* good : {"a", "h1", "rack-3.node_7", "_x", "0"}) {
    EXPECT_TRUE(with(good)) << good;
  }
  for (const std::string& bad :
       {std::string("../../evil"), std::string("."), std::string(".."), std::string(".hidden"),
        std::string("-rf"), std::string("a/b"), std::string("a b"), std::string("a->b"),
        std::string("h*"), std::string("a\\nb"), std::string("a=b"), std::string("a,b"),
        std::string("\\x1b[2J"), std::string("\xC3\xA4"), std::string(64, 'a'), std::string()}) {
    const auto net = with(bad);
    ASSERT_FALSE(net) << bad;
    EXPECT_NE(net.error().message.find("net.yaml:3: topology.nodes."), std::string::npos)
        << net.error().message;
  }
}

// The name of a network is only shown: it may hold anything but control characters, and must
// survive being written as YAML.
TEST(TopologyFile, OtherNamesAreOneLineAndComeBackAsTheyWere) {
  EXPECT_FALSE(yaml("name: \"two\\nlines\"\ntopology: {generator: fat-tree, hosts: 16}\n"));
  EXPECT_FALSE(yaml("name: \"\\e[2J\"\ntopology: {generator: fat-tree, hosts: 16}\n"));
  EXPECT_FALSE(
      yaml("name: " + std::string(201, 'x') + "\ntopology: {generator: fat-tree, hosts: 16}\n"));
  for (const char* name : {"a: b # c", "\\\"quoted\\\"", "{x}", "null", "back\\\\slash"}) {
    const auto net =
        yaml("name: \"" + std::string(name) + "\"\ntopology: {generator: fat-tree, hosts: 16}\n");
    ASSERT_TRUE(net) << name;
    const auto again = yaml(write_topology(*net));
    ASSERT_TRUE(again) << name;
    EXPECT_EQ(again->name, net->name);
  }
}

TEST(TopologyFile, EveryGeneratorCanBeNamed) {
  for (const char* keys :
       {"generator: fat-tree\n  hosts: 16",
        "generator: leaf-spine\n  hosts: 32\n  hosts_per_leaf: 8\n  oversubscription: 2",
        "generator: ring\n  switches: 4\n  hosts_per_switch: 2",
        "generator: torus\n  sides: [3, 3]\n  hosts_per_switch: 1",
        "generator: random-graph\n  switches: 8\n  degree: 3\n  hosts_per_switch: 2\n  "
        "delay_spread: 4us",
        "generator: rail-optimised\n  groups: 2\n  hosts_per_group: 2\n  rails: 2\n  spines: 2",
        "generator: multi-plane\n  planes: 2\n  hosts: 8\n  hosts_per_leaf: 4",
        "generator: clos\n  tiers: 2\n  hosts: 8\n  tor_down: 4\n  tor_up: 2\n  agg_down: 2"}) {
    const auto net = yaml(std::string("topology:\n  ") + keys + "\n");
    EXPECT_TRUE(net) << keys << ": " << net.error().message;
  }
}

// Of hosts, switches and hosts of each switch any two determine the third; all three must agree.
TEST(TopologyFile, HostsOfAFlatNetworkStandForSwitchesOrHostsOfEach) {
  for (const char* const keys :
       {"hosts: 32", "hosts: 32\n  switches: 8", "hosts: 32\n  hosts_per_switch: 4",
        "hosts: 32\n  switches: 4\n  hosts_per_switch: 8"}) {
    for (const char* const shape : {"ring", "random-graph\n  degree: 2"}) {
      const auto net = yaml(std::string("topology:\n  generator: ") + shape + "\n  " + keys + "\n");
      if (std::string_view(keys) == "hosts: 32") {
        EXPECT_FALSE(net) << "two switches are no ring";
        continue;
      }
      ASSERT_TRUE(net) << net.error().message;
      EXPECT_EQ(net->ports().size(), 32U) << keys;
    }
  }
}

// What a user reads when a file is wrong: the line, the key, and what would be right.
struct BadFile {
  const char* text;
  const char* expected;
};

TEST(TopologyFile, SaysWhereWhatAndHow) {
  for (const BadFile& bad : {
           BadFile{"topology:\n  generator: fat-tree\n  hots: 16\n",
                   "net.yaml:3: topology: unknown key 'hots'; did you mean 'hosts'?"},
           {"topology:\n  generator: fat-tree\n  hosts: 16\n  hosts: 128\n",
            "net.yaml:4: topology: 'hosts' is here a second time"},
           {"topology:\n  nodes:\n    a: {kind: host}\n    a: {kind: switch}\n",
            "net.yaml:4: topology.nodes: 'a' is here a second time"},
           {"topology:\n  generator: fat-tree\n  hosts: -1\n",
            "net.yaml:3: topology.hosts: expected a whole number from 1"},
           {"topology:\n  generator: fat-tree\n  rate: -5G\n",
            "net.yaml:3: topology.rate: expected a positive rate"},
           {"topology:\n  generator: fat-tree\n  delay: 5\n",
            "net.yaml:3: topology.delay: expected a time with its unit"},
           {"topology:\n  generator: star\n",
            "net.yaml:2: topology.generator: expected one of fat-tree, leaf-spine"},
           {"topology:\n  generator: leaf-spine\n  hosts: 30\n  hosts_per_leaf: 16\n",
            "30 hosts do not fill leaves of 16; the nearest sizes are 16 and 32"},
           {"topology:\n  generator: fat-tree\n  hosts: 100\n",
            "there is none of 100 hosts: with switches of K ports it has K^3/4. The nearest sizes "
            "are "
            "54 and 128"},
           {"topology:\n  generator: fat-tree\n  hosts: 2048\n", "2000 and 2662"},
           {"topology:\n  generator: fat-tree\n  hosts: 1\n", "The nearest sizes are 2;"},
           {"topology:\n  generator: leaf-spine\n  hosts: 16\n  hosts_per_leaf: 8\n  "
            "oversubscription: 3\n",
            "asks for 2.66667 uplinks of each leaf of 8 hosts; the nearest ratios are 2.66667 and "
            "4"},
           {"topology:\n  generator: leaf-spine\n  hosts: 16\n  hosts_per_leaf: 8\n  "
            "oversubscription: 16\n",
            "the nearest ratios are 4 and 8"},
           {"topology:\n  generator: multi-plane\n  hosts: 10\n  hosts_per_leaf: 4\n",
            "10 hosts do not fill leaves of 4; the nearest sizes are 8 and 12"},
           {"topology:\n  generator: random-graph\n  hosts: 30\n  hosts_per_switch: 4\n  degree: "
            "3\n",
            "30 hosts do not divide among 4 hosts of each switch; the nearest sizes are 28 and 32"},
           {"topology:\n  generator: random-graph\n  hosts: 30\n  switches: 8\n",
            "the nearest sizes are 24 and 32"},
           {"topology:\n  generator: ring\n  hosts: 30\n  switches: 8\n  hosts_per_switch: 4\n",
            "8 switches with 4 hosts each are not 30 hosts"},
           {"topology:\n  generator: fat-tree\n  rate: 100\n",
            "a number without a unit is bits per second"},
           {"topology:\n  nodes: {a: {kind: host}, b: {kind: host}}\n  links:\n    - {endpoints: "
            "[a, c]}\n",
            "net.yaml:4: topology.links[0].endpoints[1]: there is no node called 'c'"},
           {"topology:\n  nodes: {a: {kind: host}, b: {kind: host}}\n  links:\n    - {endpoints: "
            "[a]}\n",
            "net.yaml:4: topology.links[0]: expected endpoints: [one, other]"},
           {"topology:\n  nodes: {a: {kind: host}, b: {kind: host}}\n", "'a' has no link"},
           {"topology:\n  nodes: {a: {kind: router}}\n",
            "expected host, switch, or a name under 'kinds'; found 'router'"},
           {"topology: [1, 2]\n", "net.yaml:1: topology: expected keys and values"},
           {"topology: {}\n", "expected 'generator: NAME' or 'nodes:'"},
           {"topology:\n  - }{\n", "net.yaml:2: not valid YAML"},
           {"", "expected 'generator: NAME'"},
       }) {
    const auto net = yaml(bad.text);
    ASSERT_FALSE(net) << bad.text;
    EXPECT_NE(net.error().message.find(bad.expected), std::string::npos)
        << net.error().message << "\nfor\n"
        << bad.text;
  }
}

// Keys in different cases mean the same.
const char* const kLeafSpine = R"(# 8 hosts, 2 ToRs
Nodes 8
Tiers 2
Podsize 8

Tier 0
Downlink_speed_Gbps 100
Radix_Down 4
Radix_Up 2
Downlink_Latency_ns 1000
Switch_Latency_ns 300
Queue_Up 50000

Tier 1
DOWNLINK_SPEED_GBPS 40
Radix_Down 2
Downlink_Latency_ns 2000
)";

// Speed and delay of tier 1 are those of the links between ToRs and spines; a queue without a value
// takes the default.
TEST(HtsimTopology, ReadsTiers) {
  const auto net = read_htsim_topology("x.topo", kLeafSpine, {});
  ASSERT_TRUE(net) << net.error().message;
  EXPECT_EQ(net->ports().size(), 8U);
  const LinkProperties& up = net->links()[net->find_links("tor0->spine1")[0]].properties;
  EXPECT_EQ(up.rate, Rate::gbps(40));
  EXPECT_EQ(up.delay, Duration{2000});
  EXPECT_EQ(up.buffer, 50'000U);
  EXPECT_EQ(net->nodes()[net->find("tor0")].latency, Duration{300});
}

TEST(HtsimTopology, SaysWhereWhatAndHow) {
  const auto error = [](const std::string& text) {
    const auto net = read_htsim_topology("x.topo", text, {});
    return net ? std::string("accepted") : net.error().message;
  };
  EXPECT_EQ(error("Nodes x\n"),
            "x.topo:1: 'nodes' must be a number that is not negative, found 'x'");
  EXPECT_NE(error("Nodes 8\nTiers 2\n").find("needs 'podsize'"), std::string::npos);
  EXPECT_NE(error("Nodes 8\nTiers 2\nPodsize 8\nTier 0\nRadix_Down 4\nRadix_Down 4\n")
                .find("x.topo:6: 'radix_down' is given twice"),
            std::string::npos);
  EXPECT_NE(
      error("Nodes 8\nTiers 2\nPodsize 8\nTier 0\nRadix 4\n").find("x.topo:5: unknown key 'radix'"),
      std::string::npos);
  EXPECT_NE(error("Nodes 8\nTiers 2\nPodsize 8\nTier 0\nRadix_Down 4\nRadix_Up 2\n")
                .find("tier 1 is not described"),
            std::string::npos);
  EXPECT_NE(error("Nodes 8\nTiers 9\nPodsize 8\n").find("Tiers must be 2 or 3"), std::string::npos);
  EXPECT_NE(error("Nodes 1e300\nTiers 2\nPodsize 8\n").find("whole number"), std::string::npos);
}

// Flow 1 fires trigger 7 when it has been sent, which is a barrier of two: flow 2 waits for it.
TEST(HtsimMatrix, ReadsFlowsAndTriggers) {
  const auto matrix = read_htsim_matrix("x.cm",
                                        "Nodes 4\nConnections 3\nTriggers 1\n"
                                        "0->1 id 1 start 500 size 2000000 send_done_trigger 7\n"
                                        "1->2 id 2 trigger 7 size 100\n"
                                        "2->3 start 0 size 1 prio 3\n"
                                        "trigger id 7 barrier count 2\n");
  ASSERT_TRUE(matrix) << matrix.error().message;
  EXPECT_EQ(matrix->nodes, 4U);
  ASSERT_EQ(matrix->flows.size(), 3U);
  EXPECT_EQ(matrix->flows[0].start, 500);
  EXPECT_EQ(matrix->flows[0].bytes, 2'000'000U);
  EXPECT_EQ(matrix->flows[0].on_sent, matrix->flows[1].trigger);
  ASSERT_EQ(matrix->triggers.size(), 1U);
  EXPECT_EQ(matrix->triggers[0].kind, TriggerSpec::Kind::barrier);
  EXPECT_EQ(matrix->triggers[0].count, 2U);
  EXPECT_TRUE(validate(*matrix, 4));
  EXPECT_NE(validate(*matrix, 3).error().message.find("needs 4 NICs"), std::string::npos);
}

TEST(HtsimMatrix, SaysWhereWhatAndHow) {
  const auto error = [](const std::string& text) {
    const auto matrix = read_htsim_matrix("x.cm", text);
    return matrix ? std::string("accepted") : matrix.error().message;
  };
  EXPECT_NE(error("Nodes 4\nConnections 2\n0->1 start 0 size 1\n")
                .find("the header says 2 connections, the file has 1"),
            std::string::npos);
  EXPECT_NE(error("Nodes 4\nConnections 1\n0->4 start 0 size 1\n")
                .find("x.cm:3: '0->4' must name two nodes from 0 to 3"),
            std::string::npos);
  EXPECT_NE(error("Nodes 4\nConnections 1\n0->0 start 0 size 1\n").find("with itself"),
            std::string::npos);
  EXPECT_NE(error("Nodes 4\nConnections 1\n0->1 size 1\n").find("either 'start' or 'trigger'"),
            std::string::npos);
  EXPECT_NE(error("Nodes 4\nConnections 1\n0->1 start 0 trigger 1 size 1\n")
                .find("either 'start' or 'trigger'"),
            std::string::npos);
  EXPECT_NE(error("Nodes 4\nConnections 1\n0->1 id 0 start 0 size 1\n").find("counts from 1"),
            std::string::npos);
  EXPECT_NE(error("Nodes 4\nConnections 1\n0->1 trigger 3 size 1\n").find("needs an 'id'"),
            std::string::npos);
  EXPECT_NE(error("Nodes 4\nConnections 1\n0->1 id 1 trigger 3 size 1\n")
                .find("trigger 3 is used but not declared"),
            std::string::npos);
  EXPECT_NE(
      error("Nodes 4\nConnections 1\n0->1 start -1 size 1\n").find("whole number, found '-1'"),
      std::string::npos);
  EXPECT_NE(error("0->1 start 0 size 1\n").find("before the line 'Nodes N'"), std::string::npos);
  EXPECT_NE(error("Nodes 0\n0->1 start 0 size 1\n").find("two nodes"), std::string::npos);
  EXPECT_NE(error("Nods 4\n").find("x.cm:1: unknown word 'Nods'"), std::string::npos);
  EXPECT_NE(error("").find("'Nodes N' is missing"), std::string::npos);
  EXPECT_NE(error("Nodes 4\nConnections 0\nFailures 1\n").find("faults"), std::string::npos);
}

// Readers walk through what they read, and some write it out again.
TEST(YamlFiles, ValuesWithoutEndAreRefused) {
  for (const char* const text : {"a: &x [1, *x]\n", "a: 1\nb: &x {c: {*x : 1}}\n"}) {
    YamlFile file("endless.yaml");
    (void)file.load(text);
    ASSERT_TRUE(file.failed()) << text;
    EXPECT_NE(file.error().message.find(": has no end"), std::string::npos) << file.error().message;
  }
  std::string bomb = "x0: &x0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n";
  for (int i = 1; i < 12; ++i) {
    const std::string before = ", *x" + std::to_string(i - 1);
    bomb += "x" + std::to_string(i) + ": &x" + std::to_string(i) + " [1";
    for (int copy = 0; copy < 10; ++copy) {
      bomb += before;
    }
    bomb += "]\n";
  }
  YamlFile file("bomb.yaml");
  (void)file.load(bomb);
  EXPECT_TRUE(file.failed());
  YamlFile good("good.yaml");
  (void)good.load("a: &x {b: 1}\nc: [*x, *x]\n");
  EXPECT_FALSE(good.failed()) << good.error().message;
}

TEST(FaultFile, ReadsAndRefuses) {
  YamlFile file("s.yaml");
  const Fault fault = read_fault(
      file,
      file.load("{link: tor0->agg0, at: 100us, lasts: 50us, loss: 0.5, burst_loss: {enter: 0.1}}"),
      "faults[0]");
  EXPECT_FALSE(file.failed()) << file.error().message;
  EXPECT_EQ(fault.at, Duration{100'000});
  EXPECT_DOUBLE_EQ(fault.impairment.loss, 0.5);
  EXPECT_DOUBLE_EQ(fault.impairment.burst.enter, 0.1);
  YamlFile both("s.yaml");
  [[maybe_unused]] const Fault bad =
      read_fault(both, both.load("{link: a->b, host: c}"), "faults[0]");
  EXPECT_NE(both.error().message.find("exactly one of link, switch"), std::string::npos);
  // A misspelt field is named as such, and does not count as missing.
  for (const auto& [text, why] :
       {std::pair{"{link: a->b}", "nothing happens to the link: say one of down, loss,"},
        std::pair{"{link: a->b, at: 1us, min_bytes: 100}", "nothing happens to the link"},
        std::pair{"{link: a->b, los: 0.1}", "unknown key 'los'; did you mean 'loss'?"}}) {
    YamlFile without("s.yaml");
    [[maybe_unused]] const Fault nothing = read_fault(without, without.load(text), "faults[0]");
    EXPECT_NE(without.error().message.find(why), std::string::npos) << without.error().message;
  }
  for (const char* text : {"{link: a->b, loss: 0}", "{switch: a}", "{host: a, lasts: 1us}"}) {
    YamlFile enough("s.yaml");
    [[maybe_unused]] const Fault fault_of_one = read_fault(enough, enough.load(text), "faults[0]");
    EXPECT_FALSE(enough.failed()) << enough.error().message;
  }
  YamlFile twice("s.yaml");
  [[maybe_unused]] const Fault burst = read_fault(
      twice, twice.load("{link: a->b, burst_loss: {enter: 0.1, enter: 0.2}}"), "faults[0]");
  EXPECT_EQ(twice.error().message, "s.yaml:1: faults[0].burst_loss: 'enter' is here a second time");
}

}  // namespace
}  // namespace weft::fabric
