// Owns real time for Machines: monotonic nanoseconds, the same for all processes of a machine.
#pragma once

#include "srd/io/posix.hpp"

namespace weft::srd {

[[nodiscard]] inline TimePoint monotonic_now() { return clock_now(); }

}  // namespace weft::srd
