// Owns the thread that makes progress while the application does not poll.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "srd/run/host.hpp"

namespace weft::srd {

// While the application polls, this thread sleeps and looks up once in a while. When nobody has
// polled for a moment it takes over, and sleeps on the packets themselves.
template <class M>
class BackgroundThread {
 public:
  explicit BackgroundThread(Host<M>& host) : host_(host), thread_([this] { run(); }) {}
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

  void run() {
    TimePoint own_poll{};
    while (!stop_.load(std::memory_order_acquire)) {
      const TimePoint last = host_.last_poll();
      const bool application_polls = last != own_poll && monotonic_now() - last < kSilence;
      if (application_polls && !summoned_.exchange(false, std::memory_order_acquire)) {
        host_.sleep_deaf(kLookUp);
        continue;
      }
      const std::size_t work = host_.poll();
      own_poll = host_.last_poll();
      if (work == 0) {
        host_.sleep(kNever);
      }
    }
  }

  Host<M>& host_;
  std::atomic<bool> stop_{false};
  std::atomic<bool> summoned_{false};
  std::thread thread_;
};

}  // namespace weft::srd
