// Owns the tests of the clock of a modelled network, for as long as a weftd may run. It counts
// picoseconds in 64 bits, which hold 106 days.
#include "emu/daemon/model_clock.hpp"

#include <gtest/gtest.h>

#include <array>
#include <chrono>

namespace weft::daemon {
namespace {

using std::chrono::hours;
using std::chrono::nanoseconds;

constexpr Duration kYear = hours{24 * 365};
// From a thousand times as fast as the machine's clock to a million times as slow.
constexpr std::array kDilations{0.001, 0.3, 1.0, 7.0, 1e6};

// The count follows the time exactly until it stops at kLatest; it must not wrap.
TEST(ModelClock, NeitherYearsNorDilationsMakeItOverflowOrGoBack) {
  for (const double dilation : kDilations) {
    for (const Duration began : {Duration{0}, 10 * kYear}) {
      const ModelClock clock(TimePoint{began}, dilation);
      fabric::Picos before = 0;
      for (Duration passed{1}; passed < 100 * kYear; passed *= 3) {
        const fabric::Picos count = clock.at(TimePoint{began + passed});
        ASSERT_GE(count, before) << dilation << ", " << passed.count() << " ns";
        const double exact = static_cast<double>(passed.count()) * 1000.0 / dilation;
        if (exact < static_cast<double>(ModelClock::kLatest)) {
          ASSERT_NEAR(static_cast<double>(count), exact, 1 + exact * 1e-9);
        } else {
          ASSERT_EQ(count, ModelClock::kLatest);
        }
        before = count;
      }
    }
  }
}

// weftd sleeps until when(count). If at() were still less then, it would wake up in vain, again and
// again until that moment has come.
TEST(ModelClock, ACountIsReachedAtTheMomentThatIsToldAndNotBefore) {
  for (const double dilation : kDilations) {
    const ModelClock clock(TimePoint{kYear}, dilation);
    for (fabric::Picos count = 1; count < ModelClock::kLatest / 3; count = count * 3 + 1) {
      const TimePoint when = clock.when(count);
      if (when == kNever) {
        ASSERT_GT(static_cast<double>(count) * dilation, 9e21) << "292 years, less the start";
        continue;
      }
      ASSERT_GE(clock.at(when), count) << dilation;
      ASSERT_LT(clock.at(when - nanoseconds{1}), count) << dilation;
    }
  }
}

// Five times in a row, at the latest possible moment. The count begins near zero, and the network's
// whole time since its start goes on within a millisecond (10^9 picoseconds).
TEST(ModelClock, IsSetBackWithoutLosingTime) {
  for (const double dilation : kDilations) {
    ModelClock clock(TimePoint{}, dilation);
    TimePoint now{};
    for (int i = 0; i < 5; ++i) {
      now = clock.when(ModelClock::kLatest);
      if (now == kNever) {
        break;  // so slow a network does not come to kLatest within 292 years
      }
      const Duration total = clock.since_start(clock.at(now));
      clock.rewind(ModelClock::kLatest);
      EXPECT_LE(clock.at(now), 1'000'000'000) << dilation;
      EXPECT_GE(clock.since_start(clock.at(now)), total) << dilation;
      EXPECT_LE(clock.since_start(clock.at(now)) - total, std::chrono::milliseconds{1}) << dilation;
    }
  }
}

}  // namespace
}  // namespace weft::daemon
