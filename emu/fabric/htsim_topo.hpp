// Owns the reader of htsim's `.topo` files: fat trees of 2 or 3 tiers, described tier by tier.
#pragma once

#include <string>

#include "emu/fabric/generators.hpp"
#include "emu/fabric/topology.hpp"

namespace weft::fabric {

// What the file does not say (ECN, trimming, buffers where absent) comes from `cable`.
[[nodiscard]] Result<Topology> read_htsim_topology(const std::string& file_name,
                                                   const std::string& text, const CableSpec& cable);

}  // namespace weft::fabric
