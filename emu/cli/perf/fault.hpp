// Owns the meaning of `weft perf --fault` where there are no links, but only packets of two sides.
#pragma once

#include <string>

#include "srd/base/result.hpp"
#include "srd/io/fault_io.hpp"

namespace weft::cli {

// "loss: 0.01, extra_delay: 50us": the keys of a link's fault that a single packet can suffer.
[[nodiscard]] Result<srd::FaultIo::Config> parse_packet_fault(const std::string& text);

}  // namespace weft::cli
