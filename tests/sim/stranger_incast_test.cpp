// Owns the proof of what many short messages to one stranger cost: him, their senders, and those
// beside him.
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "emu/sim/result.hpp"
#include "emu/sim/scenario.hpp"
#include "emu/sim/simulation.hpp"
#include "emu/sim/transport.hpp"

namespace weft::sim {
namespace {

RunResult run(const std::string& text, const Settings& settings = {}) {
  auto scenario = read_scenario("test.yaml", text, settings, "");
  EXPECT_TRUE(scenario) << (scenario ? "" : scenario.error().message);
  if (!scenario) {
    return {};
  }
  Simulation simulation(scenario->topology, scenario->traffic, scenario->options,
                        transport_factory(*scenario));
  simulation.run();
  RunResult result = summarise(*scenario, simulation);
  EXPECT_EQ(result.finished, result.flows);
  return result;
}

RunResult incast(const std::string& bytes, const std::string& mtu) {
  return run(R"(
topology: {generator: fat-tree, hosts: 1024, ecn_last_hop: false}
traffic: {kind: incast, receiver: 0, senders: 1023}
)",
             {{"traffic.bytes", bytes}, {"mtu", mtu}});
}

double again(const RunResult& result) {
  return static_cast<double>(result.transport.retransmitted) /
         static_cast<double>(result.transport.new_packets);
}

// E5 allows a tenth, of messages that are longer by a tenth.
TEST(StrangerIncast, WhatFitsIntoHalfOfTheWindowIsSentAgainAsSeldomAsWhatDoesNot) {
  EXPECT_LT(again(incast("100000", "4096")), 0.1);
  EXPECT_LT(again(incast("90000", "4096")), 0.2);
}

// The headers of small packets are a larger part of them, and fill the queue of headers.
TEST(StrangerIncast, CostsHeadersOnlyAlsoWithASmallMtu) {
  for (const char* mtu : {"512", "1024", "4096"}) {
    for (const char* bytes : {"16384", "40000", "80000"}) {
      const RunResult result = incast(bytes, mtu);
      EXPECT_LT(result.ratio, 1.1) << mtu << " " << bytes;
      EXPECT_EQ(result.transport.timeouts, 0U) << mtu << " " << bytes;
    }
  }
}

// The longest that leave at once, from each of a thousand senders: nearly all of them are cut,
// once.
TEST(StrangerIncast, WhatIsCutIsReportedAndLeavesAgainOnce) {
  for (const auto& [mtu, bytes] :
       {std::pair{"512", "3584"}, {"1024", "7680"}, {"4096", "32256"}}) {  // eight packets
    const RunResult result = incast(bytes, mtu);
    EXPECT_LT(result.ratio, 1.25) << mtu;
    EXPECT_LT(again(result), 1.1) << mtu;
    EXPECT_EQ(result.transport.timeouts, 0U) << mtu;
  }
}

// No path is dead here.
TEST(StrangerIncast, AbandonsNoPaths) {
  const RunResult result = incast("80000", "1024");
  EXPECT_LT(result.transport.paths_abandoned, 100U);
}

}  // namespace
}  // namespace weft::sim
