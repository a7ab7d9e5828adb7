// Owns the result of a run: the figures that people compare, and the checks against bounds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "emu/sim/scenario.hpp"

namespace weft::sim {

// Flow completion times of a set of flows.
struct Quantiles {
  std::size_t flows = 0;
  double min_us = 0, p50_us = 0, p90_us = 0, p99_us = 0, p999_us = 0, max_us = 0;
};

// The slowdown of the flows of one size class: their time as a multiple of the ideal time of the
// same flow alone in the network. Quantiles by the nearest rank.
struct Slowdown {
  std::string size;  // packet, small, window, large, huge, or all
  std::size_t flows = 0;
  double p50 = 0, p99 = 0, most = 0;
};

// An expectation and whether it was met.
struct BoundCheck {
  std::string what;
  double value = 0;
  double limit = 0;
  bool met = true;
  bool at_least = false;  // the limit is a lower one
};

// How the network and the transport took one occurrence of a fault. Times are microseconds after it
// began (at_us: since the start of the run); -1: it did not happen, or nothing can be said.
struct FaultTimeline {
  std::string name;
  double at_us = 0;
  // After the fault: the first path given up, or the first packet taken for lost, by a sender that
  // has lost a frame on that path.
  double detected_us = -1;
  double abandoned_us = -1;  // after the fault: traffic has left the broken place
  double last_loss_us = -1;  // after the fault: the last frame lost in this outage
  double recovered_us = -1;  // after the fault: goodput is back to what it was
  std::uint64_t lost_frames = 0;
};

// `summarise()` fills everything but the variant, faults, checks, cpu_seconds and rss_mb.
struct RunResult {
  std::string scenario;
  std::string variant;
  std::uint64_t seed = 0;
  std::uint32_t hosts = 0;
  std::uint32_t flows = 0;
  std::uint32_t finished = 0;
  std::uint32_t failed = 0;
  Quantiles fct;
  std::vector<std::pair<std::string, Quantiles>> groups;  // only if there are several
  double makespan_us = 0;
  double ideal_us = 0;
  double ratio = 0;                // makespan over ideal; 0 if a flow has not finished
  std::vector<Slowdown> slowdown;  // all, and then the classes that have flows
  double goodput_gbps = 0;         // of all payload over the makespan
  double jain = 0;                 // over 1/FCT of flows of one size; over rates otherwise
  TransportCounters transport;
  fabric::FabricTotals fabric;
  std::uint64_t damaged = 0;  // frames that arrived with a wrong bit, and so were lost
  double longest_queue_bytes = 0;
  std::string longest_queue_link;
  std::vector<FaultTimeline> faults;
  std::vector<BoundCheck> checks;
  bool within_bounds = true;
  std::uint64_t digest = 0;
  double simulated_us = 0;
  std::string conservation;  // empty: every frame is accounted for

  // Measured by the caller: this library has no clock.
  double cpu_seconds = 0;
  double rss_mb = 0;
};

// By the nearest rank: each is a value that occurred. All 0 without values.
[[nodiscard]] Quantiles quantiles(std::vector<double> values_us);

// The class of a flow: one packet; up to 8; up to a window, which is what the longest round trip
// holds; up to 16 windows; more.
[[nodiscard]] const char* size_class(Bytes bytes, Bytes payload, Bytes window);

// What the run of `scenario` in `simulation` amounts to; the caller adds faults' timelines before
// check_bounds().
[[nodiscard]] RunResult summarise(const Scenario& scenario, const Simulation& simulation);
// Adds a check for each bound that is set, and one that fails if a flow has not finished.
void check_bounds(const Bounds& bounds, RunResult& result);

}  // namespace weft::sim
