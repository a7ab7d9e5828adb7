// Owns the tests of NSCC: its constants as published for the reference network, and its four cases.
#include "srd/engine/cc/nscc.hpp"

#include <gtest/gtest.h>

namespace weft::srd {
namespace {

using namespace std::chrono_literals;

constexpr double kBaseRtt = 14'022'720;  // ps: three tiers at 100 Gb/s, 1 us per link
constexpr double kMtu = 4150;

CcTuning default_network() {
  CcTuning tuning;
  tuning.base_rtt = 14'023ns;
  tuning.mtu_wire = 4150;
  tuning.trimming = true;
  return tuning;
}

TEST(NsccConstants, AreThoseOfTheDefaultNetwork) {
  const NsccConstants k(Rate::gbps(100), kBaseRtt, kMtu, 64, 0.75);
  // 100 Gb/s for 14.02 us. All others follow from it and from the packet's size.
  EXPECT_DOUBLE_EQ(k.bdp, 175'284);
  EXPECT_NEAR(k.scale_a, 1.16856, 1e-9);
  EXPECT_NEAR(k.target, 10'517'040, 1e-6);
  EXPECT_NEAR(k.scale_b, 0.87642, 1e-9);
  EXPECT_NEAR(k.alpha, 0.00159158, 5e-9);  // with the payload, not the packet
  EXPECT_NEAR(k.fair_increase, 23'873.7, 0.05);
  EXPECT_NEAR(k.eta, 716.21, 0.005);
  EXPECT_NEAR(k.fast_scale, 0.29214, 1e-9);
  EXPECT_NEAR(k.adapt_threshold, 42'068'160, 1e-6);
  EXPECT_DOUBLE_EQ(k.adjust_bytes, 33'200);
  EXPECT_DOUBLE_EQ(k.base_rtt, kBaseRtt);
}

TEST(NsccConstants, TheTargetIsTheWholeBaseRttWithoutTrimming) {
  EXPECT_DOUBLE_EQ(NsccConstants(Rate::gbps(100), kBaseRtt, kMtu, 64, 1.0).target, kBaseRtt);
}

TEST(Nscc, StartsAtOneAndAHalfBandwidthDelayProducts) {
  EXPECT_NEAR(static_cast<double>(Nscc(default_network()).window()), 262'926, 10);
}

// NSCC decides by two things that each acknowledgement says: whether it is marked, and how long it
// has waited in queues. The four combinations are the four cases.
struct NsccCases : testing::Test {
  CcTuning tuning = [] {
    CcTuning t = default_network();
    t.initial_window = 100'000;
    return t;
  }();
  Nscc nscc{tuning};
  TimePoint now = time_at(1ms);

  void acks(int count, Duration delay, bool congested, Duration apart = 1us) {
    for (int i = 0; i < count; ++i) {
      now += apart;
      AckSample s;
      s.now = now;
      s.acked = 4150;
      s.in_flight = 50'000;
      s.rtt = tuning.base_rtt + delay;
      s.rtt_valid = true;
      s.congested = congested;
      nscc.on_ack(s);
    }
  }
};

TEST_F(NsccCases, AQueueThatJustBuildsUpChangesNothingButTheConstantIncrease) {
  acks(10, 5us, true);
  // Two constant increases (eta, see above).
  EXPECT_NEAR(static_cast<double>(nscc.window()), 100'000, 2 * 717);
}

TEST_F(NsccCases, BelowTheTargetItGrowsInProportionToTheDistance) {
  Nscc before = nscc;
  acks(10, 2us, false);
  const Bytes near_empty = nscc.window();
  nscc = before;
  now = time_at(1ms);
  acks(10, 9us, false);
  EXPECT_GT(near_empty, nscc.window());
  EXPECT_GT(nscc.window(), 100'000U);
}

TEST_F(NsccCases, AnEmptyNetworkIsFilledFast) {
  acks(40, 0us, false);
  // By fast_scale, 0.29 of what is acknowledged, for ten packets at the least.
  EXPECT_GE(nscc.window(), 100'000U + 10 * 4150 * 29 / 100);
}

TEST_F(NsccCases, WithDelayAndMarksItDecreasesOncePerRoundTripAndAtMostHalves) {
  acks(100, 40us, true, 100ns);  // the average delay passes the target; all within 10 us
  const auto after = static_cast<double>(nscc.window());
  EXPECT_LT(after, 100'000);
  EXPECT_GE(after, 50'000);
  for (int i = 0; i < 400; ++i) {
    acks(1, 40us, true, 14'024ns);
  }
  EXPECT_LE(nscc.window(), 4150U + 717U);  // the floor and one constant increase
}

TEST_F(NsccCases, QuickAdaptTakesWhatWasDeliveredWhenLossesPersist) {
  acks(2, 5us, true);           // starts a period
  acks(3, 60us, false, 100ns);  // 12 450 bytes arrive in it, far less than an eighth
  now += 30us;
  nscc.on_loss(now, 4150, LossKind::trimmed, {});
  EXPECT_LE(nscc.window(), 5U * 4150U);
  EXPECT_GE(nscc.window(), 3U * 4150U);
}

}  // namespace
}  // namespace weft::srd
