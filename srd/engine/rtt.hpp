// Owns the estimate of a peer's round-trip time and the times that derive from it.
#pragma once

#include <algorithm>

#include "srd/base/time.hpp"

namespace weft::srd {

// Smoothed mean and deviation with the weights of RFC 6298. Before the first sample it speaks of
// `initial`.
class RttEstimator {
 public:
  explicit RttEstimator(Duration initial) : mean_(initial), deviation_(initial / 2) {}

  void add(TimePoint now, Duration sample) {
    if (!measured()) {
      first_ = now;
      mean_ = sample;
      deviation_ = sample / 2;
      return;
    }
    seasoned_ = seasoned_ || now - sample >= first_;
    // A machine that slept measures its sleep as a round trip, once. A delay that lasts is learnt
    // within a few samples all the same.
    sample = std::min(sample, kMaxGrowth * std::max(timeout(), Duration{1}));
    const Duration error = sample > mean_ ? sample - mean_ : mean_ - sample;
    deviation_ += (error - deviation_) / 4;
    mean_ += (sample - mean_) / 8;
  }

  [[nodiscard]] bool measured() const { return first_ != TimePoint::min(); }
  // A packet was measured that left after the first answer. All before left together, in the first
  // window: the answer to the first of them tells nothing of the queue that this window builds
  // together with those of other senders that begin at the same time.
  [[nodiscard]] bool seasoned() const { return seasoned_; }
  [[nodiscard]] Duration mean() const { return mean_; }

  // After so long without news a packet is lost, whatever happens elsewhere. Where a queue stands
  // the deviation is small, and says nothing of what senders may add to it before any of them
  // hears: acknowledgements can at most double what is in flight, and so the queue, in a round
  // trip.
  [[nodiscard]] Duration timeout() const { return mean_ + reorder_allowance(); }
  // A packet sent so much later has arrived: the earlier one is lost. Paths differ in delay, so
  // this is more than a within-path comparison needs and less than a timeout. A whole round trip:
  // queues build up on some paths faster than the deviation learns of them.
  [[nodiscard]] Duration reorder_allowance() const { return std::max(mean_, 4 * deviation_); }

 private:
  static constexpr int kMaxGrowth = 8;  // of one sample over what was waited for

  Duration mean_;
  Duration deviation_;
  TimePoint first_ = TimePoint::min();  // when the first sample was taken
  bool seasoned_ = false;
};

}  // namespace weft::srd
