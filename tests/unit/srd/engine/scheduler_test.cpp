// Owns the proof that peers are served in turn, and that no deadline is missed. Three things wait
// here side by side: peers with packets to send, peers that are owed a reply, and deadlines.
#include "srd/engine/scheduler.hpp"

#include <gtest/gtest.h>

#include <array>

namespace weft::srd {
namespace {

using namespace std::chrono_literals;

constexpr TimePoint kStart{Duration{1s}};

class SchedulerTest : public ::testing::Test {
 protected:
  Peer* make(std::uint8_t number) {
    PeerKey key;
    key.address.bytes[0] = static_cast<std::byte>(number);
    return peers_.find_or_make(key);
  }

  PeerTable peers_{8};
  Scheduler schedule_{peers_};
  Peer* const a_ = make(1);
  Peer* const b_ = make(2);
};

TEST_F(SchedulerTest, ReadyPeersTakeTurnsOfEightPackets) {
  EXPECT_EQ(schedule_.first_ready(), nullptr);
  EXPECT_TRUE(schedule_.make_ready(*a_));
  EXPECT_TRUE(schedule_.make_ready(*b_));
  for (Peer* const expected : {a_, b_, a_}) {
    for (std::uint32_t i = 0; i < Scheduler::kPacketsOfTurn; ++i) {
      EXPECT_EQ(schedule_.first_ready(), expected);
      schedule_.count_packet();
    }
  }
  EXPECT_EQ(schedule_.first_ready(), b_);
}

TEST_F(SchedulerTest, APeerIsReadyOnce) {
  EXPECT_TRUE(schedule_.make_ready(*a_));
  EXPECT_FALSE(schedule_.make_ready(*a_));
  schedule_.end_turn();
  EXPECT_EQ(schedule_.first_ready(), nullptr);
  EXPECT_TRUE(schedule_.make_ready(*a_));
}

TEST_F(SchedulerTest, ATurnThatEndedEarlyLeavesTheNextOneWhole) {
  schedule_.make_ready(*a_);
  schedule_.make_ready(*b_);
  schedule_.count_packet();
  schedule_.end_turn();
  schedule_.make_ready(*a_);
  for (std::uint32_t i = 0; i < Scheduler::kPacketsOfTurn; ++i) {
    EXPECT_EQ(schedule_.first_ready(), b_);
    schedule_.count_packet();
  }
  EXPECT_EQ(schedule_.first_ready(), a_);
}

TEST_F(SchedulerTest, RepliesAreServedInOrderAndOnce) {
  schedule_.reply_now(*b_);
  schedule_.reply_now(*a_);
  schedule_.reply_now(*b_);
  EXPECT_TRUE(Scheduler::awaits_reply(*b_));
  EXPECT_EQ(schedule_.take_reply(), b_);
  EXPECT_FALSE(Scheduler::awaits_reply(*b_));
  EXPECT_EQ(schedule_.take_reply(), a_);
  EXPECT_EQ(schedule_.take_reply(), nullptr);
}

TEST_F(SchedulerTest, ADelayedReplyWaitsForItsTime) {
  schedule_.reply_by(*a_, kStart + 2us);
  EXPECT_EQ(schedule_.next_due(), kStart + 2us);
  schedule_.queue_overdue_replies(kStart + 1us);
  EXPECT_EQ(schedule_.take_reply(), nullptr);
  schedule_.queue_overdue_replies(kStart + 2us);
  EXPECT_EQ(schedule_.take_reply(), a_);
  EXPECT_EQ(schedule_.next_due(), kNever);
}

// A later packet must not put an answer off that an earlier one is waiting for.
TEST_F(SchedulerTest, ADelayedReplyKeepsItsFirstTime) {
  schedule_.reply_by(*a_, kStart + 2us);
  schedule_.reply_by(*a_, kStart + 3us);
  schedule_.queue_overdue_replies(kStart + 2us);
  EXPECT_EQ(schedule_.take_reply(), a_);
  EXPECT_EQ(schedule_.next_due(), kNever);
}

TEST_F(SchedulerTest, AReplyThatLeftEarlyIsNotDueAnyMore) {
  schedule_.reply_by(*a_, kStart + 2us);
  schedule_.reply_by(*b_, kStart + 3us);
  schedule_.reply_now(*a_);
  EXPECT_EQ(schedule_.next_due(), kStart + 3us);
  EXPECT_EQ(schedule_.take_reply(), a_);
  schedule_.queue_overdue_replies(kStart + 3us);
  EXPECT_EQ(schedule_.take_reply(), b_);
  EXPECT_EQ(schedule_.take_reply(), nullptr);
}

TEST_F(SchedulerTest, ACancelledReplyThatIsOwedAnewLeavesAtTheNewTime) {
  schedule_.reply_by(*a_, kStart + 2us);
  schedule_.cancel_delayed_reply(*a_);
  schedule_.reply_by(*a_, kStart + 5us);
  schedule_.queue_overdue_replies(kStart + 2us);
  EXPECT_EQ(schedule_.take_reply(), nullptr);
  EXPECT_EQ(schedule_.next_due(), kStart + 5us);
  schedule_.queue_overdue_replies(kStart + 5us);
  EXPECT_EQ(schedule_.take_reply(), a_);
  EXPECT_EQ(schedule_.take_reply(), nullptr);
}

// To an earlier time only: a call that comes too early finds nothing to do, which is cheaper than
// to keep the order exact.
TEST_F(SchedulerTest, ADeadlineOnlyMovesForward) {
  schedule_.arm(*a_, kStart + 5us);
  schedule_.arm(*a_, kStart + 3us);
  schedule_.arm(*a_, kStart + 9us);
  EXPECT_EQ(schedule_.next_due(), kStart + 3us);
}

TEST_F(SchedulerTest, DeadlinesComeInOrderAndAreTakenOnce) {
  schedule_.arm(*b_, kStart + 1us);
  schedule_.arm(*a_, kStart + 2us);
  EXPECT_EQ(schedule_.take_due(kStart), nullptr);
  EXPECT_EQ(schedule_.take_due(kStart + 2us), b_);
  schedule_.arm(*b_, kStart + 7us);  // it may have one again at once
  EXPECT_EQ(schedule_.take_due(kStart + 2us), a_);
  EXPECT_EQ(schedule_.take_due(kStart + 2us), nullptr);
  EXPECT_EQ(schedule_.next_due(), kStart + 7us);
}

}  // namespace
}  // namespace weft::srd
