// Owns the network's unit of time: 64 B at 400 Gb/s take 1.28 ns, so nanoseconds are too coarse for
// links.
#pragma once

#include <cstdint>

#include "srd/base/time.hpp"

namespace weft::fabric {

// Picoseconds since the start of a run; 64 bits hold 106 days.
using Picos = std::int64_t;

inline constexpr Picos kNoTime = INT64_MAX;

[[nodiscard]] constexpr Picos picos(Duration d) { return d.count() * 1000; }
[[nodiscard]] constexpr Picos picos(TimePoint t) {
  return t == kNever ? kNoTime : t.time_since_epoch().count() * 1000;
}
// The nanosecond that contains `t`, in which Machines count.
[[nodiscard]] constexpr TimePoint time_point(Picos t) {
  return t == kNoTime ? kNever : TimePoint{Duration{t / 1000}};
}
[[nodiscard]] constexpr double microseconds(Picos t) { return static_cast<double>(t) * 1e-6; }

}  // namespace weft::fabric
