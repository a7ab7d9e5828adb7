// Tests that time told by a tick counter follows the system's clock, and never goes back.
#include "srd/io/tick_clock.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <thread>

#include "srd/base/rng.hpp"
#include "srd/run/clock.hpp"

namespace weft::srd {
namespace {

// A machine whose counter and clock go at known rates.
struct Machine {
  // A counter of 2.6 GHz, which has run for half an hour.
  double ticks_per_ns = 2.6;
  std::int64_t time = 1'000'000'000;
  double ticks = 5e12;
  TickClock clock;

  void pass(std::int64_t ns) {
    time += ns;
    ticks += static_cast<double>(ns) * ticks_per_ns;
  }
  // As a program does it. `told` says whether the counter was used.
  std::int64_t read(bool* told = nullptr) {
    std::int64_t now = 0;
    const bool good = clock.tell(static_cast<std::uint64_t>(ticks), now);
    if (told != nullptr) {
      *told = good;
    }
    if (!good) {
      clock.correct(ClockReading{static_cast<std::uint64_t>(ticks), time});
      now = time;
    }
    return now;
  }
};

TEST(TickClock, TellsTheTimeFromTheCounterOnceItsRateIsKnown) {
  Machine machine;
  machine.read();
  int told = 0;
  for (int i = 0; i < 100'000; ++i) {
    machine.pass(1'000);
    bool good = false;
    const std::int64_t now = machine.read(&good);
    told += good ? 1 : 0;
    ASSERT_LT(std::abs(now - machine.time), 2'000) << i;
  }
  // Nearly always: asking the system is what the counter is to save.
  EXPECT_GT(told, 99'000);
}

// The rate changes by up to 100 ppm, as with temperature.
TEST(TickClock, NeverGoesBackWhileTheRatesWander) {
  constexpr std::uint64_t kSeed = 7;
  Rng rng{kSeed};
  Machine machine;
  std::int64_t last = 0;
  for (int i = 0; i < 200'000; ++i) {
    if (i % 5'000 == 0) {
      machine.ticks_per_ns = 2.6 * (1.0 + (static_cast<double>(rng.below(200)) - 100) * 1e-6);
    }
    machine.pass(static_cast<std::int64_t>(rng.below(3'000)));
    bool good = false;
    const std::int64_t now = machine.read(&good);
    ASSERT_GE(now, last - (good ? 0 : 20'000)) << i;  // asking the system may correct it
    ASSERT_LT(std::abs(now - machine.time), 20'000) << i;
    last = now;
  }
  EXPECT_FALSE(machine.clock.useless());
}

TEST(TickClock, ALongSilenceIsNoFault) {
  Machine machine;
  for (int i = 0; i < 20; ++i) {
    for (int k = 0; k < 400; ++k) {
      machine.pass(1'000);
      machine.read();
    }
    // Half a minute without a question: what was extrapolated over it must not count as an error.
    machine.pass(30'000'000'000);
  }
  EXPECT_FALSE(machine.clock.useless());
}

TEST(TickClock, ACounterThatJumpsAllTheTimeIsNotUsed) {
  constexpr std::uint64_t kSeed = 11;
  Rng rng{kSeed};
  Machine machine;
  for (int i = 0; i < 2'000 && !machine.clock.useless(); ++i) {
    machine.pass(400'000);
    machine.read();
    // As if a thread moved between cores whose counters differ.
    machine.ticks += static_cast<double>(rng.below(1'000'000'000));
  }
  EXPECT_TRUE(machine.clock.useless());
}

// A million ticks, 0.4 ms: a virtual machine that was moved, for example.
TEST(TickClock, ACounterThatGoesBackIsNotUsed) {
  Machine machine;
  machine.read();
  machine.ticks -= 1e6;
  machine.read();
  EXPECT_TRUE(machine.clock.useless());
}

TEST(MonotonicNow, AgreesWithItselfInSeveralThreads) {
  std::atomic<std::int64_t> latest{0};
  std::atomic<std::int64_t> worst{0};
  const auto run = [&] {
    for (int i = 0; i < 200'000; ++i) {
      const std::int64_t before = latest.load(std::memory_order_acquire);
      const std::int64_t now = nanoseconds(monotonic_now());
      if (before - now > worst.load(std::memory_order_relaxed)) {
        worst = before - now;
      }
      latest.store(now, std::memory_order_release);
    }
  };
  std::thread other(run);
  run();
  other.join();
  EXPECT_LT(worst.load(), 100'000);  // nanoseconds; a wrong rate would be off by far more
}

}  // namespace
}  // namespace weft::srd
