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
//   awake     nobody sleeps.
//   watched   threads sleep and the carrier does not wake them: another thread polls. The first of
//             them gets up within kLookUp of a poll, to see whether polls go on.
//   armed     threads sleep, the carrier wakes them, and the first gets up at the latest kLookUp
//             after the next deadline of the machine.
//   roused    the bell rings until every sleeper has got up, so that none can take another one's
//             call away. Until then nobody goes to sleep.
class SleepState {
 public:
  enum class Phase : std::uint8_t { awake, watched, armed, roused };
  // How long packets and deadlines may wait when a thread that polled stops doing so.
  static constexpr Duration kLookUp = std::chrono::milliseconds{1};
  // Rounds that a holder makes for others in a row.
  static constexpr int kMostRounds = 8;

  // A thread that sleeps; it lies on that thread's stack.
  struct Sleeper {
    TimePoint wakes = kNever;  // by itself, the latest
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

  // The thread goes to sleep; not while roused. `armed`: the carrier was found quiet and will call.
  void lie_down(Sleeper& self, bool armed) {
    self.next = first_;
    first_ = &self;
    phase_ = armed || phase_ == Phase::armed ? Phase::armed : Phase::watched;
  }

  enum class Remaining : std::uint8_t { nothing, disarm, arm_again };
  // The thread got up, whatever the reason. What it heard from the carrier the others may not hear
  // any more, and if it watched over a poller nobody does so now: while there are others the
  // carrier has to be armed for them.
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

  // A thread polls at `now`, and the carrier, if it was armed, is not any more. False: sleepers
  // have to be roused, as none of them will look up soon.
  [[nodiscard]] bool watch_over(TimePoint now) {
    if (phase_ == Phase::armed) {
      phase_ = Phase::watched;
    }
    return phase_ != Phase::watched || first_wakes() <= now + kLookUp;
  }
  // The thread that polled will not do so any more; the carrier has been armed for the sleepers.
  void rely_on_carrier() { phase_ = Phase::armed; }

  // Nobody would look at the machine soon after its next deadline.
  [[nodiscard]] bool misses(TimePoint deadline) const {
    return phase_ == Phase::armed && deadline < first_wakes() - kLookUp;
  }
  // False: there is no sleeper, or all are on their way already.
  [[nodiscard]] bool rouse() {
    if (phase_ != Phase::armed && phase_ != Phase::watched) {
      return false;
    }
    phase_ = Phase::roused;
    return true;
  }

  // The holder of the lock has made so many rounds for others and finds one more mark: may it leave
  // the lock to them? It stays responsible for that mark until another thread has the lock.
  [[nodiscard]] static bool makes_way(int rounds) { return rounds >= kMostRounds; }

 private:
  Phase phase_ = Phase::awake;
  Sleeper* first_ = nullptr;
};

}  // namespace weft::srd
