// Owns the tests of scenario files.
#include "emu/sim/scenario.hpp"

#include <gtest/gtest.h>

#include <fstream>

#include "emu/scenarios/scenarios.hpp"
#include "emu/sim/result.hpp"
#include "tests/support/temporary_folder.hpp"

namespace weft::sim {
namespace {

// The message of the refusal, or "accepted".
std::string error(const std::string& text, const Settings& settings = {}) {
  const auto scenario = read_scenario("s.yaml", text, settings, "");
  return scenario ? "accepted" : scenario.error().message;
}

const char* const kGood =
    "topology: {generator: fat-tree, hosts: 16}\ntraffic: {kind: permutation, bytes: 1MB}\n";

TEST(Scenario, EveryBuiltInOneAndEveryVariantCanBeRead) {
  EXPECT_GE(scenarios::built_in_scenarios().size(), 14U);
  for (const auto& [name, text] : scenarios::built_in_scenarios()) {
    const auto scenario = read_scenario(std::string(name), std::string(text), {}, "");
    ASSERT_TRUE(scenario) << scenario.error().message;
    EXPECT_EQ(scenario->name, name);
    EXPECT_FALSE(scenario->reference.empty()) << name;
    for (const Variant& variant : scenario->variants) {
      const auto other = read_scenario(std::string(name), std::string(text), variant.set, "");
      EXPECT_TRUE(other) << variant.name << ": " << other.error().message;
    }
  }
}

// The formulas are written out here with numbers: 489 full packets of 332 ns and a short one, by as
// many flows as share the last link or the uplinks, and the way of the last packet.
TEST(Scenario, IdealTimesAreThoseOfTheFormulas) {
  const auto ideal = [](const std::string& text) {
    const auto scenario = read_scenario("s.yaml", text, {}, "");
    EXPECT_TRUE(scenario) << scenario.error().message;
    return ideal_us(*scenario);
  };
  EXPECT_NEAR(ideal("topology: {generator: fat-tree, hosts: 1024}\ntraffic: {kind: permutation}\n"),
              176.20, 0.01);
  EXPECT_NEAR(ideal("topology: {generator: fat-tree, hosts: 128}\ntraffic: {kind: incast, senders: "
                    "32, receiver: 0}\n"),
              32 * (489 * 0.332 + 0.1608) + 12.83, 0.1);  // each last packet has 2010 bytes
  EXPECT_NEAR(ideal("topology: {generator: leaf-spine, hosts: 1024, hosts_per_leaf: 32, "
                    "oversubscription: 4}\n"
                    "traffic: {kind: tornado}\n"),
              32 * (489 * 0.332 + 0.1608) / 8 + 8.49, 0.1);
}

// Where one queue drops what it cannot hold, a loss without a report may be that one's.
TEST(Scenario, ANetworkTrimsIfEveryQueueDoesThatCanBeFull) {
  const auto trims = [](const std::string& first, const std::string& second) {
    const auto scenario = read_scenario(
        "s.yaml",
        "topology: {nodes: {a: {kind: host}, b: {kind: host}, s: {}}, links: [{endpoints: [a, s], "
        "reverse: {" +
            first + "}}, {endpoints: [b, s], reverse: {" + second +
            "}}]}\ntraffic: {kind: permutation, bytes: 1MB}\n",
        {}, "");
    EXPECT_TRUE(scenario) << scenario.error().message;
    return scenario && scenario->transport.engine.trimming;
  };
  EXPECT_TRUE(trims("trimming: true", "trimming: true"));
  EXPECT_FALSE(trims("trimming: true", "trimming: false"));
  EXPECT_TRUE(trims("trimming: true", "buffer: 0"));
  EXPECT_FALSE(trims("trimming: false", "trimming: false"));
}

TEST(Scenario, SettingsReplaceValuesByTheirPath) {
  const auto scenario = read_scenario(
      "s.yaml", kGood, {{"transport.paths", "32"}, {"seed", "99"}, {"topology.hosts", "128"}}, "");
  ASSERT_TRUE(scenario) << scenario.error().message;
  EXPECT_EQ(scenario->transport.engine.paths, 32);
  EXPECT_EQ(scenario->seed, 99U);
  EXPECT_EQ(scenario->topology.ports().size(), 128U);
}

TEST(Scenario, ASwitchThatDiesMaySaySo) {
  for (const char* const fault : {"{switch: core0}", "{switch: core0, down: true}"}) {
    const auto scenario =
        read_scenario("s.yaml", kGood, {{"faults", "[" + std::string(fault) + "]"}}, "");
    ASSERT_TRUE(scenario) << scenario.error().message;
    EXPECT_EQ(scenario->fault_links[0].size(), 8U);
  }
}

// The reference simulator reads another unit than its generators write.
TEST(Scenario, StartsOfAMatrixHaveAUnitThatCanBeSaid) {
  const testing::TemporaryFolder folder;
  const std::string file = folder.path() + "/m.cm";
  const auto read = [&](const std::string& flow, const std::string& unit) {
    std::ofstream(file) << "Nodes 4\nConnections 1\n" << flow << "\n";
    return read_scenario(
        "s.yaml",
        "topology: {generator: fat-tree, hosts: 16}\ntraffic: {kind: matrix, file: "
        "m.cm" +
            unit + "}\n",
        {}, folder.path());
  };
  const auto start = [&](const std::string& unit) {
    const auto scenario = read("0->1 start 40 size 5", unit);
    EXPECT_TRUE(scenario) << scenario.error().message;
    return scenario ? scenario->traffic.flows[0].start : -1;
  };
  EXPECT_EQ(start(""), 40);
  EXPECT_EQ(start(", start_unit: ps"), 40);
  EXPECT_EQ(start(", start_unit: ns"), 40'000);
  EXPECT_EQ(start(", start_unit: us"), 40'000'000);
  EXPECT_EQ(start(", start_unit: ms"), 40'000'000'000);
  EXPECT_EQ(read("0->1 start 40 size 5", "")->warnings.size(), 1U);
  EXPECT_TRUE(read("0->1 start 0 size 5", "")->warnings.empty());
  EXPECT_TRUE(read("0->1 start 40 size 5", ", start_unit: ps")->warnings.empty());
  const auto late = read("0->1 start 1000000000000 size 5", ", start_unit: us");
  ASSERT_FALSE(late);
  EXPECT_NE(late.error().message.find("1000 s is the latest"), std::string::npos);
  EXPECT_FALSE(read("0->1 start 40 size 5", ", start_unit: s"));
}

// What people read when a scenario is wrong: file, line, key, and what would be right.
TEST(Scenario, SaysWhereWhatAndHow) {
  struct Row {
    std::string text;
    const char* expected;
  };
  const std::string good = kGood;
  for (const Row& row : {
           Row{good + "speed: 3\n", "s.yaml:3: unknown key 'speed'"},
           {good + "transport: {path_selecter: reps}\n", "did you mean 'path_selector'?"},
           {good + "transport: {path_selector: best}\n", "s.yaml:3: transport.path_selector: "},
           {good + "transport: {kind: quic}\n",
            "expected one of srd, rc, rc-dcqcn, tcp-reno, dctcp"},
           {good + "transport: {paths: 0}\n", "expected a whole number from 1 to 256"},
           {good + "faults: [{switch: core0, down: false}]\n",
            "s.yaml:3: faults[0].down: a switch in a fault is one that dies"},
           {good + "faults: [{link: tor0->core9, loss: 1}]\n", "no link is called 'tor0->core9'"},
           {good + "faults: [{link: tor0->agg0, at: 1us}]\n", "nothing happens to the link"},
           {good + "faults: [{link: tor0->agg0, loss: 2}]\n", "expected a number from 0 to 1"},
           {"topology: {generator: fat-tree, hosts: 16}\ntraffic: {kind: incast, receiver: 99}\n",
            "from 0 to 15"},
           {"topology: {generator: fat-tree, hosts: 16}\ntraffic: {kind: matrix, file: "
            "/nonexistent.cm}\n",
            "/nonexistent.cm: cannot be read"},
           {"topology: {generator: fat-tree, hosts: 16}\ntraffic: {kind: permutation, bytes: -1}\n",
            "not negative"},
           {"topology: {generator: fat-tree, hosts: 16}\n",
            "traffic: expected a mapping with 'kind'"},
           {"- 1\n", "expected a scenario"},
           {good + "seed: 1\nseed: 2\n", "s.yaml:4: 'seed' is here a second time"},
           {good + "transport:\n  paths: 4\n  paths: 8\n",
            "s.yaml:5: transport: 'paths' is here a second time"},
           {good + "faults:\n- {link: tor0->agg0, loss: 0.1, loss: 0.2}\n",
            "s.yaml:4: faults[0]: 'loss' is here a second time"},
           {good + "bounds: {reference_us: 0}\n",
            "s.yaml:3: bounds.reference_us: expected a number from 0.001"},
           {good + "variants: [{name: a, bounds: {reference_p99_us: 0}}]\n",
            "bounds.reference_p99_us: expected a number from 0.001"},
           {good + "variants:\n- name: a\n  set: {seed: 1, seed: 2}\n",
            "s.yaml:5: variants[0].set: 'seed' is here a second time"},
       }) {
    EXPECT_NE(error(row.text).find(row.expected), std::string::npos) << error(row.text) << "\nfor\n"
                                                                     << row.text;
  }
  EXPECT_NE(error(good, {{"traffic.kind.x", "1"}}).find("there is no such place"),
            std::string::npos);
}

// A word that a lenient parser would take for a number would change another element than the one
// that was meant.
TEST(Scenario, ElementsOfListsAreNamedByWholeNumbers) {
  const std::string list =
      "topology: {generator: fat-tree, hosts: 16}\n"
      "traffic: [{kind: permutation, bytes: 1MB}, {kind: tornado, bytes: 2MB}]\n";
  for (const char* element : {"abc", "-1", "+0", "0x", "1e0", " 0", "2", "18446744073709551616"}) {
    EXPECT_NE(error(list, {{std::string("traffic.") + element + ".bytes", "1"}})
                  .find(std::string("the list has no element '") + element + "'"),
              std::string::npos)
        << element;
  }
  EXPECT_EQ(error(list, {{"traffic.1.bytes", "1"}}), "accepted");
}

// They number packets with 32 bits: a larger flow would have ended after what is left of its
// number.
TEST(Scenario, FlowsOfMorePacketsThanAOnePathTransportCountsAreRefused) {
  const auto with = [](const std::string& kind, const std::string& bytes) {
    return error(
        "topology: {generator: leaf-spine, hosts: 4, hosts_per_leaf: 2}\n"
        "traffic: {kind: incast, senders: 2, bytes: " +
        bytes + "}\ntransport: {kind: " + kind + "}\n");
  };
  for (const char* kind : {"rc", "rc-dcqcn", "tcp-reno", "dctcp"}) {
    EXPECT_NE(with(kind, "17592186044416").find(std::string("is too large for ") + kind),
              std::string::npos)
        << kind;
    EXPECT_EQ(with(kind, "1TB"), "accepted") << kind;
  }
  EXPECT_EQ(with("srd", "17592186044416"), "accepted");
  EXPECT_EQ(OnePathTransport::packets_of(17592186044416, 4096), std::uint64_t{1} << 32);
  EXPECT_EQ(OnePathTransport::packets_of(1, 4096), 1U);
  EXPECT_EQ(OnePathTransport::packets_of(~Bytes{0}, 1), ~std::uint64_t{0});
}

// A fault that traffic never left has no time, which is no short one.
TEST(Bounds, WhatDidNotHappenMeetsNoBound) {
  Bounds bounds;
  bounds.path_abandoned_us = 100;
  const auto met = [&](std::vector<double> abandoned_us) {
    RunResult result;
    for (const double time : abandoned_us) {
      FaultTimeline fault;
      fault.abandoned_us = time;
      result.faults.push_back(fault);
    }
    check_bounds(bounds, result);
    EXPECT_EQ(result.checks.size(), 1U);
    return result.within_bounds;
  };
  EXPECT_TRUE(met({26.2, 99}));
  // 0: abandoned at the moment of the fault; -1: never, which meets no bound.
  EXPECT_TRUE(met({0}));
  EXPECT_FALSE(met({26.2, 101}));
  EXPECT_FALSE(met({26.2, -1}));
  EXPECT_FALSE(met({-1, 26.2}));
  EXPECT_FALSE(met({}));
}

}  // namespace
}  // namespace weft::sim
