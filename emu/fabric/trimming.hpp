// Owns what a network's hosts may conclude from trimming.
#pragma once

#include <algorithm>

#include "emu/fabric/topology.hpp"

namespace weft::fabric {

// Every full queue cuts what it cannot hold, so what is lost without a report was lost on the way.
// A queue without a limit, such as a NIC's, is never full.
[[nodiscard]] inline bool reports_losses(const Topology& topology) {
  const auto trims = [](const Link& link) { return link.properties.trimming; };
  return std::ranges::any_of(topology.links(), trims) &&
         std::ranges::all_of(topology.links(), [&](const Link& link) {
           return trims(link) || link.properties.buffer == 0;
         });
}

}  // namespace weft::fabric
