// Owns receivers that are not ready on purpose: a NIC that finds posted receives only some time
// after it first looks for them.
#pragma once

#include <cstdint>
#include <deque>

#include "srd/base/time.hpp"

namespace weft::devices {

// How late, as the environment says (WEFT_LATE_RECEIVES, microseconds); zero: not at all.
[[nodiscard]] Duration late_receives_of_environment();

// Of one queue of receives. Costs nothing where ripe() is never called.
class LateReceives {
 public:
  // `waiting` are in the queue. Returns how many of them, the oldest, have been seen in it for so
  // long.
  [[nodiscard]] std::uint32_t ripe(std::uint32_t waiting, TimePoint now, Duration late) {
    const std::uint64_t posted = taken_ + waiting;
    if (posted > (marks_.empty() ? ripe_ : marks_.back().posted)) {
      marks_.push_back({posted, now});
    }
    while (!marks_.empty() && marks_.front().seen + late <= now) {
      ripe_ = marks_.front().posted;
      marks_.pop_front();
    }
    return ripe_ > taken_ ? static_cast<std::uint32_t>(ripe_ - taken_) : 0;
  }
  void take(std::uint32_t count) { taken_ += count; }
  // The queue is empty again, and begins anew.
  void reset() { *this = {}; }

 private:
  struct Mark {
    std::uint64_t posted = 0;  // in all, when seen
    TimePoint seen;
  };
  std::deque<Mark> marks_;
  std::uint64_t ripe_ = 0;   // in all
  std::uint64_t taken_ = 0;  // in all
};

}  // namespace weft::devices
