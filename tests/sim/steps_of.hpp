// Owns counting what a piece of work looks at, in programs that are built with WEFT_COUNT_STEPS.
#pragma once

#include <cstdint>
#include <functional>

#include "srd/base/step_count.hpp"

namespace weft::testing {

inline std::uint64_t steps_of(const std::function<void()>& what) {
  const std::uint64_t before = steps_counted;
  what();
  return steps_counted - before;
}

}  // namespace weft::testing
