// Owns the tests of simulated runs.
#include "emu/sim/simulation.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "emu/fabric/generators.hpp"
#include "emu/sim/traffic.hpp"
#include "tests/sim/run_scenario.hpp"

namespace weft::sim {
namespace {

const char* const kLone = R"(
topology: {generator: fat-tree, hosts: 128}
traffic: {kind: flows, flows: [{from: 0, to: 127, bytes: 2000000}]}
)";
const char* const kPermutation = R"(
topology: {generator: fat-tree, hosts: 16}
traffic: {kind: permutation, bytes: 300000}
transport: {paths: 16}
)";

// The formula of a lone flow reproduces the reference simulator's run: 176.2 us.
TEST(Simulation, ALoneFlowOnOnePathTakesTheIdealTime) {
  for (const char* kind : {"srd", "rc"}) {
    const RunResult result = run(kLone, {{"transport.kind", kind},
                                         {"transport.path_selector", "ecmp"},
                                         {"transport.receiver_credits", "false"}});
    EXPECT_NEAR(result.ideal_us, 176.20, 0.01);
    EXPECT_NEAR(result.makespan_us, 176.20, 0.02) << kind;
  }
}

TEST(Simulation, TheDefaultTransportComesCloseToIdealAlone) { EXPECT_LT(run(kLone).ratio, 1.012); }

// The digest is over all that has happened, so equal digests mean equal runs.
TEST(Simulation, TheSameSeedGivesTheSameDigestAndAnotherSeedAnother) {
  const RunResult a = run(kPermutation);
  const RunResult b = run(kPermutation);
  EXPECT_EQ(a.digest, b.digest);
  EXPECT_EQ(a.makespan_us, b.makespan_us);
  EXPECT_NE(run(kPermutation, {{"seed", "14"}}).digest, a.digest);
}

// Neither progress bars, nor samples for reports, nor strict order in time change what happens.
TEST(Simulation, TheDigestDependsNeitherOnInterruptionsNorOnOnlookers) {
  const char* const text = R"(
topology: {generator: fat-tree, hosts: 16}
traffic: {kind: all-to-all, bytes: 60000, window: 4}
transport: {paths: 16}
faults: [{link: "tor*-agg*", loss: 0.005}, {link: "tor0-agg0", at: 7us, lasts: 9us, down: true}]
)";
  const auto digest = [&](fabric::Picos slice, fabric::Picos sample_every) {
    auto scenario = read_scenario("test.yaml", text, {}, "");
    EXPECT_TRUE(scenario);
    Simulation simulation(scenario->topology, scenario->traffic, scenario->options,
                          transport_factory(*scenario));
    SimulationObserver onlooker;
    if (sample_every > 0) {
      simulation.observe(&onlooker, sample_every);
    }
    for (const fabric::Fault& fault : scenario->faults) {
      EXPECT_TRUE(simulation.fabric().apply(0, fault));
    }
    while (!simulation.run_for(slice)) {
    }
    EXPECT_TRUE(simulation.check_conservation());
    EXPECT_EQ(simulation.flows_ended(), simulation.flows().size());
    return simulation.digest();
  };
  const std::uint64_t whole = digest(fabric::kNoTime, 0);
  for (const fabric::Picos slice :
       {fabric::Picos{123'457}, fabric::Picos{1'000'000}, fabric::Picos{7'654'321}}) {
    EXPECT_EQ(digest(slice, 0), whole) << slice;
    EXPECT_EQ(digest(slice, 333'333), whole) << slice;
  }
}

// A trigger that crosses hosts takes effect at once: strict order in time.
TEST(Simulation, TriggersMayCrossHosts) {
  Scenario scenario = *read_scenario("test.yaml", kPermutation, {}, "");
  fabric::TrafficMatrix& traffic = scenario.traffic;
  traffic.triggers = {{.kind = fabric::TriggerSpec::Kind::barrier, .count = 2}};
  traffic.flows = {{.source = 0, .destination = 9, .bytes = 50'000, .on_sent = 0},
                   {.source = 5, .destination = 2, .bytes = 90'000, .on_sent = 0},
                   {.source = 7, .destination = 1, .bytes = 10'000, .trigger = 0},
                   {.source = 12, .destination = 3, .bytes = 10'000, .trigger = 0}};
  Simulation simulation(scenario.topology, traffic, scenario.options, transport_factory(scenario));
  simulation.run();
  const auto& flows = simulation.flows();
  const fabric::Picos last = std::max(flows[0].finished, flows[1].finished);
  EXPECT_EQ(flows[2].started, last);
  EXPECT_EQ(flows[3].started, last);
  EXPECT_EQ(simulation.flows_ended(), 4U);
}

// The others are there for comparison; one that lost a flow would win every comparison of times.
TEST(Simulation, EveryTransportFinishesUnderLoss) {
  for (const char* kind : {"srd", "rc", "rc-dcqcn", "tcp-reno", "dctcp"}) {
    SCOPED_TRACE(kind);
    const RunResult result = run(kPermutation, {{"transport.kind", kind},
                                                {"faults", "[{link: \"tor*-agg*\", loss: 0.01}]"}});
    EXPECT_GT(result.transport.retransmitted, 0U);
  }
}

// run() demands that every flow finishes and that no packet is unaccounted for; there is nothing
// else to ask for here.
TEST(Simulation, EveryTransportFinishesUnderEverythingAtOnce) {
  const char* const faults =
      "[{link: \"tor*-agg*\", share: 0.3, loss: 0.02, jitter: 3us, duplication: 0.02, reordering: "
      "0.05, "
      "reorder_delay: 10us}, {link: \"host*-tor*\", share: 0.2, at: 20us, lasts: 30us, down: "
      "true}, "
      "{switch: core0, at: 30us, lasts: 100us}, {host: host3, at: 10us, lasts: 50us}]";
  for (const char* kind : {"srd", "rc", "dctcp"}) {
    for (const char* seed : {"1", "2", "3", "4", "5"}) {
      SCOPED_TRACE(std::string(kind) + " seed " + seed);
      run(kPermutation, {{"transport.kind", kind}, {"seed", seed}, {"faults", faults}});
    }
  }
}

TEST(Simulation, CorruptedFramesAreCaughtByTheChecksum) {
  const RunResult result = run(
      kPermutation,
      {{"transport.checksum", "true"}, {"faults", "[{link: \"tor*-agg*\", corruption: 0.02}]"}});
  EXPECT_GT(result.fabric.corrupted, 10U);
  EXPECT_GT(result.transport.retransmitted, 0U);
}

// Twelve senders: the last link is the bottleneck, and must neither run dry nor be flooded with
// repetitions.
TEST(Simulation, AnIncastKeepsTheReceiverBusy) {
  const RunResult result = run(R"(
topology: {generator: fat-tree, hosts: 16, ecn_last_hop: false}
traffic: {kind: incast, receiver: 0, senders: 12, bytes: 1000000}
)");
  EXPECT_LT(result.ratio, 1.03);
  EXPECT_GT(result.jain, 0.99);
  EXPECT_LT(static_cast<double>(result.transport.retransmitted),
            0.3 * static_cast<double>(result.transport.new_packets));
}

// The shape of collectives: every step waits for what it passes on.
TEST(Traffic, CollectivesTakeAsLongAsTheirSteps) {
  const auto text = [](const char* kind) {
    return std::string("topology: {generator: fat-tree, hosts: 16}\ntraffic: {kind: ") + kind +
           ", nodes: 16, bytes: 1600000}\n";
  };
  const RunResult ring = run(text("ring-all-reduce"));
  EXPECT_EQ(ring.flows, 16U * 30);
  EXPECT_GT(ring.makespan_us, 30 * 8.0) << "30 steps of 100 KB in a row";
  EXPECT_LT(ring.makespan_us, 30 * 25.0);
  const RunResult gather = run(text("all-gather"));
  EXPECT_NEAR(gather.makespan_us / ring.makespan_us, 0.5, 0.1);
  const RunResult doubling = run(text("recursive-doubling"));
  EXPECT_EQ(doubling.flows, 16U * 4);
  EXPECT_GT(doubling.makespan_us, 4 * 128.0);
  const RunResult tree = run(text("tree-all-reduce"));
  EXPECT_EQ(tree.flows, 30U);
  EXPECT_GT(tree.makespan_us, 6 * 128.0) << "three levels up, three down";
  // A chunk is what a rank sends in a step: the same as 16 times as much for all.
  const RunResult chunks =
      run("topology: {generator: fat-tree, hosts: 16}\ntraffic: {kind: ring-all-reduce, nodes: 16, "
          "chunk: "
          "100000}\n");
  EXPECT_EQ(chunks.digest, ring.digest);
}

// The opposite of an incast: the sender's own link is the bottleneck.
TEST(Traffic, OneSendsToManyAtOnce) {
  const auto text = [](const std::string& keys) {
    return "topology: {generator: fat-tree, hosts: 16}\ntraffic: {kind: fan-out, bytes: 20000, " +
           keys + "}\n";
  };
  const auto scenario = read_scenario("s.yaml", text("sender: 3, receivers: 7"), {}, "");
  ASSERT_TRUE(scenario) << scenario.error().message;
  std::set<fabric::PortId> receivers;
  for (const fabric::FlowSpec& flow : scenario->traffic.flows) {
    EXPECT_EQ(flow.source, 3U);
    receivers.insert(flow.destination);
  }
  EXPECT_EQ(receivers.size(), 7U);
  EXPECT_FALSE(receivers.contains(3));
  const RunResult result = run(text("to: [1, 2, 15]"));
  EXPECT_EQ(result.flows, 3U);
  const auto refused = read_scenario("s.yaml", text("to: [0, 1]"), {}, "");
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("the sender cannot be one of the receivers"),
            std::string::npos);
}

// Everybody sends once and receives once, also where chance would send somebody to itself.
TEST(Traffic, PermutationSendsNobodyToItself) {
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    fabric::TrafficMatrix matrix;
    Rng rng(seed);
    TrafficBuilder(matrix, 0).permutation(2 + seed % 9, 1, rng);
    std::vector<int> received(2 + seed % 9, 0);
    for (const fabric::FlowSpec& flow : matrix.flows) {
      EXPECT_NE(flow.source, flow.destination);
      ++received[flow.destination];
    }
    for (const int count : received) {
      EXPECT_EQ(count, 1);
    }
  }
}

TEST(Traffic, AllToAllKeepsItsWindow) {
  fabric::TrafficMatrix matrix;
  Rng rng(1);
  TrafficBuilder(matrix, 0).all_to_all(10, 1000, 3, rng);
  EXPECT_EQ(matrix.flows.size(), 90U);
  int at_once = 0;
  for (const fabric::FlowSpec& flow : matrix.flows) {
    at_once += flow.trigger == fabric::kNone ? 1 : 0;
  }
  // Three flows of each of the ten nodes start by themselves; the others wait for one to end.
  EXPECT_EQ(at_once, 30);
}

TEST(Traffic, AStaggeredAllToAllIsBalancedInEveryRound) {
  for (const std::uint32_t window : {1U, 3U, 4U, 9U, 50U}) {
    SCOPED_TRACE(window);
    constexpr std::uint32_t kNodes = 10;
    fabric::TrafficMatrix matrix;
    Rng rng(1);
    TrafficBuilder(matrix, 0).staggered_all_to_all(kNodes, 1000, window, rng);
    matrix.nodes = kNodes;
    EXPECT_TRUE(validate(matrix, kNodes));
    std::set<std::pair<fabric::PortId, fabric::PortId>> pairs;
    std::map<fabric::PortId, std::uint32_t> first;
    for (const fabric::FlowSpec& flow : matrix.flows) {
      pairs.emplace(flow.source, flow.destination);
      first[flow.destination] += flow.trigger == fabric::kNone ? 1 : 0;
    }
    EXPECT_EQ(pairs.size(), 90U);
    for (fabric::PortId port = 0; port < kNodes; ++port) {
      EXPECT_EQ(first[port], std::min(window, kNodes - 1)) << port;
    }
  }
  fabric::TrafficMatrix matrix;
  Rng rng(1);
  TrafficBuilder(matrix, 0).staggered_all_to_all(128, 131072, 8, rng);
  EXPECT_EQ(matrix.flows.size(), 16256U);  // the reference's numbers
  EXPECT_EQ(matrix.triggers.size(), 1920U);
}

// The load of a scenario is computed from the mean, so draws that miss it would make another load.
TEST(Traffic, DistributionsHaveTheirMean) {
  for (const char* name : {"web-search", "hadoop", "ai"}) {
    const SizeDistribution sizes = size_distribution(name);
    Rng rng(3);
    double sum = 0;
    for (int i = 0; i < 200'000; ++i) {
      sum += static_cast<double>(sizes.draw(rng));
    }
    EXPECT_NEAR(sum / 200'000 / sizes.mean(), 1, 0.05) << name;
  }
  EXPECT_TRUE(size_distribution("nonsense").points.empty());
}

// Half of the spines are gone for good, in both directions: three of four questions are lost, or
// their answers. In a network that reports what its queues lose a sender tries paths before its
// waits double, so messages of a few packets end within some tens of round trips, also the last
// of 31. (With waits that double at once the median of these runs was 115 of them, 590 with
// credits.)
TEST(Simulation, ShortMessagesGetPastDeadSpinesSoon) {
  const std::string text = R"(
topology: {generator: leaf-spine, hosts: 32, hosts_per_leaf: 8, rate: 800Gbps, delay: 500ns}
traffic: {kind: fan-out, bytes: 32688, receivers: 31}
faults: [{switch: spine0, at: 1us}, {switch: spine1, at: 1us}, {switch: spine2, at: 1us},
         {switch: spine3, at: 1us}]
)";
  constexpr double kRoundTrip = 4.5;
  for (const char* const credits : {"true", "false"}) {
    std::vector<double> last;
    for (int seed = 1; seed <= 15; ++seed) {
      last.push_back(
          run(text, {{"seed", std::to_string(seed)}, {"transport.receiver_credits", credits}})
              .makespan_us);
    }
    std::ranges::sort(last);
    EXPECT_LT(last[last.size() / 2], 100 * kRoundTrip) << "credits " << credits;
  }
}

// A host's link is down for 20 of 100 us, and it sends and receives 8 MB. Ends after at most 1.3
// times what the link's up time allows. (Where only the first silence was forgiven: 2.9 times.)
TEST(Simulation, AFlappingLinkCostsLittleMoreThanItsDownTime) {
  const std::string text = R"(
topology: {generator: leaf-spine, hosts: 32, hosts_per_leaf: 8, rate: 100Gbps, delay: 1us}
traffic: {kind: flows, flows: [{from: 9, to: 0, bytes: 8000000}, {from: 0, to: 17, bytes: 8000000}]}
faults: [{link: host0-tor0, down: true, at: 10us, lasts: 20us, every: 100us, times: 100}]
)";
  for (int seed = 1; seed <= 5; ++seed) {
    const RunResult result = run(text, {{"seed", std::to_string(seed)}});
    EXPECT_LT(result.makespan_us, 1.3 * result.ideal_us) << "seed " << seed;
  }
}

// The uplinks of a leaf are slow, and each of its hosts sends to eight others at a time. (With
// eight packets to each, whatever was lost, headers of trimmed packets filled the slow links: this
// did not end within 200 ms.)
TEST(Simulation, HeadersOfTrimmedPacketsLeaveRoomForDataOnASlowLink) {
  const std::string text = R"(
topology: {generator: leaf-spine, hosts: 32, hosts_per_leaf: 8, oversubscription: 4, rate: 100Gbps,
           delay: 1us, ecn_last_hop: false}
traffic: {kind: all-to-all, bytes: 32768, window: 8}
transport: {paths: 64}
time_limit: 40ms
faults: [{link: "tor0->spine*", rate_factor: 0.1}]
)";
  for (const char* seed : {"102", "207", "208"}) {
    for (const char* ecn : {"true", "false"}) {
      const RunResult result = run(text, {{"seed", seed}, {"topology.ecn", ecn}});
      EXPECT_EQ(result.finished, result.flows) << "seed " << seed << " ecn " << ecn;
      EXPECT_LT(result.makespan_us, 3 * result.ideal_us) << "seed " << seed << " ecn " << ecn;
    }
  }
}

// The receiver's link has come up at a tenth of its rate, and does not mark. (Nothing at all got
// through: headers, and requests for new credits, filled it for ever.)
TEST(Simulation, HeadersOfTrimmedPacketsLeaveRoomForDataOnASlowLastHop) {
  const std::string text = R"(
mtu: 1024
topology: {generator: leaf-spine, hosts: 32, hosts_per_leaf: 8, rate: 100Gbps, delay: 1us,
           ecn_last_hop: false}
traffic: {kind: incast, receiver: 0, senders: 31, bytes: 262144}
transport: {paths: 64}
time_limit: 40ms
faults: [{link: "tor0->host0", rate_factor: 0.1}]
)";
  for (int seed = 1; seed <= 3; ++seed) {
    const RunResult result = run(text, {{"seed", std::to_string(seed)}});
    EXPECT_EQ(result.finished, result.flows) << "seed " << seed;
  }
}

// A fifth of all frames comes 20 us late, four round trips, and is taken for lost. (When that
// passed for congestion, 14 to 19 times the ideal.)
TEST(Simulation, ConstantReorderingIsNotTakenForCongestion) {
  const std::string text = R"(
topology: {generator: leaf-spine, hosts: 32, hosts_per_leaf: 8, rate: 800Gbps, delay: 500ns}
traffic: {kind: permutation, bytes: 4000000}
faults: [{link: 'tor*-spine*', reordering: 0.2, reorder_delay: 20us}]
)";
  for (int seed = 1; seed <= 3; ++seed) {
    const RunResult result = run(text, {{"seed", std::to_string(seed)}});
    EXPECT_LT(result.makespan_us, 10 * result.ideal_us) << "seed " << seed;
  }
}

}  // namespace
}  // namespace weft::sim
