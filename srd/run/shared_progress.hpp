// Owns the protocol by which threads share the driving of one machine: the lock, marks for its
// holder, going to sleep, and waking sleepers.
#pragma once

#include <cstddef>
#include <utility>

#include "srd/run/sleep_state.hpp"

namespace weft::srd {

// Every holder of the lock releases it through leave(), which guarantees that
// - a thread that found the lock taken is served by its holder,
// - sleepers wake before the machine's next deadline and when a packet arrives, or are woken now.
//
// `World` is what the protocol acts on; a test brings one in which each call is a step of a model:
//   Lock                    as TryLock
//   now()
//   round()                 one round of progress, for others; returns the work done
//   next_look()             when a thread has to look at the machine, if nothing arrives before
//   arm(), disarm()         the carrier; as PacketIo says. arm() may be called again while armed
//   ring_bell(), clear_bell()
//   wait(until)             returns when the carrier called, the bell rings, or at `until`;
//                           true: it may ring
//   make_way()              lets another thread have the lock
template <class World, class State = SleepState>
class SharedProgress {
 public:
  using Lock = typename World::Lock;
  using Phase = typename State::Phase;
  enum class Depth : std::uint8_t {
    deep,  // the carrier wakes us
    light  // another thread polls; the carrier wakes us if that thread hands over
  };

  explicit SharedProgress(World& world) : world_(world) {}
  SharedProgress(const SharedProgress&) = delete;
  SharedProgress& operator=(const SharedProgress&) = delete;

  // The lock, held by this thread. A destructor releases it, because a thread that is cancelled
  // unwinds without reaching leave(), and no other thread could use the machine after that.
  class Held {
   public:
    explicit Held(SharedProgress& progress) : progress_(progress) {}
    ~Held() {
      if (held_) {
        progress_.unlock();
      }
    }
    Held(const Held&) = delete;
    Held& operator=(const Held&) = delete;

   private:
    friend SharedProgress;
    // False: there was a mark. It is cleared, the lock is still held, and this thread owes a round.
    [[nodiscard]] bool let_go() {
      held_ = !progress_.unlock_unless_marked();
      return !held_;
    }

    SharedProgress& progress_;
    bool held_ = true;
  };

  enum class Caller : std::uint8_t {
    passing,    // makes its round and leaves: sleepers go on relying on the carrier
    polling,    // will poll again soon: the carrier need not wake sleepers
    lingering,  // the same for a moment, after which it hands over
  };
  // Calls round(), and once more whenever another thread asked for one meanwhile. If another thread
  // has the lock, that one is asked to make the round, and 0 is returned.
  template <class Round>
  std::size_t make(Caller caller, Round&& round) {
    if (!lock_.try_lock_or_mark()) {
      return 0;
    }
    Held held(*this);
    if (caller != Caller::passing && state_.phase() == Phase::armed) {
      world_.disarm();
      const bool watched = state_.watch_over(world_.now());
      if (!watched && caller == Caller::polling) {
        rouse();
      }
    }
    const std::size_t work = round();
    return work + leave(held, round);
  }

  // --- With the lock: enter(), something, leave().
  [[nodiscard]] SharedProgress& enter() {
    lock_.lock();
    return *this;
  }
  std::size_t leave(Held& held) {
    return leave(held, [this] { return world_.round(); });
  }
  template <class Round>
  std::size_t leave(Held& held, Round&& round) {
    std::size_t work = 0;
    for (int rounds = 0;; ++rounds) {
      settle();
      if (held.let_go()) {
        return work;
      }
      if (state_.makes_way(rounds)) {
        held.held_ = false;
        unlock();
        world_.make_way();
        if (!lock_.try_lock_or_mark()) {  // the holder finds the mark
          return work;
        }
        held.held_ = true;
        rounds = 0;
      }
      work += round();
    }
  }

  // Sleeps until something may have to be done, at the latest until `until`; not at all if
  // unless(), which is asked with the lock held.
  template <class Unless>
  void sleep(TimePoint until, Depth depth, Unless&& unless) {
    Held held(enter());
    typename State::Sleeper self;
    if (unless() || !lie_down(self, until, depth)) {
      leave(held);
      return;
    }
    if (!held.let_go()) {
      get_up(self, /*heard_bell=*/false);
      (void)world_.round();
      leave(held);
      return;
    }
    {
      GetUp after{*this, held, self};
      after.heard_bell = world_.wait(self.wakes);
    }
    leave(held);
  }

  // The calling thread polled and now waits outside of this class: packets that arrive from now on
  // are left to the sleepers. arm() fails when a packet is there already, so none is missed; then
  // this thread makes the round itself. Does nothing if `unless()`, which is evaluated under the
  // lock.
  template <class Unless>
  void hand_over(Unless&& unless) {
    Held held(enter());
    const bool stays = unless();
    for (int rounds = 0; !stays && state_.phase() == Phase::watched; ++rounds) {
      if (world_.arm()) {
        state_.rely_on_carrier();
      } else if (rounds < State::kMaxRounds) {
        (void)world_.round();
      } else {
        rouse();
      }
    }
    leave(held);
  }

  void rouse_all() {
    Held held(enter());
    rouse();
    leave(held);
  }

  [[nodiscard]] const Lock& lock() const { return lock_; }
  [[nodiscard]] const State& state() const { return state_; }

 private:
  struct GetUp {
    SharedProgress& progress;
    Held& held;
    typename State::Sleeper& self;
    bool heard_bell = true;
    ~GetUp() {
      progress.lock_.lock();
      held.held_ = true;
      progress.get_up(self, heard_bell);
    }
  };

  [[nodiscard]] bool lie_down(typename State::Sleeper& self, TimePoint until, Depth depth) {
    self.wakes = until;
    if (state_.phase() == Phase::roused) {
      return false;
    }
    if (depth == Depth::deep) {
      self.wakes = std::min(until, world_.next_look());
      if (self.wakes <= world_.now()) {
        return false;
      }
      if (!world_.arm()) {
        if (state_.phase() == Phase::armed) {
          rouse();  // arm() has disarmed the carrier; the others sleep on it, and we may not poll
                    // again
        }
        return false;
      }
    }
    state_.lie_down(self, depth == Depth::deep);
    return true;
  }
  // The bell is rung after the lock has been released, so it may ring when all sleepers are up; the
  // next thread that is woken by it clears it.
  void get_up(typename State::Sleeper& self, bool heard_bell) {
    using Remaining = typename State::Remaining;
    const bool roused = state_.phase() == Phase::roused;
    const Remaining remains = state_.get_up(self);
    if ((roused || heard_bell) && state_.phase() != Phase::roused) {
      world_.clear_bell();
    }
    switch (remains) {
      case Remaining::nothing:
        break;
      case Remaining::disarm:
        world_.disarm();
        break;
      case Remaining::arm_again:
        if (world_.arm()) {
          state_.rely_on_carrier();
        } else {
          rouse();
        }
        break;
    }
  }
  void settle() {
    if (state_.phase() == Phase::armed && state_.misses(world_.next_look())) {
      rouse();
    }
  }
  void rouse() {
    const bool armed = state_.phase() == Phase::armed;
    if (state_.rouse()) {
      if (armed) {
        world_.disarm();
      }
      ring_due_ = true;
    }
  }

  // Rings only after the release: a sleeper that is woken on this core preempts this thread, and
  // would find the lock taken.
  [[nodiscard]] bool unlock_unless_marked() {
    const bool ring = ring_due_;
    ring_due_ = false;
    if (!lock_.unlock_unless_marked()) {
      ring_due_ = ring;
      return false;
    }
    if (ring) {
      world_.ring_bell();
    }
    return true;
  }
  void unlock() {
    const bool ring = std::exchange(ring_due_, false);
    lock_.unlock();
    if (ring) {
      world_.ring_bell();
    }
  }

  World& world_;
  Lock lock_;
  State state_;
  bool ring_due_ = false;  // sleepers are roused, and do not know it yet
};

}  // namespace weft::srd
