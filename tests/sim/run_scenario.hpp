// Owns a simulated run that has to end well, for the tests of what it takes.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "emu/sim/result.hpp"
#include "emu/sim/scenario.hpp"
#include "emu/sim/simulation.hpp"
#include "emu/sim/transport.hpp"

namespace weft::sim {

// Every flow finishes, and no packet is unaccounted for.
inline RunResult run(const std::string& text, const Settings& settings = {}) {
  auto scenario = read_scenario("test.yaml", text, settings, "");
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
  RunResult result = summarise(*scenario, simulation);
  EXPECT_EQ(result.conservation, "");
  EXPECT_EQ(result.finished, result.flows);
  return result;
}

}  // namespace weft::sim
