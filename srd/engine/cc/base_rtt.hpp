// Owns the estimate of a peer's round-trip time without queues: the smallest of the last two
// periods.
#pragma once

#include <algorithm>
#include <cstdint>

#include "srd/base/time.hpp"

namespace weft::srd {

// Starts at what is known beforehand, follows a smaller measurement at once, and a larger one only
// after a whole period in which nothing smaller and no mark of congestion was seen: a standing
// queue is no distance.
class BaseRtt {
 public:
  explicit BaseRtt(Duration expected) : previous_(clamp(expected)), current_(kLargest) {}

  void add(TimePoint now, Duration rtt, bool congested) {
    if (period_end_ == TimePoint::min()) {
      period_end_ = now + kPeriod;
    }
    current_ = std::min(current_, clamp(rtt));
    congested_ = congested_ || congested;
    if (now >= period_end_) {
      previous_ = congested_ ? get() : current_;
      current_ = kLargest;
      congested_ = false;
      period_end_ = now + kPeriod;
    }
  }
  [[nodiscard]] Duration get() const { return std::min(previous_, current_); }

 private:
  static constexpr Duration kPeriod = std::chrono::milliseconds{100};
  // Round trips beyond this are a scheduler's work, not a network's.
  static constexpr Duration kLargest = std::chrono::milliseconds{10};

  [[nodiscard]] static Duration clamp(Duration d) { return std::clamp(d, Duration{1}, kLargest); }

  Duration previous_;
  Duration current_;
  TimePoint period_end_ = TimePoint::min();
  bool congested_ = false;
};

}  // namespace weft::srd
