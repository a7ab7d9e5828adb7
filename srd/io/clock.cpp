// Owns the choice between the processor's tick counter and the system's clock.
//
// Every poll reads the time, on any thread. The common way is one rdtsc and TickClock::tell(). When
// that declines, because its rate is due for a check, the caller reads both clocks, and one caller
// at a time corrects the rate. Where the counter is not invariant or has proved wrong, and on
// processors other than x86-64, each reading asks the system.
#include <time.h>

#include "srd/io/posix.hpp"
#include "srd/io/tick_clock.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#include <x86intrin.h>
#endif

namespace weft::srd {
namespace {

std::int64_t system_time() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

#if defined(__x86_64__)

// One for the process; constant-initialised, so that reading it needs no guard.
constinit TickClock ticks;

// The counter runs at one rate in all states of the processor.
bool has_invariant_counter() {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  constexpr unsigned kPowerManagement = 0x80000007;
  constexpr unsigned kInvariant = 1U << 8;
  return __get_cpuid(kPowerManagement, &a, &b, &c, &d) != 0 && (d & kInvariant) != 0;
}

const bool invariant = has_invariant_counter();

// Reads the system's clock, and corrects the rate of the counter by it. The counter is read before
// and after: if too many ticks lie between, the thread may have lost its core there, and the pair
// is not used.
std::int64_t compare() {
  constexpr std::uint64_t kMaxTicksBetween = 20'000;
  const std::uint64_t before = __rdtsc();
  const std::int64_t time = system_time();
  const std::uint64_t after = __rdtsc();
  if (after - before < kMaxTicksBetween && ticks.begin_correcting()) {
    ticks.correct(ClockReading{before + (after - before) / 2, time});
    ticks.end_correcting();
  }
  return time;
}

std::int64_t now_in_nanoseconds() {
  if (!invariant || ticks.useless()) {
    return system_time();
  }
  std::int64_t time = 0;
  return ticks.tell(__rdtsc(), time) ? time : compare();
}

#else

std::int64_t now_in_nanoseconds() { return system_time(); }

#endif

}  // namespace

TimePoint clock_now() { return time_at(Duration{now_in_nanoseconds()}); }

}  // namespace weft::srd
