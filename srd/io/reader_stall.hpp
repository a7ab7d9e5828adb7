// Owns the decision how long a full ring may hold up its writer, which has other rings to write to.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "srd/base/time.hpp"

namespace weft::srd {

// Each reader has a budget: it may hold its writer up for `patience` in all, and taking one
// `ringful` of bytes earns that time back. So
// - a reader that has stopped is waited for once, for `patience`;
// - a slow reader holds others up for a fraction of the time, its rate over ringful / patience;
// - a reader faster than ringful / patience never uses its budget up: ordinary back-pressure.
// When the budget is used up, packets for that ring are dropped until it has room.
class ReaderStall {
 public:
  // The ring is full and its reader is at `position`. True: do not wait for it.
  [[nodiscard]] bool given_up(TimePoint now, std::uint64_t position, std::size_t ringful,
                              Duration patience) {
    if (since_ != kNever) {
      held_ = std::min(held_ + (now - since_), patience);
    }
    since_ = now;
    const double share = static_cast<double>(position - position_) / static_cast<double>(ringful);
    position_ = position;
    if (share >= 1) {
      held_ = {};
    } else {
      const double earned = share * static_cast<double>(nanoseconds(patience));
      held_ = std::max(held_ - Duration{static_cast<std::int64_t>(earned)}, Duration{});
    }
    given_up_ = held_ >= patience;
    return given_up_;
  }
  // The same again, as long as the reader has not moved.
  [[nodiscard]] bool still_given_up(std::uint64_t position) const {
    return given_up_ && position == position_;
  }
  // There is room: the time that passes now does not count.
  void over() {
    since_ = kNever;
    given_up_ = false;
  }

 private:
  TimePoint since_ = kNever;  // when it was asked last, while the ring is full
  // How much of the budget is used up.
  Duration held_{};
  std::uint64_t position_ = 0;
  bool given_up_ = false;
};

}  // namespace weft::srd
