// Owns the tests of what the default control does differently: paths, distance, silence.
#include "srd/engine/cc/srd_control.hpp"

#include <gtest/gtest.h>

#include "srd/base/rng.hpp"

namespace weft::srd {
namespace {

using namespace std::chrono_literals;

// One control and the events that an engine would give it; the clock moves with each event. The
// round trip of the empty network is 14 us, and a packet has 4150 bytes.
struct SrdCases : testing::Test {
  CcTuning tuning = [] {
    CcTuning t;
    t.base_rtt = 14us;
    t.mtu_wire = 4150;
    t.trimming = true;
    return t;
  }();
  SrdControl srd{tuning};
  TimePoint now = time_at(1ms);
  Bytes start = srd.window();
  bool late = false;

  void ack(std::uint16_t path, Duration rtt, bool congested, Duration after = 1us) {
    now += after;
    AckSample s;
    s.now = now;
    s.acked = 4150;
    s.in_flight = 100'000;
    s.rtt = rtt;
    s.rtt_valid = true;
    s.congested = congested;
    s.path = PathId{path};
    s.late = late;
    srd.on_ack(s);
  }
  // Acknowledges a packet that had been taken for lost.
  void ack_late(std::uint16_t path, Duration rtt, bool congested) {
    late = true;
    ack(path, rtt, congested);
    late = false;
  }
  void lose(std::uint16_t path, LossKind kind, Duration after = 0us) {
    now += after;
    srd.on_loss(now, 4150, kind, PathId{path});
  }
};

// Four of sixteen paths are congested. That is the business of the path selector; the window is for
// what all paths share.
TEST_F(SrdCases, OneCongestedPathOfFourLeavesTheWindowAlone) {
  for (int i = 0; i < 4000; ++i) {
    const auto path = static_cast<std::uint16_t>(i % 16);
    path < 4 ? ack(path, 60us, true) : ack(path, 15us, false);
  }
  EXPECT_GE(srd.window(), start - 4150);
}

TEST_F(SrdCases, OneDeadPathLeavesTheWindowAlone) {
  for (int i = 0; i < 4000; ++i) {
    const auto path = static_cast<std::uint16_t>(i % 16);
    if (path == 3) {
      lose(path, LossKind::timeout);
    } else {
      ack(path, 15us, i % 5 == 0);  // a network that marks
    }
  }
  EXPECT_GE(srd.window(), start * 9 / 10);
}

// The same congestion on all paths: now it is the peer, and the window has to follow.
TEST_F(SrdCases, ACongestedPeerSlowsItDown) {
  for (int i = 0; i < 4000; ++i) {
    ack(static_cast<std::uint16_t>(i % 16), 60us, true);
  }
  EXPECT_LE(srd.window(), 2 * 4150U);
}

TEST_F(SrdCases, BelowOnePacketPerRoundTripPacketsAreSpacedOut) {
  EXPECT_TRUE(srd.pacing_rate().is_zero());
  for (int i = 0; i < 6000; ++i) {  // nothing but losses
    lose(static_cast<std::uint16_t>(i % 64), LossKind::trimmed, 500ns);
  }
  EXPECT_LE(srd.window(), 4 * 4150U);  // losses stay in it until they are missed
  const double per_round = static_cast<double>(srd.pacing_rate().bits_per_second()) / 8 * 14e-6;
  EXPECT_LE(per_round, 4150 / 2.0);
  EXPECT_GE(per_round, 4150 / 8.0);
}

// A noisy scheduler: three packets of four wait for up to two milliseconds, one does not.
TEST_F(SrdCases, DelaysThatComeAndGoWithoutMarksDoNotShrinkTheWindow) {
  for (std::uint64_t i = 0; i < 20'000; ++i) {
    const std::uint64_t draw = mix64(i);
    const auto wait = static_cast<std::int64_t>(draw % 4 == 0 ? 0 : draw / 4 % 2'000'000);
    ack(static_cast<std::uint16_t>(i % 16), Duration{15'000 + wait}, false, 1us);
  }
  EXPECT_GE(srd.window(), start);
}

// Round trips of 140 us, ten times the base, without a mark: a network that cannot mark must not be
// filled for ever.
TEST_F(SrdCases, AQueueThatNeverEmptiesShrinksTheWindowWithoutMarks) {
  int rounds = 0;  // of 10 packets
  for (; srd.window() > start / 8 && rounds < 100; ++rounds) {
    for (std::uint16_t i = 0; i < 10; ++i) {
      ack(i, 140us, false, 14us);
    }
  }
  EXPECT_LE(rounds, 8);
}

TEST_F(SrdCases, AfterAQueueThatIsGoneTheWindowGrowsAgain) {
  for (std::uint16_t i = 0; i < 400; ++i) {  // a queue of what is in flight
    ack(i % 16, 14us + 126us * srd.window() / start, false, 14us);
  }
  ASSERT_LT(srd.window(), start / 4);
  for (std::uint16_t i = 0; i < 2000; ++i) {
    ack(i % 16, 16us, false, 1us);
  }
  EXPECT_GE(srd.window(), start / 2);
}

// A delay that does not follow the window is distance and no queue, so what the window was reduced
// by is given back. It must not grow beyond what follows from the distance that was told, either.
TEST_F(SrdCases, ALongDelayWithoutMarksDoesNotGrowTheWindow) {
  for (int i = 0; i < 30'000; ++i) {
    ack(static_cast<std::uint16_t>(i % 16), 1ms, false, 10us);
    ASSERT_LE(srd.window(), start) << i;
  }
  EXPECT_EQ(srd.base_rtt(), 1ms);
  EXPECT_GE(srd.window(), start * 9 / 10);
}

TEST_F(SrdCases, ANearPeerThatMovesAwayIsFarAgainUpToWhatWasTold) {
  for (int i = 0; i < 1000; ++i) {
    ack(static_cast<std::uint16_t>(i % 16), 5us, false);
  }
  EXPECT_EQ(srd.base_rtt(), 5us);
  for (int i = 0; i < 30'000; ++i) {
    ack(static_cast<std::uint16_t>(i % 16), 12us, false, 10us);
  }
  EXPECT_EQ(srd.base_rtt(), 12us);
}

TEST_F(SrdCases, APeerThatDoesNotRunForAWhileFindsItsWindowAgain) {
  for (int i = 0; i < 200; ++i) {
    ack(static_cast<std::uint16_t>(i % 16), 20us, false);
  }
  const Bytes before = srd.window();
  for (int i = 0; i < 300; ++i) {  // 15 ms: all that is in flight times out, again and again
    lose(static_cast<std::uint16_t>(i % 16), LossKind::timeout, 50us);
    ASSERT_GE(srd.window(), 4 * 4150U);
  }
  EXPECT_LT(srd.window(), before);
  ack_late(0, 15ms, false);
  EXPECT_GE(srd.window(), before * 9 / 10);
}

// Where all of a window is lost in a full queue, only what is sent again is ever answered.
TEST_F(SrdCases, SilenceThatEndsWithARetransmissionWasLoss) {
  for (int i = 0; i < 100; ++i) {
    ack(static_cast<std::uint16_t>(i % 16), 20us, false);
  }
  for (int i = 0; i < 100; ++i) {
    lose(static_cast<std::uint16_t>(i % 16), LossKind::timeout, 50us);
  }
  ack(0, 20us, false);
  EXPECT_LE(srd.window(), 8 * 4150U);
}

// Queues trim what they lose, and receivers ration the last hop: what is lost without a report says
// nothing about a queue.
struct SrdWhereCongestionIsReported : SrdCases {
  SrdWhereCongestionIsReported() {
    tuning.credits = true;
    srd = SrdControl{tuning};
    for (int i = 0; i < 200; ++i) {
      ack(static_cast<std::uint16_t>(i % 16), 15us, false);
    }
    before = srd.window();
  }
  void lose_many(LossKind kind) {
    for (int i = 0; i < 64; ++i) {
      lose(static_cast<std::uint16_t>(i % 16), kind, 100ns);
    }
  }
  Bytes before = 0;
};

TEST_F(SrdWhereCongestionIsReported, UnreportedLossesLeaveTheWindowAlone) {
  lose_many(LossKind::gap);
  lose_many(LossKind::timeout);
  EXPECT_EQ(srd.window(), before);
}

TEST_F(SrdWhereCongestionIsReported, ReportedLossesShrinkIt) {
  lose_many(LossKind::trimmed);
  EXPECT_LT(srd.window(), before / 2);
}

// Credits look after the last hop, but not after a queue before it.
TEST_F(SrdWhereCongestionIsReported, AFlightThatIsLostGoesBelowTheFloorOnlyAfterAMark) {
  lose_many(LossKind::trimmed);
  EXPECT_GE(srd.window(), 8 * 4150U);
  for (int i = 0; i < 20; ++i) {
    ack(0, 15us, true);
    lose_many(LossKind::trimmed);
  }
  EXPECT_LT(srd.window(), 2 * 4150U);
}

// Nothing gets through, so no mark comes back either.
TEST_F(SrdWhereCongestionIsReported, WithoutAMarkFlightAfterFlightThatIsLostGoesBelowTheFloor) {
  for (int i = 0; i < 20; ++i) {
    lose_many(LossKind::trimmed);
  }
  EXPECT_LT(srd.window(), 2 * 4150U);
  EXPECT_GT(srd.pacing_rate().bits_per_second(), 0U);
}

TEST_F(SrdWhereCongestionIsReported, WhatGetsThroughRaisesTheFloorAgain) {
  for (int i = 0; i < 20; ++i) {
    ack(0, 15us, true);
    lose_many(LossKind::trimmed);
  }
  for (int i = 0; i < 2000; ++i) {
    ack(static_cast<std::uint16_t>(i % 16), 15us, false);
  }
  ASSERT_GE(srd.window(), before / 2);
  lose_many(LossKind::trimmed);
  EXPECT_GE(srd.window(), 8 * 4150U);
}

// In a queue that is longer than their time-out packets are taken for lost and only wait.
TEST_F(SrdWhereCongestionIsReported, UnreportedLossesShrinkItAfterAMark) {
  ack(0, 15us, true);
  lose_many(LossKind::gap);
  EXPECT_LT(srd.window(), before / 2);
}

TEST_F(SrdWhereCongestionIsReported, UnreportedLossesShrinkItAfterALongDelay) {
  ack(0, 60us, false);
  now += 100us;  // the sample is too old to tell of a queue, but it is the latest one
  lose_many(LossKind::gap);
  EXPECT_LT(srd.window(), before);
}

TEST_F(SrdWhereCongestionIsReported, UnreportedLossesShrinkItWhileAnotherPathHasALongQueue) {
  ack(5, 60us, false);
  ack(0, 15us, false);
  lose_many(LossKind::gap);
  EXPECT_LT(srd.window(), before);
}

TEST_F(SrdWhereCongestionIsReported, UnreportedLossesShrinkItBeforeAnythingWasMeasured) {
  srd = SrdControl{tuning};
  lose_many(LossKind::gap);
  EXPECT_LT(srd.window(), start);
}

// A link that comes and goes: whatever was in flight is lost, again and again.
TEST_F(SrdWhereCongestionIsReported, EverySilenceIsForgiven) {
  for (int flap = 0; flap < 20; ++flap) {
    for (int i = 0; i < 100; ++i) {
      lose(static_cast<std::uint16_t>(i % 16), LossKind::timeout, 50us);
    }
    EXPECT_LT(srd.window(), before);
    ack(0, 15us, false);
    EXPECT_GE(srd.window(), before);
  }
}

TEST_F(SrdWhereCongestionIsReported, ASilenceThatEndsWithAMarkIsNotForgiven) {
  for (int i = 0; i < 100; ++i) {
    lose(static_cast<std::uint16_t>(i % 16), LossKind::timeout, 50us);
  }
  ack(0, 15us, true);
  EXPECT_LE(srd.window(), before / 2);
}

// What a round trip of 2 ms was planned by is not to outlast it: the next queue is seen at once.
TEST_F(SrdCases, ALongQueueThatDrainsIsForgottenWithinARoundTrip) {
  for (int i = 0; i < 200; ++i) {
    ack(static_cast<std::uint16_t>(i % 16), 14us + 10us * i, false, 10us);
  }
  ASSERT_LE(srd.window(), start / 4);
  for (int i = 0; i < 40; ++i) {
    ack(static_cast<std::uint16_t>(i % 16), 14us, false, 5us);
  }
  const Bytes recovered = srd.window();
  for (int i = 0; i < 40; ++i) {  // another queue
    ack(static_cast<std::uint16_t>(i % 16), 42us, false, 5us);
  }
  EXPECT_LT(srd.window(), recovered);
}

TEST_F(SrdCases, SilenceThatEndsWithMarksWasCongestion) {
  for (int i = 0; i < 200; ++i) {
    ack(static_cast<std::uint16_t>(i % 16), 20us, false);
  }
  for (int i = 0; i < 100; ++i) {
    lose(static_cast<std::uint16_t>(i % 16), LossKind::timeout, 50us);
  }
  ack(0, 60us, true);
  EXPECT_LE(srd.window(), 8 * 4150U);
}

// Twelve of thirteen packets are lost: the window has to come down to the five or so that arrive
// per round trip, not by halves.
TEST_F(SrdCases, AFullIncastGoesDownToWhatWasDelivered) {
  for (int i = 0; i < 5; ++i) {  // a long queue: what is lost had no room in it
    ack(static_cast<std::uint16_t>(i), 28us, true, 100ns);
  }
  for (int i = 0; i < 60; ++i) {
    lose(static_cast<std::uint16_t>(i % 64), LossKind::trimmed, 100ns);
  }
  for (int i = 0; i < 5; ++i) {
    ack(static_cast<std::uint16_t>(i), 28us, true, 100ns);
  }
  for (int i = 0; i < 60; ++i) {
    lose(static_cast<std::uint16_t>(i % 64), LossKind::trimmed, 500ns);
  }
  EXPECT_LE(srd.window(), 6 * 4150U);
}

// Packets that arrive were not delayed: a few packets fill the queue.
TEST_F(SrdCases, LossesWithoutDelayMoveTheWindowALittleEach) {
  for (int i = 0; i < 16; ++i) {
    ack(static_cast<std::uint16_t>(i), 14us, false, 100ns);
  }
  for (int i = 0; i < 8; ++i) {
    lose(static_cast<std::uint16_t>(i), LossKind::gap, 100ns);
  }
  EXPECT_GE(srd.window(), start / 2);
  EXPECT_LT(srd.window(), start);
  EXPECT_FALSE(srd.pacing_rate().is_zero());
  const Bytes after = srd.window();
  for (int i = 0; i < 4000; ++i) {  // no losses any more
    ack(static_cast<std::uint16_t>(i % 16), 14us, false, 300ns);
  }
  EXPECT_GT(srd.window(), after);
}

// Half of all packets are lost without any delay: the window is below a packet per round trip and
// stays there. After a pause new losses have to slow the sender down again.
TEST_F(SrdCases, ATinyWindowShrinksByLossesAgain) {
  CcTuning without = tuning;
  without.trimming = false;
  srd = SrdControl{without};
  ack(0, 14us, false);
  for (int i = 0; i < 2000; ++i) {  // half of the packets, nothing is delayed
    lose(static_cast<std::uint16_t>(i % 16), LossKind::gap, 1us);
    ack(static_cast<std::uint16_t>((i + 5) % 16), 14us, false, 7us);
  }
  for (int i = 0; i < 40; ++i) {  // and none for a while
    ack(static_cast<std::uint16_t>(i % 16), 14us, false, 14us);
  }
  const std::uint64_t before = srd.pacing_rate().bits_per_second();
  ASSERT_GT(before, 0U);
  for (int i = 0; i < 100; ++i) {
    lose(static_cast<std::uint16_t>(i % 16), LossKind::gap, 7us);
    ack(static_cast<std::uint16_t>((i + 5) % 16), 14us, false, 7us);
  }
  EXPECT_LT(srd.pacing_rate().bits_per_second(), before);
}

// Packets of the first flight are lost before anything was measured, and the peer is much nearer
// than was told: what was told is no queue.
TEST_F(SrdCases, TheFirstLossesOfANearPeerAreNoLongQueue) {
  srd.on_distance(3us);
  for (int i = 0; i < 20; ++i) {
    lose(static_cast<std::uint16_t>(i % 16), LossKind::trimmed);
  }
  EXPECT_GE(srd.window(), start / 4);
}

// A round trip that contains a queue is no distance, once the peer was asked: 4 us, or a little
// more by the tolerance, although data took 12.
TEST_F(SrdCases, WhatThePeerAnswersLimitsTheDistance) {
  for (int i = 0; i < 100; ++i) {
    ack(static_cast<std::uint16_t>(i % 16), 12us, false);
  }
  EXPECT_EQ(srd.base_rtt(), 12us);
  srd.on_distance(4us);
  EXPECT_GE(srd.base_rtt(), 4us);
  EXPECT_LE(srd.base_rtt(), 5us);
  srd.on_distance(1ms);  // farther than was told, or behind a queue
  EXPECT_EQ(srd.base_rtt(), 12us);
}

}  // namespace
}  // namespace weft::srd
