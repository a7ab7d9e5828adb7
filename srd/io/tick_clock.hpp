// Owns turning the processor's tick counter into monotonic time, corrected by the system's clock.
#pragma once

#include <atomic>
#include <cstdint>

namespace weft::srd {

// Both clocks at one moment.
struct ClockReading {
  std::uint64_t ticks = 0;
  std::int64_t time = 0;  // nanoseconds
};

// Every poll reads the time, and reading the counter costs a fraction of clock_gettime(). The
// counter's rate is measured, not assumed: every few milliseconds one caller compares it with the
// system's clock, and a counter that goes wrong is not used any more. What tell() says never goes
// back within one thread, except after such a failure. Readers take no lock: the numbers are
// published under a version (a seqlock), and a reader that meets a change asks the system's clock
// instead.
class TickClock {
 public:
  // True: `time` is what the clock says at `ticks`. False: correct() is due, or there is no rate
  // yet.
  [[nodiscard]] bool tell(std::uint64_t ticks, std::int64_t& time) const {
    const std::uint32_t version = version_.load(std::memory_order_acquire);
    const std::uint64_t base = base_ticks_.load(std::memory_order_relaxed);
    const std::uint64_t scale = scale_.load(std::memory_order_relaxed);
    const std::int64_t base_time = base_time_.load(std::memory_order_relaxed);
    const std::uint64_t span = span_.load(std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_acquire);
    // Cores may differ by some ticks.
    const std::uint64_t passed = ticks > base ? ticks - base : 0;
    if ((version & 1) != 0 || version != version_.load(std::memory_order_relaxed) ||
        passed >= span) {
      return false;
    }
    time = base_time + static_cast<std::int64_t>((passed * scale) >> kScaleBits);
    return true;
  }

  // Adjusts the rate to a fresh reading; one caller at a time, between begin_correcting() and
  // end_correcting().
  void correct(const ClockReading& reading);
  [[nodiscard]] bool useless() const { return useless_.load(std::memory_order_relaxed); }

  // Around correct(). False: another thread is correcting; use the system's clock this time.
  [[nodiscard]] bool begin_correcting() { return !busy_.exchange(true, std::memory_order_acquire); }
  void end_correcting() { busy_.store(false, std::memory_order_release); }

 private:
  static constexpr unsigned kScaleBits = 32;
  static constexpr std::int64_t kMinBaseline = 200'000;  // ns, before a rate is used
  static constexpr std::int64_t kFirstSpan = 1'000'000;  // ns until the next comparison
  static constexpr std::int64_t kMaxSpan = 16'000'000;
  static constexpr std::int64_t kTolerance = 50'000;   // ns between counter and clock
  static constexpr std::int64_t kRateTolerance = 500;  // one part in so many, between comparisons
  static constexpr int kMaxFailures = 3;

  void publish(const ClockReading& base, std::uint64_t scale, std::uint64_t span);

  std::atomic<std::uint32_t> version_{0};  // odd while the rest changes
  std::atomic<std::uint64_t> base_ticks_{0};
  std::atomic<std::int64_t> base_time_{0};
  std::atomic<std::uint64_t> scale_{0};  // nanoseconds per tick, times 2^kScaleBits
  std::atomic<std::uint64_t> span_{0};   // ticks from the base for which all of this holds
  std::atomic<bool> busy_{false};
  std::atomic<bool> useless_{false};

  // Only touched while correcting.
  ClockReading first_{};
  std::int64_t span_time_ = kFirstSpan;
  int failures_ = 0;
};

}  // namespace weft::srd
