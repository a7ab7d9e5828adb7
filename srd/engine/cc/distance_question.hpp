// Owns the question how far a peer is without queues: when it is asked, and what the answer says.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "srd/base/time.hpp"

namespace weft::srd {

// A near peer that was never measured in an empty network cannot be told from a farther one: its
// round trip and the queue add up to one number. So it is asked with a credit request, which
// travels before waiting data where the network has priorities, and which is answered at once
// [wire 4.8]. Where it has none the answer takes as long as data, and nothing is lost.
//
// Each question has a number, which is its demand: a receiver that does not ration credits repeats
// it in the answer, so that the late answer to an earlier question is never taken for a fast one.
class DistanceQuestion {
 public:
  // Often enough for a route that changes, and seldom enough to cost nothing.
  static constexpr Duration kPeriod = std::chrono::milliseconds{100};

  [[nodiscard]] bool due(TimePoint now) const { return now >= due_; }
  // It leaves now. Returns its number. Without an answer in `patience` it is asked again, each time
  // after twice that.
  [[nodiscard]] std::uint32_t ask(TimePoint now, Duration patience) {
    asked_at_ = now;
    wait_ = std::min(std::max(2 * wait_, patience), std::max(kPeriod, patience));
    due_ = now + wait_;
    return ++number_;
  }
  // The round trip, if this answers the latest question.
  [[nodiscard]] std::optional<Duration> answered(TimePoint arrived, std::uint32_t number) {
    if (wait_ == Duration::zero() || number != number_ || arrived < asked_at_) {
      return std::nullopt;
    }
    wait_ = Duration::zero();
    due_ = asked_at_ + kPeriod;
    return arrived - asked_at_;
  }

 private:
  TimePoint asked_at_{};
  TimePoint due_ = TimePoint::min();
  Duration wait_{};  // for the answer; zero: nothing is asked
  std::uint32_t number_ = 0;
};

}  // namespace weft::srd
