// Owns what the recorder keeps of runs that are longer than it has room for.
#include "emu/sim/recorder.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <numeric>

namespace weft::sim {
namespace {

struct Recorded {
  explicit Recorded(const std::string& text) {
    auto read = read_scenario("s.yaml", text, {}, "");
    EXPECT_TRUE(read) << (read ? "" : read.error().message);
    scenario = std::move(*read);
    simulation = std::make_unique<Simulation>(scenario.topology, scenario.traffic, scenario.options,
                                              transport_factory(scenario));
    recorder = std::make_unique<Recorder>(scenario, *simulation, true, false);
    simulation->observe(recorder.get(), recorder->sample_every());
    for (const fabric::Fault& fault : scenario.faults) {
      EXPECT_TRUE(simulation->fabric().apply(0, fault));
    }
    simulation->run();
  }
  Scenario scenario;
  std::unique_ptr<Simulation> simulation;
  std::unique_ptr<Recorder> recorder;
};

// 8 ms at 1 us a sample: the resolution halves twice.
TEST(Recorder, ALongRunIsKeptToItsEnd) {
  const Recorded run(
      "topology: {generator: leaf-spine, hosts: 4, hosts_per_leaf: 2}\nideal_us: 200\n"
      "traffic: {kind: flows, flows: [{from: 0, to: 3, bytes: 100000000}]}\n"
      "faults: [{name: late, link: \"*->*\", at: 6ms, lasts: 300us, loss: 0.02}]\n");
  const auto& samples = run.recorder->samples();
  EXPECT_LT(samples.size(), Recorder::kMaxSamples);
  EXPECT_GE(samples.size(), Recorder::kMaxSamples / 2);
  const double end = fabric::microseconds(run.simulation->now());
  EXPECT_GT(end, 8000);
  EXPECT_GT(samples.back().at_us, end - 20);
  const double step = samples[1].at_us - samples[0].at_us;
  double carried = 0;
  std::uint64_t drops = 0;
  std::uint64_t after = 0;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    if (i > 0) {
      EXPECT_NEAR(samples[i].at_us - samples[i - 1].at_us, step, 1e-6);
    }
    carried += samples[i].goodput_gbps * step / 8e3;  // MB
    drops += samples[i].drops;
    after += samples[i].at_us > 5990 ? samples[i].drops : 0;
  }
  EXPECT_NEAR(carried, 100, 2);
  EXPECT_EQ(drops, run.simulation->fabric().totals().dropped_all());
  EXPECT_EQ(drops, after);
  std::uint64_t packets = 0;
  for (const auto& path : run.recorder->path_use()) {
    EXPECT_LE(path.size(), samples.size());
    packets = std::accumulate(path.begin(), path.end(), packets);
  }
  EXPECT_GE(packets, 100'000'000U / 4096);
  const auto lines = run.recorder->timelines();
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_GT(lines[0].detected_us, 0);
  EXPECT_LT(lines[0].detected_us, 100);
  EXPECT_GE(lines[0].recovered_us, 0);
  EXPECT_LT(lines[0].recovered_us, 1000);
}

TEST(Recorder, WhatNeverHappenedHasNoRecovery) {
  const Recorded run(
      "topology: {generator: leaf-spine, hosts: 4, hosts_per_leaf: 2}\n"
      "traffic: {kind: flows, flows: [{from: 0, to: 3, bytes: 1000000}]}\n"
      "faults: [{name: after the end, link: \"*->*\", at: 50ms, loss: 0.02}]\n");
  const auto lines = run.recorder->timelines();
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(lines[0].detected_us, -1);
  EXPECT_EQ(lines[0].recovered_us, -1);
}

// Losses elsewhere, long before, at every moment: they say nothing of this fault.
TEST(Recorder, AFaultIsDetectedByWhoLostSomethingToIt) {
  const Recorded run(
      "topology: {generator: leaf-spine, hosts: 8, hosts_per_leaf: 4}\n"
      "traffic: {kind: flows, flows: [{from: 0, to: 4, bytes: 20000000}, {from: 1, to: 5, bytes: "
      "20000000}]}\n"
      "faults:\n"
      "  - {name: noise, link: \"host0->*\", loss: 0.05}\n"
      "  - {name: cut, link: \"host1->*\", at: 100us, lasts: 50us, down: true}\n");
  const auto lines = run.recorder->timelines();
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_GT(lines[1].lost_frames, 0U);
  EXPECT_GT(lines[1].detected_us, 3) << "a sender cannot know before its answers are missing";
  EXPECT_LT(lines[1].detected_us, 1000);
}

}  // namespace
}  // namespace weft::sim
