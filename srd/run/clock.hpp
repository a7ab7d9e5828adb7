// Owns real time for Machines: monotonic nanoseconds, the same for all processes of a machine.
#pragma once

#include "srd/base/time.hpp"

namespace weft::srd {

// CLOCK_MONOTONIC, told by the processor's tick counter where that can be relied on; then threads
// may differ by a microsecond.
[[nodiscard]] TimePoint monotonic_now();

}  // namespace weft::srd
