// Owns the decision how long a full ring may hold up its writer, which has others to write to.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "srd/base/time.hpp"

namespace weft::srd {

// A reader may hold its writer up for `patience` in all, and earns that anew with each `ringful`
// that it takes. So one that has stopped is waited for once; one that reads slowly holds others up
// for a part of the time that is its rate over ringful / patience; and one that reads faster than
// that is back-pressure as it should be. Where the time is used up, what goes there is dropped
// until there is room.
class ReaderStall {
 public:
  // The ring is full, and the last position of its reader is that one. True: do not wait for it.
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
  // There is room: nobody is held up.
  void over() {
    since_ = kNever;
    given_up_ = false;
  }

 private:
  TimePoint since_ = kNever;  // when it was asked last, while the ring is full
  Duration held_{};
  std::uint64_t position_ = 0;
  bool given_up_ = false;
};

}  // namespace weft::srd
