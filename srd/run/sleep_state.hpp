// Owns what is known of the threads that sleep on one machine, and when they have to be woken.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "srd/base/time.hpp"

namespace weft::srd {

// One state for all sleepers, changed under the machine's lock only. It decides; SharedProgress
// acts on the carrier and on the sleepers' bell.
//
//   awake     no thread sleeps.
//   watched   threads sleep and the carrier does not wake them: another thread polls. The first of
//             them gets up within kLookUp of a poll, to see whether polls go on.
//   armed     threads sleep, the carrier wakes them, and the first gets up at the latest kLookUp
//             after the next deadline of the machine.
//   roused    the bell rings until every sleeper has got up: no sleeper can consume a wake-up that
//             was meant for another. Until then no thread goes to sleep.
class SleepState {
 public:
  enum class Phase : std::uint8_t { awake, watched, armed, roused };
  // The longest time that packets and deadlines wait when a thread that polled stops polling.
  static constexpr Duration kLookUp = std::chrono::milliseconds{1};
  // Rounds that a holder makes for others in a row.
  static constexpr int kMaxRounds = 8;

  // A thread that sleeps; it lies on that thread's stack.
  struct Sleeper {
    TimePoint wakes = kNever;  // at the latest, without being woken
    Sleeper* next = nullptr;
  };

  [[nodiscard]] Phase phase() const { return phase_; }
  [[nodiscard]] const Sleeper* sleepers() const { return first_; }
  [[nodiscard]] TimePoint first_wakes() const {
    TimePoint first = kNever;
    for (const Sleeper* one = first_; one != nullptr; one = one->next) {
      first = std::min(first, one->wakes);
    }
    return first;
  }

  // The thread goes to sleep; not while roused. `armed`: the carrier was found empty and will wake
  // it.
  void lie_down(Sleeper& self, bool armed) {
    self.next = first_;
    first_ = &self;
    phase_ = armed || phase_ == Phase::armed ? Phase::armed : Phase::watched;
  }

  enum class Remaining : std::uint8_t { nothing, disarm, arm_again };
  // The thread got up, whatever the reason. The carrier's wake-up is consumed by one thread, and a
  // thread that watched over a poller no longer does: so while others sleep, the carrier has to be
  // armed again for them.
  [[nodiscard]] Remaining get_up(Sleeper& self) {
    Sleeper** link = &first_;
    while (*link != &self) {
      link = &(*link)->next;
    }
    *link = self.next;
    if (first_ != nullptr) {
      return phase_ == Phase::roused ? Remaining::nothing : Remaining::arm_again;
    }
    const Phase before = phase_;
    phase_ = Phase::awake;
    return before == Phase::armed ? Remaining::disarm : Remaining::nothing;
  }

  // A thread polls at `now`, and has disarmed the carrier. False: the sleepers have to be roused,
  // because none of them wakes by itself within kLookUp.
  [[nodiscard]] bool watch_over(TimePoint now) {
    if (phase_ == Phase::armed) {
      phase_ = Phase::watched;
    }
    return phase_ != Phase::watched || first_wakes() <= now + kLookUp;
  }
  // The thread that polled has stopped; the carrier has been armed for the sleepers.
  void rely_on_carrier() { phase_ = Phase::armed; }

  // No sleeper would wake by itself within kLookUp of the machine's next deadline.
  [[nodiscard]] bool misses(TimePoint deadline) const {
    return phase_ == Phase::armed && deadline < first_wakes() - kLookUp;
  }
  // False: there is no sleeper, or all have been roused already.
  [[nodiscard]] bool rouse() {
    if (phase_ != Phase::armed && phase_ != Phase::watched) {
      return false;
    }
    phase_ = Phase::roused;
    return true;
  }

  // Whether the holder, which has made this many rounds for others and finds one more mark, may
  // offer the lock to them: otherwise threads that come often could keep it working for ever. It
  // stays responsible for that mark until another thread has the lock.
  [[nodiscard]] static bool makes_way(int rounds) { return rounds >= kMaxRounds; }

 private:
  Phase phase_ = Phase::awake;
  Sleeper* first_ = nullptr;
};

}  // namespace weft::srd
