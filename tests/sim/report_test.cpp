// Owns the tests of what a simulation reports.
#include "emu/sim/report.hpp"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace weft::sim {
namespace {

std::string without(std::string text, std::string_view words) {
  for (std::size_t at = text.find(words); at != std::string::npos; at = text.find(words, at)) {
    text.erase(at, words.size());
  }
  return text;
}

std::string report_of(const std::string& text) {
  const auto scenario = read_scenario("s.yaml", text, {}, "");
  EXPECT_TRUE(scenario) << scenario.error().message;
  Simulation simulation(scenario->topology, scenario->traffic, scenario->options,
                        transport_factory(*scenario));
  Recorder recorder(*scenario, simulation, true, true);
  simulation.observe(&recorder, recorder.sample_every());
  for (const fabric::Fault& fault : scenario->faults) {
    EXPECT_TRUE(simulation.fabric().apply(0, fault));
  }
  simulation.run();
  EXPECT_NE(recorder.perfetto().find("\"traceEvents\""), std::string::npos);
  EXPECT_EQ(recorder.timelines().size(), scenario->faults.size());
  const RunResult result = summarise(*scenario, simulation);
  return report_html(*scenario, simulation, recorder, result, "{\"scenario\":\"</script>\"}");
}

// A report must be readable without a network, and opening one must not contact any server.
TEST(Report, AsksNobodyForAnything) {
  const std::string page = report_of(
      "title: \"a <b> & \\\"c\\\"\"\ntopology: {generator: fat-tree, hosts: 16}\n"
      "traffic: {kind: permutation, bytes: 300000}\nfaults: [{link: tor0->agg0, at: 5us, lasts: "
      "10us, down: true}]\n");
  const std::string without_namespace =
      without(without(page, "http://www.w3.org/2000/svg"), "http-equiv");
  EXPECT_EQ(without_namespace.find("http"), std::string::npos);
  EXPECT_EQ(page.find("src="), std::string::npos);
  EXPECT_EQ(page.find("<link"), std::string::npos);
  EXPECT_NE(page.find("default-src 'none'"), std::string::npos);
  // Names and results cannot end the script that holds them.
  EXPECT_EQ(page.find("</script>"), page.rfind("</script>"));
}

TEST(Report, TellsAFaultsStory) {
  const auto scenario = read_scenario(
      "s.yaml",
      "topology: {generator: fat-tree, hosts: 16}\n"
      "traffic: {kind: permutation, bytes: 2000000}\ntransport: {paths: 16}\n"
      "faults: [{name: cut, link: \"tor0->agg0\", at: 40us, lasts: 60us, down: true}]\n",
      {}, "");
  ASSERT_TRUE(scenario);
  Simulation simulation(scenario->topology, scenario->traffic, scenario->options,
                        transport_factory(*scenario));
  Recorder recorder(*scenario, simulation, false, false);
  simulation.observe(&recorder, recorder.sample_every());
  ASSERT_TRUE(simulation.fabric().apply(0, scenario->faults[0]));
  simulation.run();
  const auto lines = recorder.timelines();
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(lines[0].name, "cut");
  EXPECT_GT(lines[0].lost_frames, 0U);
  EXPECT_GT(lines[0].detected_us, 0);
  EXPECT_GE(lines[0].abandoned_us, 0);
  EXPECT_LE(lines[0].abandoned_us, 60);
}

}  // namespace
}  // namespace weft::sim
