// Owns REPS: recycle the paths of acknowledgements, weighed by their delay, and stop exploring
// while something is broken.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "srd/engine/paths/oblivious.hpp"
#include "srd/engine/paths/path_policy.hpp"

namespace weft::srd {

// Each acknowledgement puts its path into a ring of eight; each packet takes the oldest path there
// that was not yet used again, or explores. Beyond the paper, marks alone do not decide: if all
// leave a path at its first mark, its queue is empty a round trip later and another one is full. An
// acknowledgement that was measured is recycled unless its round trip took longer than usual; the
// longer, the less likely, so that about as much leaves a path as is too much. A timeout freezes:
// only paths of the ring are used, in turn, and nothing is added, until the freeze time is over;
// then the ring is forgotten and a number of packets explore at random. A path that fails while it
// lies in the ring is removed from it.
class RepsPolicy {
 public:
  static constexpr std::uint8_t kRing = 8;

  RepsPolicy(std::uint16_t paths, std::uint64_t seed, const PathTuning& tuning);

  [[nodiscard]] PathId pick(TimePoint now) {
    if (frozen() && now > frozen_until_) {
      thaw();
    }
    if (explore_left_ > 0) {
      --explore_left_;
      return PathId{round_.next()};
    }
    const std::uint8_t usable = frozen() ? valid_ : fresh_;
    if (usable == 0) {
      return PathId{round_.next()};
    }
    // The first usable entry at or after head_, which is the oldest.
    const int distance = std::countr_zero(std::rotr(usable, head_));
    const auto slot = static_cast<std::uint8_t>((head_ + distance) % kRing);
    if (frozen()) {
      head_ = static_cast<std::uint8_t>((slot + 1) % kRing);  // in turn
    }
    fresh_ &= static_cast<std::uint8_t>(~(1U << slot));
    return PathId{ring_[slot]};
  }
  void on_feedback(TimePoint now, PathId path, PathEvent event, Duration rtt) {
    if (event != PathEvent::good || rtt != Duration::zero() || frozen()) {
      react(now, path, event, rtt);
      return;
    }
    add(path.value());
  }
  [[nodiscard]] bool frozen() const { return frozen_until_ != TimePoint::min(); }

 private:
  void add(std::uint16_t path) {
    ring_[head_] = path;
    valid_ |= static_cast<std::uint8_t>(1U << head_);
    fresh_ |= static_cast<std::uint8_t>(1U << head_);
    head_ = static_cast<std::uint8_t>((head_ + 1) % kRing);
  }
  void react(TimePoint now, PathId path, PathEvent event, Duration rtt);
  void remove(std::uint16_t path);
  [[nodiscard]] bool too_slow(std::uint32_t rtt);
  void thaw();

  std::array<std::uint16_t, kRing> ring_{};
  TimePoint frozen_until_ = TimePoint::min();
  PathRandom random_;
  PathRound round_;              // explores: every path once a round
  std::uint32_t usual_rtt_ = 0;  // average of late; 0: not measured yet
  std::uint32_t least_rtt_ = 0;  // ever
  std::uint32_t freeze_time_;
  std::uint32_t congestion_rtt_;  // a packet that took so long has met a queue
  std::uint16_t explore_packets_;
  std::uint16_t explore_left_ = 0;
  std::uint8_t valid_ = 0;  // bit i: ring_[i] holds a path
  std::uint8_t fresh_ = 0;  // bit i: ring_[i] was not used again yet
  std::uint8_t head_ = 0;   // where the next path is added: the oldest entry
  bool may_freeze_ = true;  // no packet has met a queue, so that a timeout is no congestion
};
static_assert(sizeof(RepsPolicy) <= 64);

}  // namespace weft::srd
