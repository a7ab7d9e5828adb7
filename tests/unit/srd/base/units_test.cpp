// Owns the tests of rates and of time.
#include "srd/base/units.hpp"

#include <gtest/gtest.h>

#include <cstdint>

#include "srd/base/time.hpp"

namespace weft {
namespace {

using std::chrono::microseconds;
using std::chrono::seconds;

// Simulated time adds up millions of packets: what each is rounded by would add up as well.
TEST(Rate, SerialisationIsExact) {
  EXPECT_EQ(Rate::gbps(400).picoseconds_for(64), 1280U);
  EXPECT_EQ(Rate::gbps(100).picoseconds_for(4150), 332'000U);
  // Beyond what 64 bits hold on the way to the result.
  EXPECT_EQ(Rate::gbps(400).picoseconds_for(2'305'843), 46'116'860U);
  EXPECT_EQ(Rate::gbps(400).picoseconds_for(2'305'844), 46'116'880U);
  EXPECT_EQ(Rate::bits_per_second(8).picoseconds_for(10'000'000), 10'000'000'000'000'000'000U);
  EXPECT_EQ(Rate::gbps(100).time_for(4150), Duration{332});
  EXPECT_EQ(Rate::gbps(0.1), Rate::bits_per_second(100'000'000));
}

// Rounded down, a link would carry more than its rate.
TEST(Rate, TimeRoundsUp) {
  EXPECT_EQ(Rate::gbps(400).time_for(64), Duration{2});  // 1.28 ns
  EXPECT_EQ(Rate::gbps(100).time_for(1), Duration{1});
  EXPECT_EQ(Rate::gbps(100).time_for(0), Duration{0});
}

TEST(Rate, LargeAmountsDoNotOverflow) {
  constexpr Bytes kGiB = 1ULL << 30;
  EXPECT_EQ(Rate::bits_per_second(8000).time_for(kGiB),
            Duration{static_cast<std::int64_t>(kGiB) * 1'000'000});
  EXPECT_EQ(Rate::gbps(800).bytes_in(std::chrono::hours{1}), 100'000'000'000ULL * 3600);
}

TEST(Rate, BytesRoundDown) {
  EXPECT_EQ(Rate::gbps(100).bytes_in(microseconds{14}), 175'000U);
  EXPECT_EQ(Rate::bits_per_second(7).bytes_in(seconds{1}), 0U);
  EXPECT_EQ(Rate::bits_per_second(8).bytes_in(seconds{1}), 1U);
}

// A sender that waits for the time of a packet must then be allowed to send it, and not before: if
// the two rounded differently, it would wake up in vain.
TEST(Rate, BytesAndTimeAreInverse) {
  for (const double gbps : {1.0, 10.0, 25.0, 100.0, 400.0}) {
    const Rate rate = Rate::gbps(gbps);
    for (Bytes bytes = 1; bytes < 100'000; bytes = bytes * 3 + 1) {
      EXPECT_GE(rate.bytes_in(rate.time_for(bytes)), bytes) << gbps;
      EXPECT_LT(rate.bytes_in(rate.time_for(bytes) - Duration{1}), bytes) << gbps;
    }
  }
}

TEST(Rate, ZeroIsKnown) {
  EXPECT_TRUE(Rate{}.is_zero());
  EXPECT_LT(Rate{}, Rate::gbps(1));
}

TEST(Time, NeverIsAfterEverything) {
  EXPECT_LT(time_at(std::chrono::hours{24 * 365 * 100}), kNever);
  EXPECT_EQ(nanoseconds(time_at(microseconds{3})), 3000);
  EXPECT_EQ(nanoseconds(microseconds{3}), 3000);
}

}  // namespace
}  // namespace weft
