// Owns the thread that makes progress while the application does not poll.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <iterator>
#include <memory>
#include <thread>

#include "srd/run/host.hpp"
#include "srd/run/short_turns.hpp"

namespace weft::srd {

// While the application polls, this thread sleeps and checks every kLookUp whether polls go on.
// When the last poll is older than kSilence, or the application has handed over, it takes over: it
// receives, serves timers and sends, and sleeps on the carrier in between.
template <class M>
class BackgroundThread {
 public:
  // `watchful`: work may appear without a wake-up, in memory that the machine reads (a doorbell
  // into which a program stores). So this thread looks for it, often while it finds some (kLooks).
  // Everything else wakes it.
  explicit BackgroundThread(Host<M>& host, bool watchful = false)
      : host_(host), watchful_(watchful), thread_([this] { run(); }) {}
  ~BackgroundThread() {
    stop_.store(true, std::memory_order_release);
    host_.kick();
    thread_.join();
  }
  BackgroundThread(const BackgroundThread&) = delete;
  BackgroundThread& operator=(const BackgroundThread&) = delete;

  // The application is going to sleep until an event: take over without waiting for kSilence.
  void take_over_now() {
    summoned_.store(true, std::memory_order_release);
    host_.kick();
  }

 private:
  static constexpr Duration kSilence = std::chrono::microseconds{60};
  static constexpr Duration kLookUp = SleepState::kLookUp;
  static constexpr Duration kSpinAfterTakeOver = std::chrono::microseconds{30};
  // Yielding to a busy thread costs a full time slice; a sleeper is woken at once.
  static constexpr Duration kDearYield = std::chrono::microseconds{500};
  static constexpr Duration kNoYieldFor = std::chrono::milliseconds{100};

  // How soon a watchful thread looks again, by how long ago it last found work.
  struct Looks {
    Duration idle;
    Duration again;
  };
  static constexpr Looks kLooks[] = {
      {std::chrono::milliseconds{2}, std::chrono::microseconds{50}},
      {std::chrono::seconds{1}, std::chrono::milliseconds{1}},
      {Duration::max(), std::chrono::milliseconds{10}},
  };

  [[nodiscard]] bool wanted() const {
    return stop_.load(std::memory_order_acquire) || summoned_.load(std::memory_order_acquire);
  }

  void run() {
    ask_for_short_turns();
    ask_for_punctual_timers();
    const auto wanted_now = [this] { return wanted(); };
    TimePoint last_work{};
    TimePoint yield_again{};
    while (!stop_.load(std::memory_order_acquire)) {
      const bool summoned = summoned_.exchange(false, std::memory_order_acquire);
      const TimePoint begin = monotonic_now();
      const bool application_polls =
          !host_.handed_over() && begin - host_.last_poll() < kSilence && !summoned;
      const auto awaited = host_.awaited(begin);
      if (application_polls && awaited != Host<M>::Awaited::soon) {
        host_.sleep_lightly(begin + (awaited == Host<M>::Awaited::nothing ? kLookUp : kSilence),
                            wanted_now);
        continue;
      }
      const std::size_t work = host_.watch();
      const TimePoint now = monotonic_now();
      if (work != 0) {
        last_work = now;
      } else if (now - last_work < kSpinAfterTakeOver && now >= yield_again &&
                 !host_.program_spins(now)) {
        give_way();
        if (const TimePoint back = monotonic_now(); back - now > kDearYield) {
          yield_again = back + kNoYieldFor;
        }
      } else {
        host_.sleep(next_look(now, last_work), wanted_now);
      }
    }
  }

  [[nodiscard]] TimePoint next_look(TimePoint now, TimePoint last_work) const {
    if (host_.program_spins(now)) {
      return now + kLookUp;  // early enough for deadlines that its posts set: they need not wake us
    }
    if (!watchful_) {
      return kNever;
    }
    const Duration idle = now - last_work;
    return now + std::find_if(std::begin(kLooks), std::end(kLooks), [idle](const Looks& one) {
                   return idle < one.idle;
                 })->again;
  }

  Host<M>& host_;
  bool watchful_;
  std::atomic<bool> stop_{false};
  std::atomic<bool> summoned_{false};
  std::thread thread_;
};

}  // namespace weft::srd
