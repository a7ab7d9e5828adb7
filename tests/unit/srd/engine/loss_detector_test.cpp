// Owns the proof that gaps within a path and time across paths tell what is lost, and nothing else.
//
// Packets of one path arrive in the order in which they left, so what was overtaken there is lost.
// Across paths order means nothing: there a packet is lost if one that left much later has arrived.
#include "srd/engine/loss_detector.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace weft::srd {
namespace {

using namespace std::chrono_literals;

constexpr TimePoint kStart{Duration{1s}};
constexpr Psn kFirst{100};

// A window of packets that the test sends and lets arrive by hand; what is found lost is the
// answer.
class LossTest : public ::testing::Test {
 protected:
  // The next packet leaves along `path`.
  Psn send(std::uint8_t path, TimePoint when) {
    SendSlot& slot = window_.open();
    slot.path = path;
    window_.mark_in_flight(slot, when);
    chain_.link(slot);
    return slot.psn;
  }
  void arrive(Psn psn) {
    SendSlot& slot = window_.slot(psn);
    losses_.on_arrival(slot.sent_at);
    gaps_.note_arrival(slot);
    window_.settle(slot);
  }
  // After an acknowledgement: what the arrivals that it told of have overtaken.
  std::vector<Psn> gaps(std::uint8_t tolerance = 0) {
    std::vector<Psn> lost;
    gaps_.find(window_, tolerance, [&](SendSlot& slot) {
      window_.mark_lost(slot);
      lost.push_back(slot.psn);
    });
    gaps_.clear();
    return lost;
  }
  std::vector<Psn> late(Duration rtt) {
    RttEstimator estimate(rtt);
    std::vector<Psn> lost;
    losses_.find(window_, estimate, [&](SendSlot& slot) {
      window_.mark_lost(slot);
      lost.push_back(slot.psn);
    });
    return lost;
  }

  SendWindow window_{kFirst};
  PathChain chain_{kFirst};
  GapFinder gaps_;
  LossDetector losses_;
};

TEST_F(LossTest, AGapWithinAPathIsLost) {
  const Psn a = send(1, kStart);
  const Psn b = send(2, kStart + 1us);
  const Psn c = send(1, kStart + 2us);
  arrive(c);
  EXPECT_EQ(gaps(), std::vector{a});
  arrive(b);
  EXPECT_TRUE(gaps().empty());
}

// Both were told together, in any order.
TEST_F(LossTest, WhatOneAcknowledgementTellsIsNoGap) {
  const Psn a = send(1, kStart);
  const Psn b = send(1, kStart + 1us);
  arrive(b);
  arrive(a);
  EXPECT_TRUE(gaps().empty());
}

TEST_F(LossTest, AToleranceLetsSoManyOvertake) {
  const Psn a = send(1, kStart);
  const Psn b = send(1, kStart + 1us);
  const Psn c = send(1, kStart + 2us);
  arrive(b);
  EXPECT_TRUE(gaps(1).empty());
  arrive(c);
  EXPECT_EQ(gaps(1), std::vector{a});
}

TEST_F(LossTest, AllThatLeftBeforeAlongThePathIsLost) {
  const Psn a = send(1, kStart);
  const Psn b = send(1, kStart + 1us);
  const Psn c = send(1, kStart + 2us);
  arrive(c);
  EXPECT_EQ(gaps(), (std::vector{b, a}));
}

// It left anew behind the one that has arrived.
TEST_F(LossTest, APacketThatWasSentAgainIsJudgedByItsLatestDeparture) {
  const Psn a = send(1, kStart);
  const Psn b = send(1, kStart + 1us);
  SendSlot& again = window_.slot(a);
  window_.mark_lost(again);
  window_.take_lost(again);
  window_.mark_in_flight(again, kStart + 2us);
  arrive(b);
  EXPECT_TRUE(gaps().empty());
}

TEST_F(LossTest, WhatLeftMuchEarlierIsLostAcrossPaths) {
  const Psn a = send(1, kStart);
  const Psn b = send(2, kStart + 30us);
  arrive(b);
  EXPECT_TRUE(late(30us).empty());  // the deviation allows for twice the round trip
  EXPECT_EQ(late(10us), std::vector{a});
}

// A packet that was called lost and arrived all the same shows that paths differ more than was
// thought.
TEST_F(LossTest, AMistakeDoublesTheAllowanceForAWhile) {
  const Psn a = send(1, kStart);
  const Psn b = send(2, kStart + 30us);
  arrive(b);
  losses_.on_mistake();
  losses_.on_mistake();  // no more than once
  EXPECT_TRUE(late(10us).empty());
  for (std::uint32_t i = 0; i < LossDetector::kNarrowAfter; ++i) {
    losses_.on_settled();
  }
  EXPECT_EQ(late(10us), std::vector{a});
}

}  // namespace
}  // namespace weft::srd
