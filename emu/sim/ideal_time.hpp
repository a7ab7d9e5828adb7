// Owns the times that no transport can beat: what the links alone take to carry a scenario's flows.
// Results are given as multiples of them.
#pragma once

#include <vector>

#include "emu/fabric/fault.hpp"
#include "emu/fabric/picos.hpp"
#include "emu/fabric/routes.hpp"
#include "emu/fabric/traffic_matrix.hpp"

namespace weft::sim {

// Lower bounds (docs/experiments.md, "Ideal times").
struct IdealTimes {
  // Of each flow, alone in the network without faults, from its start until its sender knows the
  // end.
  std::vector<fabric::Picos> flows;
  // Until the last flow has ended, under the faults that take links down or change their rates.
  double all_us = 0;
};

// What the bounds depend on. Sizes are bytes. `fault_links`: the links that each fault touches, by
// the index of the fault. Everything referred to must outlive the answer's computation.
struct IdealQuestion {
  const fabric::Topology& topology;
  const fabric::Routes& routes;
  const fabric::TrafficMatrix& traffic;
  const std::vector<fabric::Fault>& faults;
  const std::vector<std::vector<fabric::LinkId>>& fault_links;
  Bytes payload = 0;        // of a full data frame
  Bytes overhead = 0;       // of every data frame, on the wire
  Bytes control = 0;        // an acknowledgement, on the wire
  Bytes largest_write = 0;  // a larger flow is several, each with a short last packet
};

[[nodiscard]] IdealTimes ideal_times(const IdealQuestion& question);

}  // namespace weft::sim
