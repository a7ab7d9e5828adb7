// Owns the vocabulary of time: protocol code gets time points as arguments and cannot read a clock.
#pragma once

#include <chrono>
#include <cstdint>

namespace weft {

using Duration = std::chrono::nanoseconds;

// A clock type without now(): a Machine's caller decides what time it is.
struct Timeline {
  using rep = Duration::rep;
  using period = Duration::period;
  using duration = Duration;
  using time_point = std::chrono::time_point<Timeline>;
  static constexpr bool is_steady = true;
};

using TimePoint = std::chrono::time_point<Timeline, Duration>;

// "No deadline". Far enough away that adding any Duration of a configuration to a real time stays
// below it.
inline constexpr TimePoint kNever = TimePoint::max();

[[nodiscard]] constexpr std::int64_t nanoseconds(Duration d) { return d.count(); }
[[nodiscard]] constexpr std::int64_t nanoseconds(TimePoint t) {
  return t.time_since_epoch().count();
}

[[nodiscard]] constexpr TimePoint time_at(Duration since_start) { return TimePoint{since_start}; }

}  // namespace weft
