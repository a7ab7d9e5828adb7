// Owns the thread that makes progress while the application does not poll.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "srd/run/host.hpp"
#include "srd/run/short_turns.hpp"

namespace weft::srd {

// While the application polls, this thread sleeps and looks up once in a while. When nobody has
// polled for a moment it takes over, and sleeps on the packets themselves.
template <class M>
class BackgroundThread {
 public:
  // `watchful`: work may turn up of which nobody tells, in memory that the machine looks at; so it
  // looks, every millisecond after it found some, and less often otherwise.
  explicit BackgroundThread(Host<M>& host, bool watchful = false)
      : host_(host), watchful_(watchful), thread_([this] { run(); }) {}
  ~BackgroundThread() {
    stop_ = true;
    host_.kick();
    thread_.join();
  }
  BackgroundThread(const BackgroundThread&) = delete;
  BackgroundThread& operator=(const BackgroundThread&) = delete;

  // The application is going to wait for an event: do not wait for the silence.
  void take_over_now() {
    summoned_.store(true, std::memory_order_release);
    host_.kick();
  }

 private:
  static constexpr Duration kSilence = std::chrono::microseconds{60};
  static constexpr Duration kLookUp = std::chrono::milliseconds{1};
  static constexpr Duration kSpinAfterTakeOver = std::chrono::microseconds{30};
  // Who yields to somebody that never does waits for a whole slice; who sleeps is woken at once.
  static constexpr Duration kDearYield = std::chrono::microseconds{500};
  static constexpr Duration kNoYieldFor = std::chrono::milliseconds{100};

  static constexpr Duration kLookOften = std::chrono::milliseconds{1};
  static constexpr Duration kLookSeldom = std::chrono::milliseconds{10};
  static constexpr Duration kLookOftenFor = std::chrono::seconds{1};

  void run() {
    TimePoint own_poll{};
    TimePoint last_work{};
    TimePoint yield_again{};
    while (!stop_.load(std::memory_order_acquire)) {
      const TimePoint last = host_.last_poll();
      const TimePoint begin = monotonic_now();
      const bool application_polls = last != own_poll && begin - last < kSilence;
      const auto awaited = host_.awaited(begin);
      if (application_polls && awaited != Host<M>::Awaited::soon &&
          !summoned_.exchange(false, std::memory_order_acquire)) {
        host_.sleep_deaf(awaited == Host<M>::Awaited::nothing ? kLookUp : kSilence);
        continue;
      }
      const std::size_t work = host_.poll();
      own_poll = host_.last_poll();
      const TimePoint now = monotonic_now();
      if (work != 0) {
        last_work = now;
      } else if (now - last_work < kSpinAfterTakeOver && now >= yield_again) {
        give_way();
        if (const TimePoint back = monotonic_now(); back - now > kDearYield) {
          yield_again = back + kNoYieldFor;
        }
      } else if (!watchful_) {
        host_.sleep(kNever);
      } else {
        host_.sleep(now + (now - last_work < kLookOftenFor ? kLookOften : kLookSeldom));
      }
    }
  }

  Host<M>& host_;
  bool watchful_;
  std::atomic<bool> stop_{false};
  std::atomic<bool> summoned_{false};
  std::thread thread_;
};

}  // namespace weft::srd
