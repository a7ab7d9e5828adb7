// Owns the tests that every congestion control must pass, and those of the simple ones.
#include "srd/engine/cc/congestion_control.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "srd/base/rng.hpp"

namespace weft::srd {
namespace {

using namespace std::chrono_literals;

// As in nscc_test.cpp: three tiers at 100 Gb/s.
CcTuning network() {
  CcTuning tuning;
  tuning.base_rtt = 14'023ns;
  tuning.mtu_wire = 4150;
  tuning.trimming = true;
  return tuning;
}

// An acknowledgement of `acked` bytes, with as many still in flight.
AckSample ack(TimePoint now, Bytes acked, Duration rtt, bool congested, std::uint16_t path = 0) {
  AckSample s;
  s.now = now;
  s.acked = acked;
  s.in_flight = acked;
  s.rtt = rtt;
  s.rtt_valid = true;
  s.congested = congested;
  s.path = PathId{path};
  return s;
}

TEST(CongestionControlNames, EachNameResolvesToItsKindAndBack) {
  for (const std::string_view name : congestion_control_names()) {
    const auto kind = parse_congestion_control(name);
    ASSERT_TRUE(kind.has_value()) << name;
    EXPECT_EQ(to_string(*kind), name);
  }
  const auto unknown = make_congestion_control("bbr", network());
  ASSERT_FALSE(unknown.has_value());
  EXPECT_NE(unknown.error().message.find("nscc"), std::string::npos);
}

TEST(CongestionControlNames, ANetworkWithoutRateOrLengthIsRefused) {
  CcTuning tuning = network();
  tuning.line_rate = Rate{};
  EXPECT_FALSE(make_congestion_control("srd", tuning).has_value());
  tuning = network();
  tuning.base_rtt = 0ns;
  EXPECT_FALSE(make_congestion_control("srd", tuning).has_value());
  tuning = network();
  // No room for a single byte of payload.
  tuning.header = tuning.mtu_wire;
  EXPECT_FALSE(make_congestion_control("srd", tuning).has_value());
}

class EveryControl : public testing::TestWithParam<std::string_view> {};

// Any times, sizes and round trips that a clock and a liar can produce.
TEST_P(EveryControl, TheWindowStaysWithinItsBoundsUnderAnySequence) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    CcTuning tuning = network();
    tuning.trimming = rng.chance(0.5);
    tuning.line_rate = Rate::bits_per_second(1ULL << rng.between(10, 40));
    tuning.base_rtt = Duration{static_cast<std::int64_t>(1ULL << rng.below(30))};
    tuning.max_window = rng.chance(0.5) ? rng.between(1, 1 << 24) : 0;
    CongestionControl cc = make_congestion_control(GetParam(), tuning).value();
    const Bytes most = 16ULL << 50;  // a petabyte: no control is bound to the configured base RTT
    TimePoint now = time_at(Duration{static_cast<std::int64_t>(rng.next() >> rng.between(2, 40))});
    for (int i = 0; i < 1500; ++i) {
      now += Duration{static_cast<std::int64_t>(rng.next() >> rng.between(34, 63))};
      const PathId path{static_cast<std::uint16_t>(rng.next())};
      if (rng.chance(0.7)) {
        AckSample s = ack(now, rng.next() >> rng.between(16, 63),
                          Duration{static_cast<std::int64_t>(rng.next() >> rng.below(64))},
                          rng.chance(0.5), path.value());
        s.rtt_valid = rng.chance(0.9);
        s.in_flight = rng.next() >> rng.between(16, 63);
        cc.on_ack(s);
      } else {
        cc.on_loss(now, rng.next() >> rng.between(16, 63), static_cast<LossKind>(rng.below(3)),
                   path);
      }
      ASSERT_GE(cc.window(), std::min<Bytes>(tuning.mtu_wire, 1)) << i;
      ASSERT_LE(cc.window(), most) << i;
      if (tuning.max_window != 0) {
        ASSERT_LE(cc.window(), std::max<Bytes>(tuning.max_window, tuning.mtu_wire)) << i;
      }
      if (!cc.pacing_rate().is_zero()) {
        ASSERT_GT(cc.pacing_rate().bits_per_second(), 0U);
      }
    }
  }
}

// Or a sender would stop for good: without a packet no acknowledgement can open the window again.
TEST_P(EveryControl, IsNeverSmallerThanOnePacket) {
  CongestionControl cc = make_congestion_control(GetParam(), network()).value();
  TimePoint now = time_at(1ms);
  for (int i = 0; i < 5000; ++i) {
    now += 20us;
    cc.on_ack(ack(now, 4150, 200us, true, static_cast<std::uint16_t>(i)));
    cc.on_loss(now, 4150, LossKind::trimmed, PathId{static_cast<std::uint16_t>(i)});
    ASSERT_GE(cc.window(), 4150U);
  }
}

// 300 acknowledgements of a congested network, then 20 ms of an empty one. A control that kept its
// small window would never use the network again.
TEST_P(EveryControl, GrowsAgainWhenTheNetworkIsFree) {
  CongestionControl cc = make_congestion_control(GetParam(), network()).value();
  const Bytes at_first = cc.window();
  TimePoint now = time_at(1ms);
  for (int i = 0; i < 300; ++i) {
    now += 20us;
    cc.on_ack(ack(now, 4150, 100us, true, static_cast<std::uint16_t>(i)));
  }
  const Bytes low = cc.window();
  for (int i = 0; i < 20'000; ++i) {
    now += 1us;
    cc.on_ack(ack(now, 4150, 14'023ns, false, static_cast<std::uint16_t>(i % 64)));
  }
  EXPECT_GE(cc.window(), low);
  EXPECT_GE(cc.window(), at_first / 2);
}

INSTANTIATE_TEST_SUITE_P(Controls, EveryControl,
                         testing::ValuesIn(congestion_control_names().begin(),
                                           congestion_control_names().end()),
                         [](const auto& each) { return std::string(each.param); });

TEST(Fixed, IsTheConfiguredWindowForEver) {
  CcTuning tuning = network();
  tuning.initial_window = 12'345;
  CongestionControl cc = make_congestion_control("fixed", tuning).value();
  cc.on_loss(time_at(1us), 99'999, LossKind::timeout);
  cc.on_ack(ack(time_at(2us), 4150, 1s, true));
  EXPECT_EQ(cc.window(), 12'345U);
  EXPECT_TRUE(cc.pacing_rate().is_zero());
}

TEST(MpRdma, AddsOnePacketPerWindowAndTakesAQuarterOfWhatIsMarked) {
  CcTuning tuning = network();
  tuning.initial_window = 83'000;  // 20 packets
  CongestionControl cc = make_congestion_control("mprdma", tuning).value();
  for (int i = 0; i < 20; ++i) {
    cc.on_ack(ack(time_at(1us), 4150, 14us, false));
  }
  EXPECT_NEAR(static_cast<double>(cc.window()), 83'000 + 4150, 150);
  const Bytes before = cc.window();
  cc.on_ack(ack(time_at(2us), 8000, 14us, true));
  EXPECT_NEAR(static_cast<double>(before - cc.window()), 2000, 1);
  cc.on_loss(time_at(3us), 4150, LossKind::trimmed);
  EXPECT_NEAR(static_cast<double>(before - cc.window()), 2000 + 4150, 1);
}

// Windows settle where growth and cuts balance: the more bytes are marked, the smaller.
TEST(Dctcp, TheCutFollowsTheShareOfMarkedBytes) {
  CcTuning tuning = network();
  tuning.initial_window = 200'000;
  auto settle = [&](int marked_of_ten) {
    CongestionControl cc = make_congestion_control("dctcp", tuning).value();
    TimePoint now = time_at(1ms);
    Bytes window = 0;
    for (int i = 0; i < 4000; ++i) {
      now += 1us;
      cc.on_ack(ack(now, 4150, 20us, i % 10 < marked_of_ten));
      // Of the last quarter only, in which it swings around where it has settled.
      window = std::max(window, i > 3000 ? cc.window() : 0);
    }
    return window;
  };
  EXPECT_GT(settle(1), settle(5));
  EXPECT_GT(settle(5), settle(10));
}

TEST(Swift, SmallWindowsMayQueueMore) {
  CcTuning tuning = network();
  tuning.initial_window = 4150;
  const Swift small(tuning);
  tuning.initial_window = 415'000;
  tuning.max_window = 415'000;
  const Swift large(tuning);
  EXPECT_GT(small.target(), large.target());
  const double packet = static_cast<double>(tuning.line_rate.time_for(tuning.mtu_wire).count());
  EXPECT_NEAR(large.target(), 1.5 * 14'023 + 4 * packet, 1);
}

TEST(Swift, SpacesPacketsOutBelowOnePacketPerRoundTrip) {
  CongestionControl cc = make_congestion_control("swift", network()).value();
  TimePoint now = time_at(1ms);
  EXPECT_TRUE(cc.pacing_rate().is_zero());
  for (int i = 0; i < 200; ++i) {
    now += 1ms;
    cc.on_ack(ack(now, 4150, 300us, true));
  }
  ASSERT_FALSE(cc.pacing_rate().is_zero());
  // One packet in the 300 us of a round trip.
  EXPECT_LT(cc.pacing_rate().bits_per_second(), 4150U * 8 * 1'000'000 / 300);
}

}  // namespace
}  // namespace weft::srd
