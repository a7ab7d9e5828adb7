// Owns the tests of when a sender asks for a grant that may be lost: it has to know its turn.
#include <gtest/gtest.h>

#include "srd/engine/retransmission_timer.hpp"
#include "tests/unit/srd/engine/cc/credit_lab.hpp"

namespace weft::srd {
namespace {

constexpr std::uint32_t kQuantum = 32;

// So many grants, `turn` apart.
void take_turns(CreditBalance& balance, TimePoint from, int count, Duration turn,
                UsualOverdraft& usual) {
  balance.want(1000 * kPacket);
  balance.on_requested(from, kWindow);
  for (int i = 1; i <= count; ++i) {
    balance.on_grant(from + i * turn, static_cast<std::uint32_t>(i) * kQuantum, usual);
  }
}

// Questions within `during` of a sender that is answered each time after a round trip, but granted
// nothing. Before each of them `more` bytes are posted.
int questions(CreditBalance& balance, TimePoint now, Duration during, Bytes more,
              std::uint32_t granted) {
  UsualOverdraft usual;
  const RetransmissionTuning tuning{
      .base_rtt = kRoundTrip, .min_rto = 3 * kRoundTrip, .max_rto = 100ms, .peer_timeout = 500ms};
  RetransmissionTimer timer{tuning};
  timer.on_ack(now);
  int asked = 0;
  for (const TimePoint end = now + during;; ++asked) {
    now = std::max(now, timer.credit_question_due(balance.waits_before_question(),
                                                  balance.turn_due(), tuning));
    if (now > end) {
      return asked;
    }
    balance.want(more);
    if (balance.should_request()) {
      balance.on_requested(now, kWindow);
    }
    (void)timer.on_question(now);
    balance.on_requested(now, kWindow);
    now += kRoundTrip;
    timer.on_ack(now);
    balance.on_grant(now, granted, usual);
    timer.on_round_trip(now, kRoundTrip, tuning);
  }
}

// Grants that become slower are asked for ever less often.
TEST(CreditTurn, BacksOffWhileTheReceiverServesOthers) {
  UsualOverdraft usual;
  CreditBalance balance = balance_of();
  take_turns(balance, time_at(0us), 8, 20us, usual);
  EXPECT_LE(questions(balance, time_at(160us), 10ms, 0, 8 * kQuantum), 10);
}

// Also those of a sender whose user posts a little now and then.
TEST(CreditTurn, BacksOffAlsoWhileMoreIsPosted) {
  UsualOverdraft usual;
  CreditBalance balance = balance_of();
  balance.want(100 * kPacket);
  balance.on_requested(time_at(0us), kWindow);
  balance.on_grant(time_at(20us), kQuantum, usual);
  EXPECT_LE(questions(balance, time_at(20us), 10ms, 256, kQuantum), 10);
}

// Nor while it has never been granted anything.
TEST(CreditTurn, BacksOffBeforeTheFirstGrant) {
  CreditBalance balance = balance_of();
  balance.want(100 * kPacket);
  balance.on_requested(time_at(0us), kWindow);
  EXPECT_LE(questions(balance, time_at(0us), 10ms, 0, 0), 10);
}

// A question that is not answered says nothing: how long silence is waited for is the timer's
// affair, and both together would outlast any outage.
TEST(CreditTurn, SilenceMakesNoWaitLonger) {
  CreditBalance balance = balance_of();
  balance.want(100 * kPacket);
  for (int i = 0; i < 9; ++i) {
    balance.on_requested(time_at(i * 100us), kWindow);
  }
  EXPECT_EQ(balance.waits_before_question(), 1);
}

// Nor do the questions of a sender that waits for its turn tell of the next request, which is lost
// while grants for the one before still come.
TEST(CreditTurn, QuestionsWhileARequestIsHeardDoNotPutOffThoseAboutTheNext) {
  UsualOverdraft usual;
  CreditBalance balance = balance_of();
  balance.want(1000 * kPacket);
  for (int i = 0; i < 4; ++i) {  // not heard yet, for all that is known
    balance.on_requested(time_at(0us), kWindow);
    balance.on_grant(time_at(0us), 0, usual);
  }
  balance.on_grant(time_at(20us), kQuantum, usual);
  for (int i = 1; i <= 8; ++i) {
    balance.on_requested(time_at(i * 100us), kWindow);
    balance.on_grant(time_at(i * 100us + kRoundTrip), kQuantum, usual);
  }
  balance.want(20 * kPacket);
  ASSERT_FALSE(balance.should_request()) << "it is a question that asks for more";
  balance.on_requested(time_at(1000us), kWindow);
  for (std::uint32_t granted = 2; granted <= 1000 * kPacket / kBytesPerCredit / kQuantum;
       ++granted) {
    balance.on_grant(time_at(1000us + granted * 20us), granted * kQuantum, usual);
    (void)send_all(balance);
  }
  ASSERT_TRUE(balance.wants_more());
  EXPECT_EQ(balance.turn_due(), TimePoint::min()) << "the question may be lost";
  EXPECT_EQ(balance.waits_before_question(), 1);
}

// Nothing is waited for between two messages, also if the last grant for the first one was lost,
// which nobody missed.
TEST(CreditTurn, APauseIsNoTurnAlsoIfTheLastGrantWasLost) {
  UsualOverdraft usual;
  CreditBalance balance = balance_of();
  balance.want(2 * kPacket);  // leaves at once
  balance.on_requested(time_at(0us), kWindow);
  balance.on_sent(2 * kPacket);
  ASSERT_FALSE(balance.wants_more());
  balance.want(100 * kPacket);
  balance.on_requested(time_at(0us) + 1s, kWindow);
  balance.on_grant(time_at(10us) + 1s, kQuantum, usual);
  EXPECT_LE(balance.turn_due(), time_at(10us) + 1s + 2 * kRoundTrip);
}

// A message that is cancelled while it waits for grants, and an hour.
TEST(CreditTurn, APauseIsNoTurnAfterACancelledMessage) {
  UsualOverdraft usual;
  CreditBalance balance = balance_of();
  take_turns(balance, time_at(0us), 8, 20us, usual);
  balance.give_up(1000 * kPacket);
  balance.want(100 * kPacket);
  balance.on_requested(time_at(0us) + 3600s, kWindow);
  balance.on_grant(time_at(10us) + 3600s, 9 * kQuantum, usual);
  EXPECT_LE(balance.turn_due(), time_at(10us) + 3600s + 40us);
}

// The wait that counts is the whole one, not what was left of it after the latest question.
TEST(CreditTurn, AQuestionDoesNotMakeTheTurnShorter) {
  UsualOverdraft usual;
  CreditBalance balance = balance_of();
  take_turns(balance, time_at(0us), 1, 20us, usual);
  for (const Duration at : {60us, 140us}) {
    balance.on_requested(time_at(at), kWindow);  // a question, and its answer
    balance.on_grant(time_at(at + kRoundTrip), kQuantum, usual);
  }
  balance.on_grant(time_at(210us), 2 * kQuantum, usual);
  EXPECT_GE(balance.turn_due(), time_at(210us) + 190us) << "less than the turn that was seen";
}

// Questions about a request that may be lost are no turns.
TEST(CreditTurn, WhatIsAskedInDoubtIsNoTurn) {
  UsualOverdraft usual;
  CreditBalance balance = balance_of();
  balance.want(100 * kPacket);
  balance.on_requested(time_at(0us), kWindow);
  balance.on_requested(time_at(100us), kWindow);
  balance.on_grant(time_at(110us), 1, usual);
  EXPECT_EQ(balance.turn_due(), time_at(130us));
}

// Acknowledgements come all the time, and most of them answer no question.
TEST(CreditTurn, WhatAnswersNoQuestionIsNoTurn) {
  UsualOverdraft usual;
  CreditBalance balance = balance_of();
  take_turns(balance, time_at(0us), 1, 20us, usual);
  balance.on_grant(time_at(50us), kQuantum, usual);
  EXPECT_EQ(balance.turn_due(), time_at(60us));
  balance.on_requested(time_at(60us), kWindow);
  balance.on_grant(time_at(65us), kQuantum - 1, usual);  // on its way since before the grant
  EXPECT_EQ(balance.turn_due(), time_at(60us));
  balance.on_grant(time_at(70us), kQuantum, usual);  // 50 us, of which 40 are believed
  EXPECT_EQ(balance.turn_due(), time_at(100us));
  balance.on_grant(time_at(80us), kQuantum, usual);
  EXPECT_EQ(balance.turn_due(), time_at(100us));
  balance.on_requested(time_at(90us), kWindow);  // and this one is answered by a grant
  balance.on_grant(time_at(100us), 2 * kQuantum, usual);
  EXPECT_EQ(balance.turn_due(), time_at(260us));
  balance.on_grant(time_at(250us), 2 * kQuantum, usual);
  EXPECT_EQ(balance.turn_due(), time_at(260us));
}

TEST(CreditTurn, AQuestionThatAsksForMoreIsOneAllTheSame) {
  UsualOverdraft usual;
  CreditBalance balance = balance_of();
  take_turns(balance, time_at(0us), 1, 20us, usual);
  balance.want(kPacket);
  ASSERT_FALSE(balance.should_request()) << "there is enough to go on with";
  balance.on_requested(time_at(60us), kWindow);
  balance.on_grant(time_at(70us), kQuantum, usual);
  EXPECT_EQ(balance.turn_due(), time_at(100us));
}

// Two messages after a pause, and a grant for those before it.
TEST(CreditTurn, APauseIsNoTurnWhateverComesFirstAfterIt) {
  UsualOverdraft usual;
  CreditBalance balance = balance_of();
  take_turns(balance, time_at(0us), 8, 20us, usual);
  balance.give_up(1000 * kPacket);
  balance.want(kPacket);
  balance.want(kPacket);
  balance.on_grant(time_at(0us) + 1s, 9 * kQuantum, usual);
  EXPECT_EQ(balance.turn_due(), time_at(0us) + 1s + 2 * 20us);
  balance.give_up(2 * kPacket);
  balance.want(kPacket);
  balance.want(kPacket);
  balance.on_requested(time_at(0us) + 2s, kWindow);
  EXPECT_EQ(balance.turn_due(), time_at(0us) + 2s + 2 * 20us) << "the wait begins here";
  balance.on_grant(time_at(20us) + 2s, 10 * kQuantum, usual);
  EXPECT_EQ(balance.turn_due(), time_at(20us) + 2s + 2 * 20us);
}

// And after that grant the wait for the next one is a wait again.
TEST(CreditTurn, AGrantAfterAPauseBeginsAWait) {
  UsualOverdraft usual;
  CreditBalance balance = balance_of();
  take_turns(balance, time_at(0us), 8, 20us, usual);
  balance.on_requested(time_at(170us), kWindow);  // a question that is not answered any more
  balance.give_up(1000 * kPacket);
  balance.want(100 * kPacket);
  balance.on_grant(time_at(0us) + 1s, 9 * kQuantum, usual);
  balance.on_grant(time_at(30us) + 1s, 9 * kQuantum, usual);
  EXPECT_EQ(balance.turn_due(), time_at(0us) + 1s + 2 * 20us) << "nobody has asked";
  balance.on_grant(time_at(35us) + 1s, 10 * kQuantum, usual);
  EXPECT_EQ(balance.turn_due(), time_at(35us) + 1s + 2 * 35us);
}

// All that was asked for has been granted, and is held back by congestion control.
TEST(CreditTurn, NobodyWaitsForGrantsWhoHasThem) {
  UsualOverdraft usual;
  CreditBalance balance = balance_of();
  balance.want(8 * kPacket);
  balance.on_requested(time_at(0us), kWindow);
  balance.on_grant(time_at(10us), kQuantum, usual);
  balance.want(8 * kPacket);
  balance.on_requested(time_at(1000us), kWindow);
  balance.on_grant(time_at(1010us), 2 * kQuantum, usual);
  EXPECT_EQ(balance.turn_due(), time_at(1030us));
}

// More that is asked for does not put the next question off.
TEST(CreditTurn, AsMuchAsIsPostedTheWaitGoesOn) {
  UsualOverdraft usual;
  CreditBalance balance = balance_of();
  balance.want(10 * kPacket);
  balance.on_requested(time_at(0us), kWindow);
  balance.on_grant(time_at(10us), 1, usual);
  balance.on_sent(9 * kPacket);
  balance.want(10 * kPacket);
  ASSERT_TRUE(balance.should_request());
  balance.on_requested(time_at(25us), kWindow);
  EXPECT_EQ(balance.turn_due(), time_at(30us));
}

TEST(CreditTurn, ALongTurnIsKnownAsWell) {
  UsualOverdraft usual;
  CreditBalance balance = balance_of();
  take_turns(balance, time_at(0us), 20, 500ms, usual);
  EXPECT_EQ(balance.turn_due(), time_at(0us) + 11s);
  CreditBalance another = balance_of();
  take_turns(another, time_at(0us), 20, 5s, usual);
  EXPECT_EQ(another.turn_due(), time_at(0us) + 102s) << "a second is the longest";
}

// The timer's part: not before the wait for an answer nor the turn, and not after max_rto.
TEST(CreditTurn, TheTurnIsBoundedByTheTimer) {
  const RetransmissionTuning tuning{
      .base_rtt = kRoundTrip, .min_rto = 3 * kRoundTrip, .max_rto = 100ms, .peer_timeout = 500ms};
  RetransmissionTimer timer{tuning};
  const TimePoint ack = time_at(1s);
  timer.on_ack(ack);
  const TimePoint soon = timer.credit_question_due(1, TimePoint::min(), tuning);
  EXPECT_GT(soon, ack);
  EXPECT_EQ(timer.credit_question_due(1, ack + 1ns, tuning), soon);
  EXPECT_EQ(timer.credit_question_due(1, ack + 50ms, tuning), ack + 50ms);
  EXPECT_EQ(timer.credit_question_due(1, ack + 1s, tuning), ack + 100ms);
  (void)timer.on_question(ack + 10us);  // and an open one waits for no turn
  EXPECT_LT(timer.credit_question_due(1, ack + 50ms, tuning), ack + 1ms);
}

// Whatever the clock does, the wait is a number of nanoseconds that does not wrap.
TEST(CreditTurn, SurvivesAnyJumpOfTheClock) {
  for (const Duration jump : {Duration{1s}, Duration{5s}, Duration{3600s}, Duration{-5s}}) {
    UsualOverdraft usual;
    CreditBalance balance = balance_of();
    take_turns(balance, time_at(10s), 3, 20us, usual);
    const TimePoint late = time_at(10s) + 60us + jump;
    balance.on_grant(late, 4 * kQuantum, usual);
    EXPECT_GE(balance.turn_due(), late);
    EXPECT_LE(balance.turn_due() - late, 2 * 2 * 20us);
  }
}

}  // namespace
}  // namespace weft::srd
