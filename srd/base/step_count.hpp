// Owns the count of steps by which tests judge complexity without a clock.
#pragma once

#include <cstdint>

namespace weft {

// One for each object of a slab and each slot of a window that is looked at. Counted only in the
// library that such a test builds for itself.
#ifdef WEFT_COUNT_STEPS
inline std::uint64_t steps_counted = 0;
inline void count_step() { ++steps_counted; }
#else
inline void count_step() {}
#endif

}  // namespace weft
