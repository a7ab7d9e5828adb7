// Owns the proof that a run is a function of its scenario and seed: digests that every build must
// reproduce.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <string>

#include "emu/sim/result.hpp"
#include "emu/sim/scenario.hpp"

namespace weft::sim {
namespace {

struct Case {
  const char* name;
  const char* text;
};

// Together they touch everything that counts with real numbers: marks, all congestion controls and
// selectors, faults by chance.
constexpr Case kCases[] = {
    {"permutation-srd",
     "topology: {generator: fat-tree, hosts: 16}\n"
     "traffic: {kind: permutation, bytes: 300000}\ntransport: {paths: 32}\n"},
    {"incast-nscc-mixed",
     "topology: {generator: fat-tree, hosts: 16}\n"
     "traffic: {kind: incast, receiver: 3, senders: 9, bytes: 100000}\n"
     "transport: {paths: 16, congestion_control: nscc, path_selector: mixed, "
     "receiver_credits: false}\n"},
    {"incast-swift-po2",
     "topology: {generator: fat-tree, hosts: 16}\n"
     "traffic: {kind: incast, receiver: 3, senders: 9, bytes: 100000}\n"
     "transport: {paths: 16, congestion_control: swift, path_selector: po2, "
     "receiver_credits: false}\n"},
    {"loss-dctcp-bitmap",
     "topology: {generator: leaf-spine, hosts: 16, hosts_per_leaf: 4, oversubscription: 2}\n"
     "traffic: {kind: all-to-all, bytes: 20000, window: 4}\n"
     "transport: {paths: 16, congestion_control: dctcp, path_selector: bitmap}\n"
     "faults: [{name: loss, link: \"tor*-spine*\", loss: 0.01}]\n"},
    {"go-back-n",
     "topology: {generator: fat-tree, hosts: 16}\n"
     "traffic: {kind: permutation, bytes: 300000}\ntransport: {kind: rc-dcqcn}\n"},
    {"tcp-random",
     "topology: {generator: fat-tree, hosts: 16}\n"
     "traffic: {kind: random, sizes: web-search, flows: 60, load: 0.4}\n"
     "transport: {kind: tcp-reno}\n"},
};

// Relative to the root of the repository, where the tests run. A line is a name and a digest.
constexpr const char* kFile = "tests/sim/golden_digests.txt";

std::string digest_of(const Case& it) {
  const auto scenario = read_scenario(it.name, it.text, {}, "");
  EXPECT_TRUE(scenario) << (scenario ? "" : scenario.error().message);
  if (!scenario) {
    return {};
  }
  Simulation simulation(scenario->topology, scenario->traffic, scenario->options,
                        transport_factory(*scenario));
  for (const fabric::Fault& fault : scenario->faults) {
    EXPECT_TRUE(simulation.fabric().apply(0, fault));
  }
  simulation.run();
  EXPECT_TRUE(simulation.check_conservation());
  EXPECT_EQ(simulation.flows_ended(), simulation.flows().size());
  std::string text;
  for (int shift = 60; shift >= 0; shift -= 4) {
    text += "0123456789abcdef"[simulation.digest() >> shift & 15];
  }
  return text;
}

// All cases run before any is judged, so that one failure prints the whole new file.
TEST(Determinism, EveryBuildGivesTheSameDigests) {
  std::map<std::string, std::string> expected;
  std::ifstream file(kFile);
  for (std::string name, digest; file >> name >> digest;) {
    expected[name] = digest;
  }
  std::string found;
  bool same = true;
  for (const Case& it : kCases) {
    const std::string digest = digest_of(it);
    found += std::string(it.name) + " " + digest + "\n";
    same = same && expected[it.name] == digest;
  }
  EXPECT_TRUE(same) << "The runs are no longer those of " << kFile
                    << ". If the network or the transport was meant to behave differently, write "
                       "this into the file; if not, or if another build of the same tree agrees "
                       "with the file, it is a bug:\n"
                    << found;
}

}  // namespace
}  // namespace weft::sim
