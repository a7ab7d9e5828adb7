// Owns real time for Machines: monotonic nanoseconds, the same for all processes of a machine.
#pragma once

#include <time.h>

#include "srd/base/time.hpp"

namespace weft::srd {

[[nodiscard]] inline TimePoint monotonic_now() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return time_at(std::chrono::seconds{now.tv_sec} + Duration{now.tv_nsec});
}

}  // namespace weft::srd
