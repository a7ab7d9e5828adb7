// Owns SharedProgress in a world where every step is one of a model: a carrier with a bell, posted
// work, one deadline, and threads with short scripts.
#pragma once

#include <array>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "srd/run/shared_progress.hpp"
#include "srd/run/try_lock.hpp"
#include "tests/unit/srd/run/interleavings.hpp"

namespace weft::testing {

using srd::SleepState;

// What a thread does, in order.
enum class Act : std::uint8_t {
  poll,         // once; heartbeat
  push,         // posts work, whose sending makes a deadline
  with,         // the same, waiting for the lock
  look,         // takes the lock, and has nothing to do
  linger,       // a lingering round, then hands over
  watch,        // BackgroundThread until it is stopped
  sleep_on,     // polls and sleeps until something comes, for ever
  sleep_a_bit,  // sleeps with a limit, and does nothing afterwards
  arrive,       // the peer: publishes a packet, rings the bell if asked to
  stop          // ends watch
};
using Script = std::vector<Act>;

enum class Wait : int { step = Interleavings::kStep, lock, sleep, choose };

// Time is what sleepers' limits say: it stands still until one of them passes.
inline constexpr TimePoint kStart = time_at(std::chrono::seconds{1});
inline constexpr TimePoint kDeadline = kStart + std::chrono::milliseconds{5};
inline constexpr TimePoint kLimit = kStart + std::chrono::seconds{1};

// An atomic whose changes are steps. Each is sequentially consistent here: what weaker orders would
// allow is not tried.
template <class T>
class SteppedAtomic {
 public:
  SteppedAtomic(T value) : value_(value) { latest = this; }  // NOLINT: as std::atomic
  // No step: a thread that tries the lock decides by what comes after the look.
  T load(std::memory_order) const {
    Interleavings::saw(static_cast<std::uint64_t>(value_));
    return value_;
  }
  void store(T value, std::memory_order) {
    Interleavings::step("store");
    value_ = value;
  }
  T exchange(T value, std::memory_order) {
    const T before = look("exchange");
    value_ = value;
    return before;
  }
  bool compare_exchange_strong(T& expected, T wanted, std::memory_order, std::memory_order) {
    const T before = look("compare and exchange");
    if (before == expected) {
      value_ = wanted;
      return true;
    }
    expected = before;
    return false;
  }
  bool compare_exchange_weak(T& expected, T wanted, std::memory_order a, std::memory_order b) {
    return compare_exchange_strong(expected, wanted, a, b);
  }
  // Not a step.
  [[nodiscard]] T peek() const { return value_; }
  static inline const SteppedAtomic* latest = nullptr;  // that was made

 private:
  T look(const char* what) const {
    Interleavings::step(what);
    Interleavings::saw(static_cast<std::uint64_t>(value_));
    return value_;
  }
  T value_;
};

// What the lock asks of its threads. A fiber that waits comes back with the history that it had:
// how often it looked and found nothing makes no new state.
struct SteppedThreads {
  template <class T>
  using Atomic = SteppedAtomic<T>;
  static std::uintptr_t here() { return (Interleavings::fiber() + 1) * 2; }
  static void wait_for(const Atomic<std::uintptr_t>&, int tries) {
    std::uint64_t& before = before_lock[Interleavings::fiber()];
    if (tries == 0) {
      before = Interleavings::history();
    }
    (void)Interleavings::stop(static_cast<int>(Wait::lock), "waits for the lock");
    Interleavings::forget_since(before);
  }
  static inline std::array<std::uint64_t, 8> before_lock{};
};
using SteppedLock = srd::BasicTryLock<SteppedThreads>;

// As SleepState, but the second round for others is the last, so that this road is short.
struct BriefState : SleepState {
  static bool makes_way(int rounds) { return rounds >= 1; }
};

// State and lock can be replaced, so that a test can put mistakes into them and see that they are
// found.
template <class State = BriefState, class TheLock = SteppedLock>
class ProgressModel final : public Interleavings::Model {
 public:
  // Mistakes of the carrier, for the same purpose.
  struct Faults {
    bool arms_without_look = false;
  };

  explicit ProgressModel(const std::vector<Script>& scripts, const Faults& faults = {})
      : scripts_(scripts), faults_(faults), wakes_(scripts.size(), kNever), progress_(world_) {
    word_ = SteppedAtomic<std::uintptr_t>::latest;
  }

  [[nodiscard]] std::size_t fibers() const override { return scripts_.size(); }
  void run(std::size_t fiber) override {
    std::uint64_t place = 0;
    for (const Act act : scripts_[fiber]) {
      Interleavings::mark(++place * 100);
      perform(act, place * 100);
    }
  }

  [[nodiscard]] std::uint64_t hash() const override {
    std::uint64_t state = 0;
    const auto add = [&](std::uint64_t value) { state = Interleavings::mix(state, value); };
    add(lock_word());
    add(static_cast<std::uint64_t>(progress_.state().phase()));
    for (const auto* one = progress_.state().sleepers(); one != nullptr; one = one->next) {
      add(static_cast<std::uint64_t>(nanoseconds(one->wakes)));
    }
    for (const TimePoint wakes : wakes_) {
      add(static_cast<std::uint64_t>(nanoseconds(wakes)));
    }
    // armed_ is left out: while the lock is free it is true exactly in the phase `armed`, and what
    // a holder did with it is in that fiber's history.
    add(static_cast<std::uint64_t>(posted_));
    add(static_cast<std::uint64_t>(packets_));
    for (const bool flag :
         {asleep_, carrier_rings_, bell_rings_, deadline_, due_, heartbeat_, handed_over_, stop_}) {
      add(flag ? 1 : 2);
    }
    return state;
  }

  [[nodiscard]] Interleavings::Ways ways(std::size_t fiber, int reason) const override {
    switch (static_cast<Wait>(reason)) {
      case Wait::step:
        break;
      case Wait::lock:
        return lock_word() == 0 ? Interleavings::Ways{0} : Interleavings::Ways{};
      case Wait::choose:
        return {0, 1};
      case Wait::sleep: {
        Interleavings::Ways ways;
        if (is_called()) {
          ways.push_back(0);
        }
        if (wakes_[fiber] != kNever) {
          ways.push_back(1);
        }
        return ways;
      }
    }
    return {0};
  }
  [[nodiscard]] bool only_waits(std::size_t fiber, int reason) const override {
    (void)fiber;
    return (reason == static_cast<int>(Wait::sleep) && !is_called()) ||
           (reason == static_cast<int>(Wait::lock) && lock_word() != 0);
  }

  // What must hold whenever all that is left is waiting: the lock is free, nothing posted lies
  // there, and for packets and for the deadline some thread will wake in time.
  [[nodiscard]] std::string judge(const std::vector<bool>& finished) const override {
    if (lock_word() != 0) {
      return "the lock is not released";
    }
    if (posted_ != 0) {
      return "posted work is left behind";
    }
    TimePoint first = kNever;
    bool asleep = false;
    for (std::size_t i = 0; i < scripts_.size(); ++i) {
      if (!finished[i]) {
        asleep = true;
        first = std::min(first, wakes_[i]);
        if (stop_ && scripts_[i].back() == Act::watch) {
          return "the background thread does not see that it must end";
        }
      }
    }
    if (!asleep) {
      return {};
    }
    if (packets_ != 0 && first > kStart + SleepState::kLookUp) {
      return "packets lie there and all sleep";
    }
    if (deadline_ && first > kDeadline + SleepState::kLookUp) {
      return "all sleep past the deadline";
    }
    return {};
  }

 private:
  struct World {
    using Lock = TheLock;
    ProgressModel& model;

    [[nodiscard]] TimePoint now() const { return kStart; }
    std::size_t round() const { return model.round(); }
    [[nodiscard]] TimePoint next_look() const {
      return model.due_ ? kStart : model.deadline_ ? kDeadline : kNever;
    }
    [[nodiscard]] bool arm() const { return model.arm(); }
    void disarm() const { model.disarm(); }
    void ring_bell() const {
      Interleavings::step("rings the bell");
      model.bell_rings_ = true;
    }
    void clear_bell() const {
      Interleavings::step("clears the bell");
      model.bell_rings_ = false;
    }
    [[nodiscard]] bool wait(TimePoint until) const { return model.wait(until); }
    void make_way() const {
      Interleavings::step("makes way");
      Interleavings::mark_loop();
    }
  };
  using Progress = srd::SharedProgress<World, State>;
  using Caller = typename Progress::Caller;
  using Depth = typename Progress::Depth;

  [[nodiscard]] std::uintptr_t lock_word() const { return word_->peek(); }
  [[nodiscard]] bool is_called() const { return carrier_rings_ || bell_rings_; }

  void perform(Act act, std::uint64_t place) {
    switch (act) {
      case Act::poll:
        (void)poll();
        break;
      case Act::push:
        post();
        (void)progress_.make(Caller::polling, [this] { return transmit(); });
        break;
      case Act::with: {
        typename Progress::Held held(progress_.enter());
        post();
        (void)transmit();
        progress_.leave(held);
        break;
      }
      case Act::look: {
        typename Progress::Held held(progress_.enter());
        progress_.leave(held);
        break;
      }
      case Act::linger:
        (void)progress_.make(Caller::lingering, [this] { return round(); });
        Interleavings::mark(place + 50);
        progress_.hand_over([this] {
          handed_over_ = true;
          return false;
        });
        break;
      case Act::watch:
        watch();
        break;
      case Act::sleep_on:
        for (;;) {
          Interleavings::mark(1);
          (void)poll();
          Interleavings::mark(2);
          progress_.sleep(kNever, Depth::deep, [] { return false; });
        }
      case Act::sleep_a_bit:
        progress_.sleep(kLimit, Depth::deep, [] { return false; });
        break;
      case Act::arrive:
        Interleavings::step("publishes a packet");
        ++packets_;
        Interleavings::step("looks whether to ring");
        if (std::exchange(asleep_, false)) {
          Interleavings::saw(1);
          Interleavings::step("rings the carrier's bell");
          carrier_rings_ = true;
        }
        break;
      case Act::stop:
        Interleavings::step("tells it to stop");
        stop_ = true;
        progress_.rouse_all();
        break;
    }
  }

  std::size_t poll() {
    return progress_.make(Caller::polling, [this] {
      heartbeat_ = true;
      handed_over_ = false;
      return round();
    });
  }
  // BackgroundThread: a heartbeat that was seen before is not fresh; one that was not may be.
  void watch() {
    for (;;) {
      Interleavings::mark(10);
      Interleavings::step("looks at the heartbeat");
      if (stop_) {
        return;
      }
      const bool beats = std::exchange(heartbeat_, false) && !handed_over_;
      Interleavings::saw(beats ? 1 : 2);
      if (beats && Interleavings::stop(static_cast<int>(Wait::choose),
                                       "finds the heartbeat fresh or not") == 0) {
        Interleavings::mark(11);
        progress_.sleep(kStart + SleepState::kLookUp, Depth::light,
                        [this] { return stop_ || handed_over_; });
      } else {
        Interleavings::mark(12);
        (void)progress_.make(Caller::passing, [this] { return round(); });
        Interleavings::mark(13);
        progress_.sleep(kNever, Depth::deep, [this] { return stop_; });
      }
    }
  }

  void post() {
    Interleavings::step("posts");
    ++posted_;
  }
  std::size_t transmit() {
    Interleavings::step("transmits");
    if (posted_ != 0) {
      posted_ = 0;
      deadline_ = true;
    }
    return 0;
  }
  std::size_t round() {
    Interleavings::step("receives");
    packets_ = 0;
    if (due_) {
      due_ = deadline_ = false;
    }
    return transmit();
  }

  // As RingIo does.
  bool arm() {
    armed_ = true;
    Interleavings::step("arms");
    asleep_ = true;
    if (faults_.arms_without_look) {
      return true;
    }
    Interleavings::step("looks for packets");
    Interleavings::saw(static_cast<std::uint64_t>(packets_));
    if (packets_ != 0) {
      disarm();
      return false;
    }
    return true;
  }
  void disarm() {
    if (!armed_) {
      return;
    }
    armed_ = false;
    Interleavings::step("disarms");
    asleep_ = false;
    Interleavings::step("forgets the carrier's bell");
    carrier_rings_ = false;
  }
  bool wait(TimePoint until) {
    TimePoint& wakes = wakes_[Interleavings::fiber()];
    wakes = until;
    if (Interleavings::stop(static_cast<int>(Wait::sleep), "sleeps") == 1 && until >= kDeadline &&
        deadline_) {
      due_ = true;  // so late it is by now
    }
    wakes = kNever;
    Interleavings::saw(bell_rings_ ? 1 : 2);
    return bell_rings_;
  }

  std::vector<Script> scripts_;
  Faults faults_;
  std::vector<TimePoint> wakes_;
  int posted_ = 0;
  int packets_ = 0;
  bool armed_ = false;
  bool asleep_ = false;
  bool carrier_rings_ = false;
  bool bell_rings_ = false;
  bool deadline_ = false;
  bool due_ = false;
  bool heartbeat_ = false;
  bool handed_over_ = false;
  bool stop_ = false;
  const SteppedAtomic<std::uintptr_t>* word_ = nullptr;
  World world_{*this};
  Progress progress_;
};

}  // namespace weft::testing
