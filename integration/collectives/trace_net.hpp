// Owns a record of what a plugin was asked and when that ended, as a trace for ui.perfetto.dev.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "integration/collectives/net.hpp"

namespace weft::collectives {

// The file is one for all ranks: begun before they start, and ended when they are through. Throws
// std::runtime_error.
void begin_trace(const std::string& file);
void end_trace(const std::string& file);

// Each request is a bar, from its call until test() has said that it is done: a process for each
// rank, a row for each connection. Written when the net goes; beyond a million requests of a rank
// the first ones are kept.
[[nodiscard]] std::unique_ptr<Net> add_trace(std::unique_ptr<Net> net, const std::string& file,
                                             std::uint32_t rank);

}  // namespace weft::collectives
