// Owns the tests that the ideal times are lower bounds, and that they are not far below what is
// possible.
#include "emu/sim/ideal_time.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "emu/sim/result.hpp"
#include "emu/sim/scenario.hpp"
#include "emu/sim/simulation.hpp"

namespace weft::sim {
namespace {

struct Ran {
  Scenario scenario;
  RunResult result;
  std::vector<FlowRecord> flows;
};

Ran run(const std::string& text, const Settings& settings = {}) {
  auto scenario = read_scenario("test.yaml", text, settings, "");
  EXPECT_TRUE(scenario) << (scenario ? "" : scenario.error().message) << "\n" << text;
  if (!scenario) {
    return {};
  }
  Simulation simulation(scenario->topology, scenario->traffic, scenario->options,
                        transport_factory(*scenario));
  for (const fabric::Fault& fault : scenario->faults) {
    EXPECT_TRUE(simulation.fabric().apply(0, fault));
  }
  simulation.run();
  return {*scenario, summarise(*scenario, simulation), simulation.flows()};
}

double ideal(const std::string& text, const Settings& settings = {}) {
  const auto scenario = read_scenario("test.yaml", text, settings, "");
  EXPECT_TRUE(scenario) << (scenario ? "" : scenario.error().message) << "\n" << text;
  return scenario ? ideal_us(*scenario) : 0;
}

// Nobody is faster than the bounds say. The text is what is wrong, or empty.
std::string faster_than_possible(const Ran& ran) {
  double end = 0;
  for (std::size_t i = 0; i < ran.flows.size(); ++i) {
    const FlowRecord& flow = ran.flows[i];
    if (flow.state != FlowRecord::State::done) {
      continue;
    }
    end = std::max(end, fabric::microseconds(flow.finished));
    if (flow.finished - flow.started < ran.scenario.ideal.flows[i]) {
      return "flow " + std::to_string(i) + " took " + std::to_string(flow.finished - flow.started) +
             " ps, at least " + std::to_string(ran.scenario.ideal.flows[i]) +
             " were said to be needed";
    }
  }
  if (ran.result.finished == ran.result.flows && end < ran.scenario.ideal.all_us) {
    return "all took " + std::to_string(end) + " us, at least " +
           std::to_string(ran.scenario.ideal.all_us) + " were said to be needed";
  }
  return {};
}

const char* const kTwoTiers =
    "topology: {generator: leaf-spine, hosts: 16, hosts_per_leaf: 4, ecn_last_hop: false}\n";

// --- Five cases in which the time was not a bound, or not near what is possible.

TEST(IdealTime, AShortPacketCrossesAllLinksAsAShortOne) {
  for (const char* const bytes : {"1", "64", "2000", "4086", "4087", "8172", "8173", "12000"}) {
    const Ran ran = run(std::string(kTwoTiers) +
                        "traffic: {kind: flows, flows: [{from: 0, to: 15, bytes: " + bytes +
                        "}]}\n"
                        "transport: {receiver_credits: false}\n");
    EXPECT_EQ(faster_than_possible(ran), "") << bytes;
    EXPECT_LT(ran.result.ratio, 1.25) << bytes;  // the acknowledgement may wait for more
    EXPECT_GE(ran.result.ratio, 1) << bytes;
  }
}

TEST(IdealTime, AnIncastIsChargedItsShortLastPackets) {
  const Ran ran = run(std::string(kTwoTiers) +
                      "traffic: {kind: incast, senders: 15, bytes: 4200}\n"
                      "transport: {receiver_credits: false}\n");
  // Of the 12 senders elsewhere: 4150 + 178 bytes each, and not 8300.
  EXPECT_NEAR(ran.scenario.ideal.all_us, 12 * 4328 * 8e-5 + 8.06, 0.1);
  EXPECT_EQ(faster_than_possible(ran), "");
}

TEST(IdealTime, OversubscriptionIsSeenInEachTier) {
  // 4 pods of 8 hosts, and half of the capacity between aggregation switches and cores.
  const std::string network =
      "topology: {generator: clos, tiers: 3, hosts: 32, hosts_per_pod: 8, tor_down: 4, tor_up: 4, "
      "agg_down: 2, agg_up: 1, core_down: 4}\n";
  const double time = ideal(network + "traffic: {kind: tornado, bytes: 2000000}\n");
  // 8 flows of 490 packets leave a pod by 4 links: twice the time of one.
  EXPECT_NEAR(time, 2 * 490 * 0.332, 15);
}

TEST(IdealTime, EachPortHasItsOwnRate) {
  // 400G senders, a 100G receiver, and the other way round.
  const std::string network =
      "topology:\n  nodes: {a: {kind: host}, b: {kind: host}, c: {kind: host}, s: {kind: "
      "switch}}\n  links:\n"
      "  - {endpoints: [a, s], rate: 400Gbps}\n  - {endpoints: [b, s], rate: 400Gbps}\n"
      "  - {endpoints: [c, s], rate: 100Gbps}\n";
  std::vector<double> ratios;
  for (int seed = 1; seed <= 21; ++seed) {
    const Ran into = run(network +
                         "traffic: {kind: flows, flows: [{from: 0, to: 2, bytes: 2000000}, {from: "
                         "1, to: 2, bytes: 2000000}]}\nseed: " +
                         std::to_string(seed) + "\n");
    EXPECT_EQ(faster_than_possible(into), "");
    // 2,000,000 bytes in packets of 4086 take 162.6 us at 100G, and the slow port has to carry
    // both.
    EXPECT_NEAR(into.scenario.ideal.all_us, 2 * 162.6 + 4.5, 2);
    ratios.push_back(into.result.ratio);
  }
  // The sixth largest of 21: single seeds lose the tail of a flow.
  std::ranges::sort(ratios);
  EXPECT_LT(ratios[15], 1.1);
  EXPECT_LT(ratios.back(), 1.2);
  EXPECT_NEAR(
      ideal(network +
            "traffic: {kind: flows, flows: [{from: 2, to: 0, bytes: 2000000}, {from: 2, to: "
            "1, bytes: 2000000}]}\n"),
      2 * 162.6 + 4.5, 2);
}

TEST(IdealTime, ARunThatWasCutHasNoRatio) {
  const Ran ran =
      run(std::string(kTwoTiers) +
          "traffic: {kind: flows, flows: [{from: 0, to: 15, bytes: 4000}, {from: 1, to: "
          "14, bytes: 20000000}]}\ntime_limit: 100us\nbounds: {ratio: 2}\n");
  EXPECT_EQ(ran.result.finished, 1U);
  EXPECT_EQ(ran.result.ratio, 0);
  RunResult result = ran.result;
  check_bounds(ran.scenario.bounds, result);
  EXPECT_FALSE(result.within_bounds);
  ASSERT_EQ(result.checks.size(), 1U);
  EXPECT_EQ(result.checks[0].what, "flows finished");
}

// --- What else decides.

TEST(IdealTime, StartsAndTriggersCount) {
  const std::string late = std::string(kTwoTiers) +
                           "traffic: {kind: flows, flows: [{from: 0, to: 15, bytes: 4086, start: "
                           "500us}]}\n";
  EXPECT_NEAR(ideal(late), 500 + 9.35, 0.1);
  // A ring: 30 steps one after the other, each a chunk over two or four links.
  const Ran ring = run(std::string(kTwoTiers) + "traffic: {kind: ring-all-reduce, chunk: 4086}\n");
  EXPECT_EQ(faster_than_possible(ring), "");
  EXPECT_GT(ring.scenario.ideal.all_us, 30 * 2.6);
  EXPECT_LT(ring.result.ratio, 2.5);
}

TEST(IdealTime, WhatIsLeftOfTheNetworkUnderFaultsCounts) {
  const std::string text = std::string(kTwoTiers) + "traffic: {kind: tornado, bytes: 2000000}\n";
  const double whole = ideal(text);
  const double half = ideal(text + "faults: [{switch: spine0}, {switch: spine1}]\n");
  EXPECT_NEAR(half / whole, 2, 0.1);
  // From the middle on: half of the rest takes twice as long.
  EXPECT_NEAR(
      ideal(text + "faults: [{switch: spine0, at: 85us}, {switch: spine1, at: 85us}]\n") / whole,
      1.5, 0.1);
  EXPECT_NEAR(ideal(text + "faults: [{link: host0-tor0, rate_factor: 0.25}]\n") / whole, 4, 0.3);
  const double flapping = ideal(
      text +
      "faults: [{link: host0-tor0, down: true, at: 10us, lasts: 20us, every: 40us, times: 100}]\n");
  // The link is down for half of the time.
  EXPECT_NEAR(flapping / whole, 2, 0.2);
  // What is lost by chance is no lack of capacity: the bound must not rest on luck.
  EXPECT_EQ(ideal(text + "faults: [{link: host0-tor0, loss: 0.1}]\n"), whole);
}

TEST(IdealTime, AFlatNetworkIsLimitedByAllItsCablesTogether) {
  // 8 switches in a circle, everybody sends to the other side: 4 cables each, of 16 directions.
  const double time = ideal(
      "topology: {generator: ring, switches: 8, hosts_per_switch: 4}\n"
      "traffic: {kind: tornado, bytes: 2000000}\n");
  EXPECT_NEAR(time, 32 * 4 * 162.6 / 16, 40);
}

// --- 10,000 random scenarios.

// Draws what a bound may depend on: packet sizes, rates that differ, networks with too little
// capacity at any tier, sizes at the edge of a packet, and faults. `trunk_` is a pattern for the
// links between switches.
class RandomScenario {
 public:
  explicit RandomScenario(std::uint64_t seed) : rng_(mix64(seed)), seed_(seed) {}

  std::string text() {
    std::string network = topology();
    return "seed: " + std::to_string(seed_) +
           "\ntime_limit: 20ms\nmtu: " + pick({"256", "1500", "4150", "4150", "9000"}) +
           "\ndata_overhead: " + pick({"0", "40", "64", "64", "100"}) +
           "\ncontrol_size: " + pick({"1", "64", "64", "200"}) + "\n" + network + traffic() +
           transport() + faults();
  }

 private:
  std::string pick(const std::vector<std::string>& words) {
    return words[rng_.below(static_cast<std::uint32_t>(words.size()))];
  }
  std::string number(std::uint32_t low, std::uint32_t high) {
    return std::to_string(rng_.between(low, high));
  }
  std::string rate() {
    return pick({"10Gbps", "25Gbps", "33.3Gbps", "100Gbps", "100Gbps", "400Gbps", "800Gbps"});
  }
  std::string cable() {
    return ", rate: " + rate() + ", delay: " + number(20, 2000) +
           "ns, switch_latency: " + pick({"0", "0", "300ns"}) +
           ", trimming: " + pick({"true", "true", "false"}) +
           ", ecn: " + pick({"true", "true", "false"}) + pick({"", "", ", buffer: 20000"}) + "}\n";
  }

  std::string topology() {
    const std::string head = "topology: {generator: ";
    switch (rng_.below(8)) {
      case 0:
        ports_ = 16;
        trunk_ = "tor*-agg*";
        return head + "fat-tree, hosts: 16" + cable();
      case 1:
        ports_ = 8;
        trunk_ = "switch*-switch*";
        return head + "random-graph, switches: 8, hosts_per_switch: 1, degree: " + number(2, 5) +
               ", delay_spread: " + number(0, 4000) + "ns, seed: " + number(1, 99) + cable();
      case 2:
        ports_ = 5;
        trunk_ = "switch*-switch*";
        return head + "ring, switches: 5, hosts_per_switch: 1" + cable();
      case 3:
        ports_ = 9;
        trunk_ = "switch*-switch*";
        return head + "torus, sides: [3, 3], hosts_per_switch: 1" + cable();
      case 4:  // two NICs a host
        ports_ = 8;
        trunk_ = "rail*-spine*";
        return head + "rail-optimised, groups: 2, hosts_per_group: 2, rails: 2, spines: 2" +
               cable();
      case 5:
        return by_hand();
      case 6: {  // half of the capacity is missing above the second tier
        ports_ = 16;
        trunk_ = "agg*-core*";
        return head +
               "clos, tiers: 3, hosts: 16, hosts_per_pod: 4, tor_down: 2, tor_up: 2, agg_down: 2, "
               "agg_up: 1, core_down: 4" +
               cable();
      }
      default:
        ports_ = 8;
        trunk_ = "tor*-spine*";
        return head + "leaf-spine, hosts: 8, hosts_per_leaf: " +
               pick({"2, oversubscription: 1", "2, oversubscription: 2", "4, oversubscription: 1",
                     "4, oversubscription: 2", "4, oversubscription: 4"}) +
               cable();
    }
  }

  // Every cable has a rate, a delay and a way back of its own.
  std::string by_hand() {
    ports_ = 6;
    trunk_ = "leaf*-spine*";
    std::string text = "topology:\n  nodes:\n";
    for (int i = 0; i < 6; ++i) {
      text += "    h" + std::to_string(i) + ": {kind: host}\n";
    }
    text += "    leaf0: {kind: switch}\n    leaf1: {kind: switch}\n";
    text += "    spine0: {kind: switch, tier: 2}\n    spine1: {kind: switch, tier: 2}\n  links:\n";
    const auto add = [&](const std::string& a, const std::string& b) {
      text += "  - {endpoints: [" + a + ", " + b + "], rate: " + rate() +
              ", delay: " + number(10, 3000) + "ns, trimming: " + pick({"true", "false"}) +
              ", reverse: {rate: " + rate() + ", delay: " + number(10, 3000) + "ns}}\n";
    };
    for (int i = 0; i < 6; ++i) {
      add("h" + std::to_string(i), "leaf" + std::to_string(i % 2));
    }
    for (const char* const leaf : {"leaf0", "leaf1"}) {
      add(leaf, "spine0");
      add(leaf, "spine1");
    }
    return text;
  }

  std::string bytes() {
    // What packets of the drawn MTUs hold behind 64 bytes of headers.
    const std::uint32_t payloads[] = {192, 1436, 4086, 4086, 8936};
    const std::uint32_t payload = payloads[rng_.below(5)];
    switch (rng_.below(4)) {
      case 0:
        return number(1, 300);
      case 1:  // about a whole number of packets
        return std::to_string(std::max<std::int64_t>(
            1, static_cast<std::int64_t>(payload) * (1 + rng_.below(4)) + rng_.below(5) - 2));
      case 2:
        return number(1, 9000);
      default:
        return number(1, 60'000);
    }
  }

  std::string traffic() {
    const std::string head = "traffic: {kind: ";
    const std::string size = ", bytes: " + bytes();
    switch (rng_.below(9)) {
      case 0:
        return head + "permutation" + size + "}\n";
      case 1:
        return head + "incast, receiver: 0, senders: " + number(1, ports_ - 1) + size + "}\n";
      case 2:
        return head + "fan-out, sender: 1, receivers: " + number(1, ports_ - 1) + size + "}\n";
      case 3:
        return head + "all-to-all, nodes: 4, window: " + number(1, 3) + size +
               ", order: " + pick({"random", "staggered"}) + "}\n";
      case 4:
        return head + "ring-all-reduce, nodes: 4" + size + "}\n";
      case 5:
        return head + "tree-all-reduce, nodes: 5" + size + "}\n";
      case 6:
        return head + "recursive-doubling, nodes: 4" + size + "}\n";
      case 7:
        return head + "random, sizes: " + pick({"fixed", "hadoop"}) +
               ", flows: 12, load: " + pick({"0.1", "0.5", "0.9"}) + size + "}\n";
      default: {
        std::string flows;
        const std::uint32_t count = 1 + rng_.below(6);
        for (std::uint32_t i = 0; i < count; ++i) {
          const std::uint32_t from = rng_.below(ports_);
          const std::uint32_t to = (from + 1 + rng_.below(ports_ - 1)) % ports_;
          flows += (i == 0 ? "" : ", ") + std::string("{from: ") + std::to_string(from) +
                   ", to: " + std::to_string(to) + ", bytes: " + bytes() +
                   ", start: " + number(0, 30'000) + "ns}";
        }
        return head + "flows, flows: [" + flows + "]}\n";
      }
    }
  }

  std::string transport() {
    if (rng_.below(5) == 0) {
      return "transport: {kind: " + pick({"rc", "rc-dcqcn", "tcp-reno", "dctcp"}) + "}\n";
    }
    return "transport: {paths: " + pick({"1", "4", "64"}) + ", path_selector: " +
           pick({"reps", "oblivious", "ecmp", "mixed", "bitmap", "po2", "plb"}) +
           ", congestion_control: " + pick({"srd", "nscc", "swift", "dctcp", "mprdma", "fixed"}) +
           ", receiver_credits: " + pick({"true", "false"}) + ", ack_every: " + pick({"1", "4"}) +
           "}\n";
  }

  std::string fault() {
    const std::string where = pick({trunk_, trunk_, "h*-*"});
    const std::string when = ", at: " + number(0, 20'000) + "ns";
    switch (rng_.below(6)) {
      case 0:
        return "{link: \"" + where + "\", loss: 0.02}";
      case 1:
        return "{link: \"" + where + "\", down: true, share: 0.3" + when + ", lasts: 10us}";
      case 2:
        return "{link: \"" + where +
               "\", share: 0.5, rate_factor: " + pick({"0.1", "0.5", "2", "3"}) + when +
               pick({"", ", lasts: 7us"}) + "}";
      case 3:
        return "{link: \"" + where + "\", share: 0.3, down: true" + when +
               ", lasts: 2us, every: 5us, times: 30}";
      case 4:
        return "{link: \"" + where + "\", duplication: 0.2, reordering: 0.2, reorder_delay: 3us}";
      default:
        return "{link: \"" + where + "\", share: 0.5, rate_factor: 0.3" + when +
               ", lasts: 2us, every: 6us, times: 20}";
    }
  }

  std::string faults() {
    if (rng_.below(3) != 0) {
      return "";
    }
    return "faults: [" + fault() + (rng_.below(2) == 0 ? ", " + fault() : "") + "]\n";
  }

  Rng rng_;
  std::uint64_t seed_;
  std::uint32_t ports_ = 0;
  std::string trunk_;
};

// WEFT_IDEAL_SCENARIOS: how many; WEFT_IDEAL_FIRST: the seed of the first one.
TEST(IdealTime, NoFlowIsFasterInRandomScenarios) {
  const auto variable = [](const char* name, std::uint64_t otherwise) {
    const char* const text = std::getenv(name);
    return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
  };
  const std::uint64_t first = variable("WEFT_IDEAL_FIRST", 1);
  const std::uint64_t count = variable("WEFT_IDEAL_SCENARIOS", 10'000);
  std::uint64_t whole = 0;
  std::uint64_t close = 0;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    const std::string text = RandomScenario(seed).text();
    const Ran ran = run(text);
    ASSERT_EQ(faster_than_possible(ran), "") << "seed " << seed << "\n" << text;
    if (ran.result.finished == ran.result.flows) {
      ++whole;
      close += ran.result.ratio < 1.3 ? 1 : 0;
    }
  }
  // A bound of 0 would be one, too.
  EXPECT_GT(whole * 10, count * 9);
  EXPECT_GT(close * 4, whole);
}

}  // namespace
}  // namespace weft::sim
