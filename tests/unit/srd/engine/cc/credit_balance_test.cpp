// Owns the tests of receiver credits: what a sender may send, and how much it asks for.
#include "srd/engine/cc/credit_balance.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "srd/base/rng.hpp"
#include "tests/unit/srd/engine/cc/credit_lab.hpp"

namespace weft::srd {
namespace {

// A message of so many bytes to a receiver that grants all of them a round trip later.
void exchange(CreditBalance& balance, TimePoint at, Bytes bytes, UsualOverdraft& usual) {
  balance.want(bytes);
  balance.on_requested(at, kWindow);
  (void)send_all(balance);
  balance.on_grant(at + kRoundTrip, balance.demand(), usual);
  (void)send_all(balance);
}

// [wire 4.8] A thousand senders may begin at once: next to nothing of what would be over before the
// receiver says whether it is free.
TEST(CreditBalance, SendsTwoPacketsOfAShortMessageToAStranger) {
  CreditBalance balance = balance_of();
  balance.want(100 * kPacket);
  EXPECT_EQ(send_all(balance), 2 * kPacket);
}

// A long message hears soon enough.
TEST(CreditBalance, RisksItsShareOfTheWindowForALongMessageToAStranger) {
  CreditBalance balance = balance_of({}, kWindow / 2);
  balance.want(85 * kPacket);
  EXPECT_EQ(send_all(balance), 5 * kPacket);
  balance.want(1000 * kPacket);
  EXPECT_EQ(send_all(balance), kWindow / 2 - 5 * kPacket);
}

// [wire 4.8] Grants for what has left as an overdraft make room for the rest.
TEST(CreditBalance, AsksForAllThatItWantsAlsoForWhatHasLeft) {
  UsualOverdraft usual;
  CreditBalance balance = balance_of();
  balance.want(10 * kPacket);
  EXPECT_EQ(send_all(balance), 2 * kPacket);
  ASSERT_TRUE(balance.should_request());
  balance.on_requested(time_at(0us), kWindow);
  EXPECT_EQ(balance.demand(), 10 * kPacket / 256);
  EXPECT_FALSE(balance.should_request());
  balance.on_grant(time_at(10us), 4, usual);
  EXPECT_EQ(send_all(balance), kPacket);
  balance.want(256);
  EXPECT_TRUE(balance.should_request());
  EXPECT_EQ(balance.demand(), 41U);
}

// Grants are totals: a late or a repeated one must add nothing.
TEST(CreditBalance, LateAndRepeatedGrantsAddNothing) {
  UsualOverdraft usual;
  CreditBalance balance = balance_of();
  balance.want(100 * kPacket);
  balance.on_requested(time_at(0us), kWindow);
  EXPECT_EQ(send_all(balance), 2 * kPacket);
  balance.on_grant(time_at(10us), 8, usual);
  EXPECT_EQ(send_all(balance), 2 * kPacket);
  balance.on_grant(time_at(10us), 4, usual);
  balance.on_grant(time_at(10us), 8, usual);
  EXPECT_EQ(send_all(balance), 0U);
}

// Packets are whole, and a receiver grants any number of bytes: what is less than half a packet
// waits for the next grant, what is more leaves with this one.
TEST(CreditBalance, RoundsToTheNearestPacket) {
  UsualOverdraft usual;
  for (const Bytes granted : {kPacket / 4, 3 * kPacket / 4}) {
    CreditBalance balance = balance_of();
    balance.want(100 * kPacket);
    balance.on_requested(time_at(0us), kWindow);
    EXPECT_EQ(send_all(balance), 2 * kPacket);
    balance.on_grant(time_at(10us), static_cast<std::uint32_t>(granted / 256), usual);
    EXPECT_EQ(send_all(balance), granted < kPacket / 2 ? 0U : kPacket);
  }
}

// The last packet of a message is short, and a grant for it must be enough.
TEST(CreditBalance, WhatIsLeftOfAMessageNeedsNoMoreThanItself) {
  UsualOverdraft usual;
  CreditBalance balance = balance_of();
  balance.want(4 * kPacket + 1);
  balance.on_requested(time_at(0us), kWindow);
  EXPECT_EQ(send_all(balance), 2 * kPacket);
  balance.on_grant(time_at(10us), balance.demand(), usual);
  EXPECT_TRUE(balance.may_send());
  balance.on_sent(2 * kPacket);
  EXPECT_TRUE(balance.may_send());
  balance.on_sent(1);
  EXPECT_FALSE(balance.wants_more());
}

// What the receiver has granted within a round trip leaves at once the next time.
TEST(CreditBalance, OverdrawsWhatWasGrantedInARoundTrip) {
  UsualOverdraft usual;
  CreditBalance balance = balance_of();
  exchange(balance, time_at(0us), 16 * kPacket, usual);
  EXPECT_EQ(balance.overdraft(), 16 * kPacket);
  balance.want(16 * kPacket);
  EXPECT_EQ(send_all(balance), 16 * kPacket);
}

// A few bytes that were granted at once say nothing against what a stranger may be sent.
TEST(CreditBalance, ATinyMessageDoesNotMakeTheNextOneWait) {
  UsualOverdraft usual;
  CreditBalance balance = balance_of();
  balance.want(8);
  balance.on_requested(time_at(0us), kWindow);
  balance.on_sent(8);
  balance.on_grant(time_at(10us), balance.demand(), usual);
  EXPECT_EQ(balance.overdraft(), 2 * kPacket);
  EXPECT_FALSE(usual.known());
}

// Of many senders each has its turn, and what it may be ahead by is its part of the link.
TEST(CreditBalance, AmongManyItOverdrawsItsPart) {
  UsualOverdraft usual;
  CreditBalance balance = balance_of();
  balance.want(1000 * kPacket);
  balance.on_requested(time_at(0us), kWindow);
  (void)send_all(balance);
  for (std::uint32_t turn = 1; turn < 10; ++turn) {  // 8 KiB each 40 us
    balance.on_grant(time_at(turn * 40us), turn * 32, usual);
    (void)send_all(balance);
  }
  EXPECT_EQ(balance.overdraft(), 2 * kPacket);
}

// A sender that asks for little at a time learns nothing of how much it could have had.
TEST(CreditBalance, AReceiverThatGrantsAllIsNotTakenForASlowOne) {
  UsualOverdraft usual;
  CreditBalance balance = balance_of();
  exchange(balance, time_at(0us), 64 * kPacket, usual);
  ASSERT_EQ(balance.overdraft(), 64 * kPacket);
  for (int i = 1; i < 20; ++i) {  // a packet each 4 us, each granted 10 us later
    const TimePoint now = time_at(100us + i * 4us);
    balance.want(kPacket);
    balance.on_requested(now, kWindow);
    (void)send_all(balance);
    if (i > 2) {
      balance.on_grant(
          now + 2us, static_cast<std::uint32_t>(static_cast<Bytes>(62 + i) * kPacket / 256), usual);
    }
  }
  EXPECT_EQ(balance.overdraft(), 64 * kPacket);
}

// Another limit holds it back: that the receiver grants more is no reason to send more unasked.
TEST(CreditBalance, TheOverdraftGrowsOnlyWhereItIsInTheWay) {
  UsualOverdraft usual;
  CreditBalance balance = balance_of();
  exchange(balance, time_at(0us), 4 * kPacket, usual);
  ASSERT_EQ(balance.overdraft(), 4 * kPacket);
  balance.want(100 * kPacket);
  balance.on_requested(time_at(100us), kWindow);
  balance.on_grant(time_at(110us), balance.demand(), usual);
  EXPECT_EQ(balance.overdraft(), 4 * kPacket);
  balance.on_sent(100 * kPacket);
  balance.want(100 * kPacket);
  balance.on_requested(time_at(200us), kWindow);
  (void)send_all(balance);
  balance.on_grant(time_at(210us), balance.demand(), usual);
  EXPECT_EQ(balance.overdraft(), 100 * kPacket);
}

TEST(CreditBalance, TheOverdraftDoesNotGrowWhileSomethingIsLost) {
  UsualOverdraft usual;
  CreditBalance balance = balance_of();
  balance.want(16 * kPacket);
  balance.on_requested(time_at(0us), kWindow);
  (void)send_all(balance);
  balance.on_grant(time_at(10us), 8 * kPacket / 256, usual);
  (void)send_all(balance);
  balance.on_lost(kPacket);
  const Bytes before = balance.overdraft();
  balance.on_grant(time_at(11us), balance.demand(), usual);
  EXPECT_EQ(balance.overdraft(), before);
}

// A new receiver, of an engine whose receivers have granted: as much as was usual, as long as the
// line is not shared with too many.
TEST(CreditBalance, AStrangerIsTrustedWithWhatIsUsual) {
  UsualOverdraft usual;
  CreditBalance first = balance_of();
  exchange(first, time_at(0us), 16 * kPacket, usual);
  CreditBalance second = balance_of(usual);
  second.want(100 * kPacket);
  EXPECT_EQ(send_all(second), 16 * kPacket);
  CreditBalance third = balance_of(usual, 8 * kPacket);
  third.want(1000 * kPacket);
  EXPECT_EQ(send_all(third), 8 * kPacket);
}

// What it may send unasked to all its peers together is what its own line carries meanwhile.
TEST(CreditBalance, TheOverdraftIsNoMoreThanTheShareOfTheLine) {
  UsualOverdraft usual;
  CreditBalance balance = balance_of();
  balance.want(64 * kPacket);
  balance.on_requested(time_at(0us), 8 * kPacket);
  (void)send_all(balance);
  balance.on_grant(time_at(10us), balance.demand(), usual);
  EXPECT_EQ(balance.overdraft(), 8 * kPacket);
}

TEST(CreditBalance, TheUsualOverdraftFollowsWhatIsSeen) {
  UsualOverdraft usual;
  EXPECT_FALSE(usual.known());
  usual.add(80'000);
  EXPECT_EQ(usual.get(), 80'000U);
  usual.add(0);
  EXPECT_EQ(usual.get(), 70'000U);
  for (int i = 0; i < 100; ++i) {
    usual.add(16'000);
  }
  EXPECT_NEAR(static_cast<double>(usual.get()), 16'000, 8);
}

// What was overdrawn and lost was too much, and a thousand senders would send it again and again.
// The grants for it are under way already: asked for once more it would take the link twice.
TEST(CreditBalance, WhatWasOverdrawnAndLostWaitsForItsGrants) {
  UsualOverdraft usual;
  CreditBalance balance = balance_of();
  balance.want(10 * kPacket);
  balance.on_requested(time_at(0us), kWindow);
  EXPECT_EQ(send_all(balance), 2 * kPacket);
  balance.on_lost(kPacket);
  balance.on_lost(kPacket);
  EXPECT_FALSE(balance.may_send());
  EXPECT_FALSE(balance.should_request());
  EXPECT_EQ(balance.overdraft(), 0U);
  balance.on_grant(time_at(10us), 4, usual);
  EXPECT_EQ(send_all(balance), kPacket);
  balance.on_grant(time_at(40us), balance.demand(), usual);
  EXPECT_EQ(send_all(balance), 9 * kPacket);  // all ten, and no more were granted
  EXPECT_FALSE(balance.should_request());
}

// What was granted for it has been used up.
TEST(CreditBalance, WhatWasGrantedAndLostIsAskedForAnew) {
  UsualOverdraft usual;
  CreditBalance balance = balance_of();
  exchange(balance, time_at(0us), 10 * kPacket, usual);
  const Bytes before = balance.overdraft();
  balance.on_lost(kPacket);
  EXPECT_EQ(balance.overdraft(), before);
  ASSERT_TRUE(balance.should_request());
  EXPECT_EQ(balance.demand(), 11 * kPacket / 256);
  EXPECT_TRUE(balance.may_send());
}

// The link must not be held for bytes that nobody wants any more.
TEST(CreditBalance, WhatWasNotAskedForYetIsTakenBack) {
  CreditBalance balance = balance_of();
  balance.want(Bytes{1} << 30);
  balance.on_requested(time_at(0us), kWindow);
  const Bytes asked = Bytes{balance.demand()} * 256;
  balance.give_up(Bytes{1} << 30);
  EXPECT_FALSE(balance.wants_more());
  EXPECT_FALSE(balance.should_request());
  balance.want(10 * kPacket);
  balance.on_requested(time_at(1us), kWindow);
  EXPECT_LE(Bytes{balance.demand()} * 256, asked + 10 * kPacket + 256);
}

// Work ends while an overdraft is open: its grants come, and the next message is not stuck.
TEST(CreditBalance, AfterGivingUpWithAnOverdraftTheNextMessageGetsOn) {
  UsualOverdraft usual;
  CreditBalance balance = balance_of();
  balance.want(100 * kPacket);
  balance.on_requested(time_at(0us), kWindow);
  EXPECT_EQ(send_all(balance), 2 * kPacket);
  balance.give_up(98 * kPacket);
  balance.want(5 * kPacket);
  balance.on_requested(time_at(1us), kWindow);
  balance.on_grant(time_at(10us), balance.demand(), usual);
  EXPECT_EQ(send_all(balance), 5 * kPacket);
  EXPECT_FALSE(balance.should_request());
}

// Each packet that is lost is wanted again: no request for each of them.
TEST(CreditBalance, DoesNotAskWhileThereIsEnoughToGoOnWith) {
  UsualOverdraft usual;
  CreditBalance balance = balance_of();
  balance.want(4 * kWindow);
  balance.on_requested(time_at(0us), kWindow);
  balance.on_grant(time_at(10us), balance.demand(), usual);
  balance.on_sent(kPacket);
  balance.on_lost(kPacket);
  EXPECT_FALSE(balance.should_request());
  balance.on_sent(2 * kWindow);
  EXPECT_TRUE(balance.should_request());
}

// Of a slow line that holds no two packets an eighth of what is asked for is less than half a
// packet, which may be what the next one lacks.
TEST(CreditBalance, AsksWhereAllIsGrantedAndNotEnough) {
  constexpr Bytes kAll = 1000;  // that the line holds: a packet
  constexpr Bytes kShare = kAll / 64;
  UsualOverdraft usual;
  CreditBalance balance{
      {.packet = kAll, .window = kAll, .share = kShare, .first_grant = kRoundTrip}, usual};
  const auto send = [&] {
    Bytes packets = 0;
    for (; balance.wants_more() && balance.may_send(); ++packets) {
      balance.on_sent(kAll);
    }
    return packets;
  };
  balance.want(1000 * kAll);
  for (Bytes lost = send(); lost != 0; --lost) {  // nothing is overdrawn any more
    balance.on_lost(kAll);
  }
  TimePoint now = time_at(0us);
  while (balance.wants_more()) {
    ASSERT_TRUE(balance.should_request());
    balance.on_requested(now, kShare);
    now += kRoundTrip;
    balance.on_grant(now, balance.demand(), usual);
    (void)send();
  }
}

// A request that is lost is never granted; one whose turn is far away will be.
TEST(CreditBalance, IsImpatientWhileARequestMayBeLost) {
  UsualOverdraft usual;
  CreditBalance balance = balance_of();
  balance.want(10 * kPacket);
  balance.on_requested(time_at(0us), kWindow);
  EXPECT_EQ(balance.waits_before_question(), 1);
  for (int i = 1; i < 300; ++i) {
    balance.on_requested(time_at(20us), kWindow);
    balance.on_grant(time_at(20us), 0, usual);
    ASSERT_EQ(balance.waits_before_question(), 1 << std::min(i, 8)) << "after " << i << " answers";
  }
  balance.want(1);
  balance.on_requested(time_at(20us), kWindow);
  EXPECT_EQ(balance.waits_before_question(), 1) << "of a request for more nothing is known yet";
  balance.on_grant(time_at(30us), 1, usual);
  EXPECT_EQ(balance.waits_before_question(), 1) << "it was heard";
  EXPECT_EQ(balance.turn_due(), time_at(50us)) << "and its turn came after 10 us";
  // So was the request for more, if anything beyond the one before is granted.
  const std::uint32_t before = balance.demand();
  balance.want(10 * kPacket);
  balance.on_requested(time_at(40us), kWindow);
  EXPECT_GT(balance.turn_due(), time_at(40us)) << "grants for the one before are to come";
  balance.on_grant(time_at(50us), before, usual);
  EXPECT_EQ(balance.waits_before_question(), 1);
  EXPECT_EQ(balance.turn_due(), TimePoint::min()) << "the request for more may be lost";
  balance.on_grant(time_at(60us), before + 1, usual);
  EXPECT_EQ(balance.waits_before_question(), 1);
  EXPECT_GT(balance.turn_due(), time_at(60us));
}

// Of many senders each waits until it is its turn again; what is later than that may be lost.
TEST(CreditBalance, ExpectsGrantsAsOftenAsTheyCome) {
  UsualOverdraft usual;
  CreditBalance balance = balance_of();
  balance.want(100 * kPacket);
  balance.on_requested(time_at(0us), kWindow);
  for (std::uint32_t turn = 1; turn <= 10; ++turn) {
    balance.on_grant(time_at(turn * 100us), turn, usual);
  }
  EXPECT_EQ(balance.turn_due(), time_at(1200us));
  balance.on_requested(time_at(1190us), kWindow);  // a question ...
  EXPECT_EQ(balance.turn_due(), time_at(1200us));
  balance.on_grant(time_at(1200us), 10, usual);  // ... and the answer: not yet
  EXPECT_EQ(balance.turn_due(), time_at(1400us)) << "the turn is as long as it has waited";
  balance.on_grant(time_at(1250us), 11, usual);
  EXPECT_EQ(balance.turn_due(), time_at(1250us + 2 * 250us));
  balance.on_grant(time_at(1350us), 12, usual);
  EXPECT_EQ(balance.turn_due(), time_at(1350us + 2 * 218'750ns)) << "an eighth less each time";
  for (std::uint32_t turn = 2; turn <= 10; ++turn) {
    balance.on_grant(time_at(1250us + turn * 100us), 11 + turn, usual);
  }
  EXPECT_LT(balance.turn_due(), time_at(2250us + 2 * 125us)) << "long waits are forgotten";
  EXPECT_GE(balance.turn_due(), time_at(2250us + 200us));
}

// One long wait may have been a sleep.
TEST(CreditBalance, BelievesInATurnTwiceAsLongAsTheOneBefore) {
  UsualOverdraft usual;
  CreditBalance balance = balance_of();
  balance.want(100 * kPacket);
  balance.on_requested(time_at(0us), kWindow);
  balance.on_grant(time_at(0us) + 1s, 1, usual);
  EXPECT_EQ(balance.turn_due(), time_at(0us) + 1s + 2 * 4 * kRoundTrip);
  balance.on_grant(time_at(0us) + 2s, 2, usual);
  EXPECT_EQ(balance.turn_due(), time_at(0us) + 2s + 2 * 8 * kRoundTrip);
}

// Nothing is waited for between two messages.
TEST(CreditBalance, APauseIsNoTurn) {
  UsualOverdraft usual;
  CreditBalance balance = balance_of();
  exchange(balance, time_at(0us), 16 * kPacket, usual);
  balance.want(100 * kPacket);
  balance.on_requested(time_at(1000us), kWindow);
  balance.on_grant(time_at(1010us), balance.demand() / 2, usual);
  EXPECT_EQ(balance.turn_due(), time_at(1030us));
}

TEST(CreditBalance, WorksAcrossTheWrapOfTheCounts) {
  constexpr Bytes kLarge = Bytes{64} << 30;
  constexpr std::uint32_t kStep = 0x30000000;
  UsualOverdraft usual;
  CreditBalance balance{
      {.packet = kPacket, .window = kLarge, .share = kLarge, .first_grant = kRoundTrip}, usual};
  Bytes sent = 0;
  std::uint32_t granted = 0;
  for (int i = 0; i < 20; ++i) {
    const TimePoint now = time_at(i * 1ms);
    balance.want(Bytes{kStep} * 256);
    ASSERT_TRUE(balance.should_request());
    balance.on_requested(now, kLarge);
    balance.on_sent(2 * kPacket);
    balance.on_lost(2 * kPacket);  // wherever the counts stand
    granted += kStep;
    ASSERT_EQ(balance.demand(), granted);
    balance.on_grant(now + 1s, granted, usual);
    ASSERT_TRUE(balance.may_send());
    balance.on_sent(Bytes{kStep} * 256);
    ASSERT_FALSE(balance.wants_more());
    balance.on_grant(now + 1s, granted - 1, usual);
    sent += Bytes{kStep} * 256;
  }
  EXPECT_GT(sent, Bytes{1} << 40);
}

// More than half of what the counts on the wire can tell apart.
TEST(CreditBalance, AsksForAnyNumberOfBytesInSteps) {
  for (const Bytes wanted : {Bytes{1} << 39, Bytes{600} << 30, Bytes{5} << 40}) {
    UsualOverdraft usual;
    CreditBalance balance{{.packet = 0, .window = Bytes{4} << 30, .share = 0, .first_grant = 1us},
                          usual};
    balance.want(wanted);
    std::uint32_t granted = 0;
    Bytes sent = 0;
    int requests = 0;
    while (sent != wanted) {
      ASSERT_TRUE(balance.should_request());
      ASSERT_LT(++requests, 1000);
      balance.on_requested(time_at(0us), kWindow);
      const std::uint32_t step = balance.demand() - granted;
      ASSERT_GT(static_cast<std::int32_t>(step), 0);
      granted += step;
      balance.on_grant(time_at(1s), granted, usual);
      balance.on_sent(Bytes{step} * 256);
      sent += Bytes{step} * 256;
    }
    EXPECT_FALSE(balance.should_request());
  }
}

// A demand cannot be taken back: what was wanted and is given up may hold the link for a few round
// trips, not for a gigabyte.
TEST(CreditBalance, AsksForNoMoreThanAFewWindows) {
  UsualOverdraft usual;
  CreditBalance balance = balance_of();
  balance.want(Bytes{1} << 30);
  std::uint32_t granted = 0;
  for (int requests = 0; requests < 100; ++requests) {
    ASSERT_TRUE(balance.should_request());
    balance.on_requested(time_at(requests * 1ms), kWindow);
    const std::uint32_t demand = balance.demand();
    EXPECT_LE((demand - granted) * 256, 16 * kWindow + 256);
    // A window and more is known to the receiver when it is asked again.
    while (!balance.should_request()) {
      balance.on_grant(time_at(requests * 1ms), ++granted, usual);
      (void)send_all(balance);
    }
    EXPECT_GE((demand - granted) * 256 + 256, kWindow);
  }
}

// What a receiver grants to a sender that serves many others is not used soon, and its other
// senders could have used it.
TEST(CreditBalance, AsksForItsShareOfTheLine) {
  for (const Bytes sharers : {1, 4, 32, 1000}) {
    UsualOverdraft usual;
    CreditBalance balance = balance_of({}, kWindow / sharers);
    balance.want(Bytes{1} << 30);
    ASSERT_TRUE(balance.should_request());
    balance.on_requested(time_at(0us), kWindow / sharers);
    const Bytes asked = Bytes{balance.demand()} * 256;
    EXPECT_LE(asked, std::max(16 * kWindow / sharers, 2 * kWindow) + 256);
    EXPECT_GE(asked, 2 * kWindow);
    // And again before it has been used up, whatever the share.
    balance.on_grant(time_at(10us), balance.demand(), usual);
    balance.on_sent(asked - 2 * kWindow / sharers);
    EXPECT_TRUE(balance.should_request());
  }
}

// Whatever is posted, lost, given up and late: what has left is never more than what was granted
// and the overdraft, all that is wanted leaves in the end, and no more is asked for than was wanted
// and what was lost after it was granted.
TEST(CreditBalance, KeepsItsPromisesWhateverHappens) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    UsualOverdraft usual;
    CreditBalance balance = balance_of(usual, kWindow / rng.between(1, 8));
    TimePoint now = time_at(0us);
    Bytes waiting = 0;  // to be sent, for the first time or again
    Bytes under_way = 0;
    Bytes spent = 0;
    Bytes wanted = 0;
    Bytes granted = 0;
    Bytes asked = 0;
    for (int step = 0; step < 2000 || waiting != 0; ++step) {
      ASSERT_LT(step, 100'000) << "stuck";
      now += Duration{rng.below(4000)};
      const bool more = step < 2000;
      if (more && rng.chance(0.05)) {
        const Bytes bytes = rng.between(1, 40) * kPacket;
        balance.want(bytes);
        waiting += bytes;
        wanted += bytes;
      }
      if (more && waiting != 0 && rng.chance(0.01)) {
        balance.give_up(kPacket);
        waiting -= kPacket;
        const Bytes unasked = std::min(kPacket, wanted - std::min(wanted, std::max(asked, spent)));
        wanted -= unasked;
        spent += kPacket - unasked;
      }
      if (balance.should_request()) {
        balance.on_requested(now, kWindow);
        asked = Bytes{balance.demand()} * 256;
      }
      if (waiting != 0 && balance.may_send()) {
        ASSERT_TRUE(balance.wants_more());
        ASSERT_LE(spent, granted + balance.overdraft() + kPacket / 2);
        balance.on_sent(kPacket);
        spent += kPacket;
        waiting -= kPacket;
        under_way += kPacket;
      }
      if (under_way != 0) {
        under_way -= kPacket;
        if (more && rng.chance(0.2)) {
          balance.on_lost(kPacket);
          waiting += kPacket;
          const Bytes overdrawn = std::min(kPacket, spent - std::min(spent, granted));
          spent -= overdrawn;
          wanted += kPacket - overdrawn;
        }
      }
      const Bytes open = asked - granted;
      if (open != 0 && rng.chance(0.5)) {
        granted += rng.between(1, std::min<Bytes>(open / 256, 32)) * 256;
        balance.on_grant(now, static_cast<std::uint32_t>(granted / 256), usual);
      }
      ASSERT_LE(Bytes{balance.demand()} * 256, wanted + 256);
    }
    EXPECT_FALSE(balance.wants_more());
  }
}

// It was granted, or overdrawn, for a link that it has not reached.
TEST(CreditBalance, WhatIsLostOnTheWayMayLeaveAgainAtOnce) {
  CreditBalance balance = balance_of();
  balance.want(500 * kPacket);
  (void)send_all(balance);
  const Bytes overdraft = balance.overdraft();
  const std::uint32_t demand = balance.demand();
  balance.on_lost_on_the_way(kPacket);
  EXPECT_EQ(send_all(balance), kPacket);
  EXPECT_EQ(balance.overdraft(), overdraft);
  EXPECT_EQ(balance.demand(), demand);
}

}  // namespace
}  // namespace weft::srd
