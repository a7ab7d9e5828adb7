// Owns what lab files mean, and what is said about wrong ones.
//
// A lab file is a topology whose hosts are containers, in the words of containerlab where that has
// them. Texts are read without a disk, as if they stood in /labs/pair.lab.yaml.
#include "emu/labs/lab_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace weft::labs {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

// A lab that must be good.
LabFile read(const std::string& text) {
  auto lab = read_lab("pair.lab.yaml", text, "/labs");
  EXPECT_TRUE(lab) << lab.error().message;
  return lab ? *lab : LabFile{};
}

// What is said about one that must not be.
std::string error_of(const std::string& text) {
  const auto lab = read_lab("pair.lab.yaml", text, "/labs");
  return lab ? "no error" : lab.error().message;
}

TEST(LabFile, OfTwoNodesWithoutLinksIsAnIdealNetwork) {
  const LabFile lab = read(R"(topology:
  nics: 2
  defaults: {image: debian}
  nodes:
    n1: {}
    n2: {image: fedora}
)");
  EXPECT_EQ(lab.name, "pair");  // the file's
  EXPECT_FALSE(lab.is_modelled());
  EXPECT_EQ(lab.nics, 2U);
  ASSERT_EQ(lab.nodes.size(), 2U);
  EXPECT_EQ(lab.nodes[0].name, "n1");
  EXPECT_EQ(lab.nodes[0].image, "debian");
  EXPECT_EQ(lab.nodes[0].place, "pair.lab.yaml:5");
  EXPECT_EQ(lab.nodes[1].image, "fedora");
}

// Each value comes from one of three places, of which the nearest wins: the node, its kind, the
// defaults. Environments are put together from all three.
TEST(LabFile, SaysAllThatItCanOfANode) {
  const LabFile lab = read(R"(name: all
engine: docker
device: rxe
seed: 7
allow_uids: [100999]
mgmt: {ipv4-subnet: 10.99.0.0/24}
topology:
  defaults:
    image: base
    env: {SIZE: 1, COLOUR: red}
    rate: 200Gbps
  kinds:
    server: {base: host, cmd: ./serve --all, env: {COLOUR: blue}}
    spine: {base: switch, tier: 2, latency: 300ns}
  nodes:
    n1:
      kind: server
      ports: ["8080:80"]
      binds: ["/data:/data:ro"]
      user: 1000:1000
      memory: 256m
      cpu: 0.5
      options: [--read-only, --cap-drop=all]
    n2: {kind: linux, rootfs: roots/trixie, cmd: [sleep, 5], env: {SIZE: 2}}
    s1: {kind: spine}
  links:
    - {endpoints: ["n1:rail0", "s1:1"]}
    - {endpoints: [n1, s1], rate: 100Gbps}
    - {endpoints: [n2, s1]}
)");
  EXPECT_EQ(lab.name, "all");
  EXPECT_EQ(lab.engine, "docker");
  EXPECT_EQ(lab.device, "rxe");
  EXPECT_EQ(lab.seed, 7U);
  EXPECT_THAT(lab.other_users, ElementsAre(100999, 1000));
  EXPECT_EQ(lab.subnet, "10.99.0.0/24");
  EXPECT_TRUE(lab.is_modelled());
  EXPECT_EQ(lab.topology.links().size(), 6U);
  EXPECT_EQ(lab.topology.links()[0].properties.rate, Rate::gbps(200));
  EXPECT_EQ(lab.topology.links()[2].properties.rate, Rate::gbps(100));
  ASSERT_EQ(lab.nodes.size(), 2U);
  const LabNode& server = lab.nodes[0];
  EXPECT_THAT(server.command, ElementsAre("sh", "-c", "./serve --all"));
  EXPECT_THAT(server.environment, ElementsAre(Pair("SIZE", "1"), Pair("COLOUR", "blue")));
  EXPECT_THAT(server.ports, ElementsAre("8080:80"));
  EXPECT_THAT(server.binds, ElementsAre("/data:/data:ro"));
  EXPECT_THAT(server.options, ElementsAre("--read-only", "--cap-drop=all"));
  EXPECT_EQ(server.user, "1000:1000");
  EXPECT_EQ(server.memory, "256m");
  EXPECT_EQ(server.cpu, "0.5");
  const LabNode& other = lab.nodes[1];
  EXPECT_EQ(other.image, "");
  EXPECT_EQ(other.rootfs, "/labs/roots/trixie");
  EXPECT_THAT(other.command, ElementsAre("sleep", "5"));
  EXPECT_THAT(other.environment, ElementsAre(Pair("SIZE", "2"), Pair("COLOUR", "red")));
}

// Then the hosts have the generator's names, and the defaults say what they run.
TEST(LabFile, MayNameAGenerator) {
  const LabFile lab = read(R"(topology:
  generator: leaf-spine
  hosts: 8
  hosts_per_leaf: 4
  defaults: {image: debian}
)");
  ASSERT_EQ(lab.nodes.size(), 8U);
  EXPECT_EQ(lab.nodes[7].image, "debian");
  EXPECT_TRUE(lab.is_modelled());
}

TEST(LabFile, MayDoWithoutAnIpNetwork) {
  const std::string rest = "topology: {nodes: {n1: {image: a}}}\n";
  EXPECT_EQ(read(rest).ip_network, IpNetwork::own);
  EXPECT_EQ(read("mgmt: {network: host}\n" + rest).ip_network, IpNetwork::host);
  EXPECT_EQ(read("mgmt: {network: none}\n" + rest).ip_network, IpNetwork::none);
}

// Each text has one mistake; what stands beside it is a part of what must be said, with the line
// where the text has several.
TEST(LabFile, WrongOnesAreRefusedWithTheirPlace) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"", "pair.lab.yaml: expected 'topology:'"},
      {"topology: [", "not valid YAML"},
      {"name: a/b\ntopology: {nodes: {n1: {image: a}}}", ":1: name: names a network"},
      {"topology:\n  nodes:\n    n1: {}\n", ":3: topology.nodes.n1: has no 'image'"},
      {"topology:\n  nodes:\n    n1: {imagine: a}\n",
       ":3: topology.nodes.n1: unknown key 'imagine'"},
      {"topology:\n  nodes:\n    n1: {image: a, rootfs: b}\n", "not from both"},
      {"topology:\n  nodes:\n    n1: {image: --privileged}\n", "expected the name of an image"},
      {"topology:\n  nodes:\n    n1: {image: a, cmd: [[x]]}\n", "expected a word of the command"},
      {"topology:\n  nodes:\n    n1: {image: a, env: {LD_PRELOAD: x}}\n", "the lab sets this"},
      {"topology:\n  nodes:\n    n1: {image: a, env: {A: [1]}}\n", "expected NAME: value"},
      {"topology:\n  nodes:\n    n1: {image: a, ports: 80}\n", "expected a list"},
      {"topology:\n  nodes:\n    s1: {kind: switch}\n", "has no host"},
      {"topology:\n  nodes:\n    n1: {image: a}\n    s1: {kind: switch}\n",
       "switches and no links"},
      {"topology:\n  nodes:\n    n1: {image: a}\n    s1: {kind: switch, image: a}\n"
       "  links: [{endpoints: [n1, s1]}]\n",
       ":4: topology.nodes.s1: is a switch, and no container"},
      {"topology:\n  nodes:\n    n1: {image: a}\n  links: [{endpoints: [n1, n9]}]\n",
       "there is no node called 'n9'"},
      {"topology:\n  nics: 2\n  nodes:\n    n1: {image: a}\n    n2: {image: a}\n"
       "  links: [{endpoints: [n1, n2]}]\n",
       ":2: topology.nics: a host has a NIC for each of its links"},
      {"topology:\n  nics: 99\n  nodes:\n    n1: {image: a}\n", "from 1 to 16"},
      {"mgmt: {network: host, ipv4-subnet: 10.0.0.0/8}\ntopology: {nodes: {n1: {image: a}}}",
       ":1: mgmt.ipv4-subnet"},
      {"mgmt: {ipv4-subnet: 10.0.0.0/40}\ntopology: {nodes: {n1: {image: a}}}", "has no room"},
      {"mgmt: {ipv4-subnet: 10.0.0.0/31}\ntopology: {nodes: {n1: {image: a}}}", "has no room"},
      {"mgmt: {network: bridge}\ntopology: {nodes: {n1: {image: a}}}", "expected one of own, host"},
      {"allow_uids: [root]\ntopology: {nodes: {n1: {image: a}}}", "expected the number of a user"},
      {"topology:\n  nodes:\n    n1: {image: a}\n    n1: {image: b}\n", "a second time"},
  };
  for (const auto& [text, said] : cases) {
    EXPECT_THAT(error_of(text), HasSubstr(said)) << text;
  }
}

// 254 is how many hosts the addresses of weftd's network have room for.
TEST(LabFile, HasAtMostAsManyNodesAsANetworkHasHosts) {
  std::string text = "topology:\n  defaults: {image: a}\n  nodes:\n";
  for (int i = 1; i <= 254; ++i) {
    text += "    n" + std::to_string(i) + ": {}\n";
  }
  EXPECT_EQ(read(text).nodes.size(), 254U);
  EXPECT_THAT(error_of(text + "    n255: {}\n"), HasSubstr("at most 254"));
}

}  // namespace
}  // namespace weft::labs
