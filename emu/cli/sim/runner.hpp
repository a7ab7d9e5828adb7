// Owns running simulations: one in this process, or many, each in a process of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "emu/sim/result.hpp"
#include "emu/sim/scenario.hpp"

namespace weft::cli {

// One run of those that were asked for.
struct SimJob {
  std::string file_name;  // for messages
  std::string text;       // of the scenario
  std::string directory;  // where its relative file names start
  std::string variant;
  sim::Settings settings;
  sim::Bounds bounds;  // of the variant
  bool use_variant_bounds = false;
  std::string report;  // directory for report.html, or empty
  std::string trace;   // file for the Perfetto trace, or empty
  std::string flows;   // file for the table of flows, or empty
};

// The result as one JSON object (docs/json.md); "error" instead where the job cannot be run, and
// "usage" beside it where the scenario is at fault. Throws std::runtime_error if a report or trace
// cannot be written.
[[nodiscard]] nlohmann::ordered_json run_job(const SimJob& job, bool show_progress);

// The line of JSON for it. Names in files may be any bytes, JSON is UTF-8: what is not is replaced.
[[nodiscard]] std::string text_of(const nlohmann::ordered_json& json);

// Runs all, at most `processes` at a time; calls `done` on this thread, in the order of the jobs,
// as soon as a job and all before it have ended. A process that dies gives an object with "error".
// Results do not depend on `processes`.
void run_jobs(const std::vector<SimJob>& jobs, unsigned processes,
              const std::function<void(std::size_t, const nlohmann::ordered_json&)>& done);

}  // namespace weft::cli
