// Owns the proof that a sender waits as long as the round-trip time and the silence say.
//
// Three waits with different aims: `retransmit_wait` until a packet counts as lost, `tail_wait`
// until the last packets are asked for by a probe, and the peer's time-out until it counts as dead.
// All follow from measured round trips, within the bounds below.
#include "srd/engine/retransmission_timer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace weft::srd {
namespace {

using namespace std::chrono_literals;

constexpr TimePoint kStart{Duration{1s}};
constexpr RetransmissionTuning kTuning{
    .base_rtt = 10us, .ack_delay = 2us, .min_rto = 30us, .max_rto = 1ms, .peer_timeout = 5ms};

constexpr RetransmissionTuning kPathsOnly{.base_rtt = 10us,
                                          .ack_delay = 2us,
                                          .min_rto = 30us,
                                          .max_rto = 1ms,
                                          .peer_timeout = 5ms,
                                          .losses_are_reported = true};

// Two round trips, the second of a packet that left after the first answer.
RetransmissionTimer measured(Duration rtt) {
  RetransmissionTimer timer(kTuning);
  timer.on_round_trip(kStart, rtt, kTuning);
  timer.on_round_trip(kStart + 2 * rtt, rtt, kTuning);
  return timer;
}

TEST(RetransmissionTimer, KeepsItsWaitsWithinTheirBounds) {
  EXPECT_EQ(measured(1us).retransmit_wait(), kTuning.min_rto);
  EXPECT_EQ(measured(50ms).retransmit_wait(), kTuning.max_rto);
  for (const Duration rtt : {1us, 10us, 100us, 1000us}) {
    EXPECT_LE(measured(rtt).tail_wait(), measured(rtt).retransmit_wait());
  }
}

TEST(RetransmissionTimer, IsTwiceAsPatientUntilQueuesAreKnown) {
  RetransmissionTimer timer(kTuning);
  // The estimate (10 us and four deviations of 5 us) and the delay of an acknowledgement.
  EXPECT_EQ(timer.retransmit_wait(), 2 * (30us + 2us));
  EXPECT_EQ(timer.tail_wait(), timer.retransmit_wait());
  timer.on_round_trip(kStart, 10us, kTuning);
  EXPECT_EQ(timer.retransmit_wait(), 64us);
  EXPECT_EQ(timer.tail_wait(), 17us);
  timer.on_round_trip(kStart + 11us, 10us, kTuning);
  EXPECT_LT(timer.retransmit_wait(), 64us);
}

TEST(RetransmissionTimer, DoublesUntilARoundTripIsMeasured) {
  RetransmissionTimer timer = measured(10us);
  const Duration wait = timer.retransmit_wait();
  timer.on_timeout(kStart, kStart - wait, kTuning);
  EXPECT_EQ(timer.retransmit_wait(), 2 * wait);
  timer.on_timeout(kStart, kStart - wait, kTuning);
  EXPECT_EQ(timer.retransmit_wait(), 4 * wait);
  timer.on_ack(kStart);  // an answer that measures nothing
  EXPECT_FALSE(timer.is_silent());
  EXPECT_EQ(timer.retransmit_wait(), 4 * wait);
  timer.on_round_trip(kStart, 10us, kTuning);
  EXPECT_LE(timer.retransmit_wait(), wait);
}

TEST(RetransmissionTimer, NeverWaitsLongerThanTheLongest) {
  RetransmissionTimer timer = measured(10us);
  for (int i = 0; i < 40; ++i) {
    timer.on_timeout(kStart, kStart, kTuning);
    EXPECT_LE(timer.retransmit_wait(), kTuning.max_rto);
  }
}

TEST(RetransmissionTimer, APeerDiesAfterThreeTimeoutsAndTheTimeout) {
  RetransmissionTimer timer(kTuning);
  TimePoint now = kStart;
  int timeouts = 0;
  while (!timer.has_died(kTuning)) {
    timer.on_timeout(now + 1ms, now, kTuning);
    now += 1ms;
    ++timeouts;
    EXPECT_EQ(timer.has_become_impaired(), timeouts == 3);
  }
  EXPECT_EQ(timeouts, 5);  // 5 ms of silence
}

// One or two may be a process that got no core.
TEST(RetransmissionTimer, TwoTimeoutsAreNotEnoughHoweverLongTheyLast) {
  RetransmissionTuning hasty = kTuning;
  hasty.peer_timeout = 1us;
  RetransmissionTimer timer(hasty);
  timer.on_timeout(kStart + 1ms, kStart, hasty);
  timer.on_timeout(kStart + 2ms, kStart, hasty);
  EXPECT_FALSE(timer.has_died(hasty));
  timer.on_timeout(kStart + 3ms, kStart, hasty);
  EXPECT_TRUE(timer.has_died(hasty));
}

// Each time-out counts for `max_rto` at most, however late it is taken.
TEST(RetransmissionTimer, TimeThatTheProcessSleptThroughIsNoSilence) {
  RetransmissionTimer timer(kTuning);
  for (int i = 1; i <= 4; ++i) {
    timer.on_timeout(kStart + i * 1s, kStart, kTuning);
  }
  EXPECT_FALSE(timer.has_died(kTuning));
}

TEST(RetransmissionTimer, ASignOfLifeEndsTheCount) {
  RetransmissionTimer timer(kTuning);
  for (int i = 0; i < 10; ++i) {
    timer.on_timeout(kStart + 1ms, kStart, kTuning);
    timer.on_timeout(kStart + 2ms, kStart, kTuning);
    timer.on_ack(kStart + 2ms);
    EXPECT_FALSE(timer.has_died(kTuning));
  }
}

TEST(RetransmissionTimer, APacketExpiresAfterItsDepartureAndTheLatestAnswer) {
  RetransmissionTimer timer = measured(10us);
  const Duration wait = timer.retransmit_wait();
  EXPECT_EQ(timer.expiry_of(kStart), kStart + wait);
  timer.on_answer(kStart + 3us);
  EXPECT_EQ(timer.expiry_of(kStart), kStart + 3us + wait);
  EXPECT_EQ(timer.expiry_of(kStart + 9us), kStart + 9us + wait);
}

// RFC 6298, 2.1.
TEST(RetransmissionTimer, BeforeTheFirstRoundTripPacketsAreAskedForAndExpireLate) {
  RetransmissionTimer timer(kTuning);
  const Duration wait = timer.retransmit_wait();
  EXPECT_EQ(timer.expiry_of(kStart), kStart + kTuning.max_rto);
  EXPECT_EQ(timer.first_question_due(kStart), kStart + wait);
  for (int i = 0; i < 2; ++i) {  // the first doubling is there before anything is known
    (void)timer.on_question(kStart + wait);
    timer.on_timeout(kStart + wait, kStart, kTuning);
  }
  EXPECT_EQ(timer.first_question_due(kStart), kStart + wait + 2 * wait);
  EXPECT_EQ(timer.expiry_of(kStart), kStart + kTuning.max_rto);
  timer.on_round_trip(kStart + 3 * wait, 10us, kTuning);
  EXPECT_EQ(timer.expiry_of(kStart + 3 * wait), kStart + 4 * wait);
}

TEST(RetransmissionTimer, ATailIsAskedForOncePerProgress) {
  RetransmissionTimer timer(kTuning);
  timer.on_sent(kStart);
  EXPECT_EQ(timer.tail_probe_due(kTuning), kStart + timer.tail_wait());
  timer.on_tail_probe(kStart + timer.tail_wait());
  EXPECT_EQ(timer.tail_probe_due(kTuning), kNever);
  timer.on_timeout(kStart + 30us, kStart, kTuning);
  EXPECT_EQ(timer.tail_probe_due(kTuning), kNever);
  timer.on_ack(kStart + 50us);
  EXPECT_EQ(timer.tail_probe_due(kTuning), kStart + 50us + timer.tail_wait());
}

// Where queues report what they lose silence is a matter of paths: another one each time, and so
// the first waits do not double.
TEST(RetransmissionTimer, WhereLossesAreReportedATailIsAskedForAgainAfterATimeout) {
  RetransmissionTimer timer(kPathsOnly);
  timer.on_sent(kStart);
  TimePoint now = timer.tail_probe_due(kPathsOnly);
  timer.on_tail_probe(now);
  EXPECT_EQ(timer.tail_probe_due(kPathsOnly), kNever);
  timer.on_timeout(now, kStart, kPathsOnly);
  const Duration wait = timer.tail_wait();
  const auto next_wait = [&] {
    const TimePoint before = now;
    now = timer.tail_probe_due(kPathsOnly);
    timer.on_tail_probe(now);
    return now - before;
  };
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(next_wait(), wait);
  }
  EXPECT_EQ(next_wait(), 2 * wait);
  EXPECT_EQ(next_wait(), 4 * wait);
  timer.on_ack(now + 5us);
  EXPECT_EQ(timer.tail_probe_due(kPathsOnly), now + 5us + wait);
}

// Thousands of peers may be stopped at once, for seconds: probes of their tails must not fill the
// network.
TEST(RetransmissionTimer, ATailOfADeadPeerIsNotAskedForManyTimes) {
  constexpr RetransmissionTuning kProcess{.base_rtt = 20us,
                                          .ack_delay = 2us,
                                          .min_rto = 20ms,
                                          .max_rto = 100ms,
                                          .peer_timeout = 10s,
                                          .losses_are_reported = true};
  RetransmissionTimer timer(kProcess);
  timer.on_round_trip(kStart, 10us, kProcess);
  timer.on_sent(kStart);
  timer.on_tail_probe(kStart + timer.tail_wait());
  timer.on_timeout(kStart + timer.retransmit_wait(), kStart, kProcess);
  int probes = 0;
  for (TimePoint now = kStart; now < kStart + kProcess.peer_timeout; ++probes) {
    now = timer.tail_probe_due(kProcess);
    timer.on_tail_probe(now);
  }
  EXPECT_LE(probes, 150);  // one for each max_rto, and the first ones
}

TEST(RetransmissionTimer, WhereLossesAreReportedAQuestionIsRepeatedBeforeWaitsDouble) {
  const auto waits = [](const RetransmissionTuning& tuning) {
    RetransmissionTimer timer(tuning);
    TimePoint now = kStart;
    std::vector<Duration> waited;
    for (int i = 0; i < 4; ++i) {
      (void)timer.on_question(now);
      waited.push_back(timer.first_question_due(kStart) - now);
      now += waited.back();
      timer.on_timeout(now, kStart, tuning);
    }
    return waited;
  };
  const std::vector<Duration> patient = waits(kTuning);
  EXPECT_THAT(patient, testing::ElementsAre(64us, 64us, 128us, 256us));
  EXPECT_THAT(waits(kPathsOnly), testing::ElementsAre(64us, 64us, 64us, 128us));
}

// A debtor is a peer that owes the bytes of a read: it may have much to do. A question to it must
// be answered soon.
TEST(RetransmissionTimer, ADebtorHasTimeAndAQuestionNot) {
  RetransmissionTimer timer(kTuning);
  timer.on_sent(kStart);
  const Duration wait = timer.retransmit_wait();
  EXPECT_EQ(timer.question_due(), kStart + 4 * wait);
  EXPECT_FALSE(timer.question_open());
  (void)timer.on_question(kStart + 7us);
  EXPECT_TRUE(timer.question_open());
  EXPECT_EQ(timer.question_due(), kStart + 7us + wait);
  EXPECT_EQ(timer.on_question(kStart + 9us), kStart + 7us);
  timer.on_response(kStart + 20us);
  EXPECT_FALSE(timer.question_open());
  EXPECT_EQ(timer.question_due(), kStart + 20us + 4 * wait);
}

TEST(RetransmissionTimer, SilenceBeforeAnExchangeDoesNotCount) {
  RetransmissionTimer timer(kTuning);
  timer.on_timeout(kStart, kStart, kTuning);
  (void)timer.on_question(kStart);
  timer.on_exchange_begins();
  EXPECT_FALSE(timer.is_silent());
  EXPECT_FALSE(timer.question_open());
}

}  // namespace
}  // namespace weft::srd
