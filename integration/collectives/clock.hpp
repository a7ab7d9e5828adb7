// Owns the time by which ranks and the process that watches them compare what happened when.
#pragma once

#include <time.h>

#include <chrono>

#include "srd/base/time.hpp"

namespace weft::collectives {

// CLOCK_MONOTONIC, which is the same in all processes of a machine.
[[nodiscard]] inline TimePoint now() {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return time_at(std::chrono::seconds{time.tv_sec} + std::chrono::nanoseconds{time.tv_nsec});
}

}  // namespace weft::collectives
