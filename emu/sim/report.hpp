// Owns report.html: one file that shows a run, works offline, and loads nothing from elsewhere.
#pragma once

#include <string>

#include "emu/sim/recorder.hpp"
#include "emu/sim/result.hpp"
#include "emu/sim/scenario.hpp"
#include "emu/sim/simulation.hpp"

namespace weft::sim {

// `result_json` is shown as it is, for people who want to copy it.
[[nodiscard]] std::string report_html(const Scenario& scenario, const Simulation& simulation,
                                      const Recorder& recorder, const RunResult& result,
                                      const std::string& result_json);

}  // namespace weft::sim
