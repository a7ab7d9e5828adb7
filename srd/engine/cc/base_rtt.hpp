// Owns the estimate of a peer's round-trip time without queues: the smallest of the last two
// periods, and never more than what was told.
#pragma once

#include <algorithm>
#include <cstdint>

#include "srd/base/time.hpp"

namespace weft::srd {

// Starts at what is known beforehand, follows a smaller measurement at once, and a larger one, up
// to what is known, only after a whole period in which nothing smaller and no mark of congestion
// was seen. Beyond what is known a delay counts as a queue: where switches do not mark, the
// sender's own queue looks like distance, and a window that grew with it would make it longer.
class BaseRtt {
 public:
  explicit BaseRtt(Duration told) : told_(std::max(told, Duration{1})), previous_(told_) {}

  void add(TimePoint now, Duration rtt, bool congested) {
    if (period_end_ == TimePoint::min()) {
      period_end_ = now + kPeriod;
    }
    const Duration measured = std::max(rtt, Duration{1});
    if (measured < accepted_ - accepted_ / kSame) {
      accepted_ = Duration::zero();
    }
    current_ = std::min(current_, measured);
    congested_ = congested_ || congested;
    if (now >= period_end_) {
      previous_ = congested_ ? get() : current_;
      current_ = told_;
      congested_ = false;
      period_end_ = now + kPeriod;
    }
  }
  // Data take so long, whatever was told or will be answered: until data are faster.
  void accept(Duration distance) { told_ = previous_ = current_ = asked_ = accepted_ = distance; }
  // The peer was asked, and is no farther.
  void limit(Duration distance) { asked_ = std::max({distance, accepted_, Duration{1}}); }
  [[nodiscard]] Duration get() const { return std::min({previous_, current_, asked_}); }

 private:
  static constexpr Duration kPeriod = std::chrono::milliseconds{100};
  static constexpr int kSame = 16;  // a part of the distance that is no difference

  Duration told_;
  Duration previous_;
  Duration current_ = told_;
  Duration asked_ = Duration::max();
  Duration accepted_{};  // zero: nothing that still holds
  TimePoint period_end_ = TimePoint::min();
  bool congested_ = false;
};

}  // namespace weft::srd
