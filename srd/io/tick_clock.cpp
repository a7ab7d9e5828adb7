// Owns measuring the tick counter's rate against the system's clock.
#include "srd/io/tick_clock.hpp"

#include <algorithm>

namespace weft::srd {

void TickClock::publish(const ClockReading& base, std::uint64_t scale, std::uint64_t span) {
  version_.fetch_add(1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  base_ticks_.store(base.ticks, std::memory_order_relaxed);
  base_time_.store(base.time, std::memory_order_relaxed);
  scale_.store(scale, std::memory_order_relaxed);
  span_.store(span, std::memory_order_relaxed);
  version_.fetch_add(1, std::memory_order_release);
}

// Compares the counter with the clock since the last base, and sets a new base and rate. A small
// difference is corrected by a rate that is slightly off until the next comparison, so that time
// neither jumps nor goes back; a large one starts the measurement again.
void TickClock::correct(const ClockReading& reading) {
  if (first_.ticks == 0) {
    first_ = reading;
    return;
  }
  const std::int64_t passed_time = reading.time - first_.time;
  if (passed_time < kMinBaseline || reading.ticks <= first_.ticks) {
    if (reading.ticks < first_.ticks) {
      useless_.store(true, std::memory_order_relaxed);
    }
    return;
  }
  ClockReading base = reading;
  if (const std::uint64_t scale = scale_.load(std::memory_order_relaxed); scale != 0) {
    const std::uint64_t passed = reading.ticks - base_ticks_.load(std::memory_order_relaxed);
    const auto told =
        base_time_.load(std::memory_order_relaxed) +
        static_cast<std::int64_t>((static_cast<unsigned __int128>(passed) * scale) >> kScaleBits);
    const std::int64_t ahead = told - reading.time;
    const std::int64_t since_base = reading.time - base_time_.load(std::memory_order_relaxed);
    if (std::max(ahead, -ahead) > kTolerance + since_base / kRateTolerance) {
      // The machine slept, or was migrated: start again. After too many such failures in a row the
      // counter is not used any more.
      useless_.store(++failures_ > kMaxFailures, std::memory_order_relaxed);
      first_ = reading;
      span_time_ = kFirstSpan;
      publish(ClockReading{reading.ticks, std::max(told, reading.time)}, 0, 0);
      return;
    }
    base.time = std::max(told, reading.time);
    span_time_ = std::min(span_time_ * 2, kMaxSpan);
    failures_ = 0;
  }
  const auto rate =
      (static_cast<unsigned __int128>(passed_time) << kScaleBits) / (reading.ticks - first_.ticks);
  const auto span =
      static_cast<std::uint64_t>((static_cast<unsigned __int128>(span_time_) << kScaleBits) /
                                 std::max<decltype(rate)>(rate, 1));
  // If the told time is ahead of the clock, it runs slower over the next span instead of going
  // back.
  const std::int64_t ahead = std::min(base.time - reading.time, span_time_ / 2);
  const auto scale = rate * static_cast<std::uint64_t>(span_time_ - ahead) /
                     static_cast<std::uint64_t>(span_time_);
  publish(base, static_cast<std::uint64_t>(scale), span);
}

}  // namespace weft::srd
