// Owns the proof of what a sender keeps true between two calls: that its peer has a turn or a
// deadline as long as something waits, and that each work ends. [wire 4.1]
#include "srd/engine/sender.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <set>
#include <vector>

#include "tests/unit/srd/engine/sender_lab.hpp"

namespace weft::srd {
namespace {

// --- Turns and deadlines

TEST_F(SenderTest, HasNeitherTurnNorDeadlineWithoutWork) {
  EXPECT_FALSE(sender_.has_work());
  EXPECT_FALSE(transmit());
  EXPECT_EQ(sender_.next_deadline(), kNever);
  EXPECT_EQ(parts_.schedule.first_ready(), nullptr);
}

TEST_F(SenderTest, WorkMakesThePeerReady) {
  (void)request();
  EXPECT_TRUE(sender_.has_work());
  EXPECT_EQ(parts_.schedule.first_ready(), &peer_);
}

TEST_F(SenderTest, APacketInFlightHasADeadline) {
  (void)request();
  ASSERT_TRUE(transmit());
  EXPECT_FALSE(sender_.has_work());
  EXPECT_NE(sender_.next_deadline(), kNever);
  EXPECT_LE(parts_.schedule.next_due(), sender_.next_deadline());
}

TEST_F(SenderTest, WhatIsAcknowledgedHasNoDeadline) {
  (void)request();
  ASSERT_TRUE(transmit());
  acknowledge(kFirst.plus(1));
  EXPECT_EQ(ended(), Status::ok);
  EXPECT_EQ(sender_.next_deadline(), kNever);
}

// --- Packets

TEST_F(SenderTest, NumbersItsPackets) {
  const std::uint32_t message = request(WorkKind::write, 2).message;
  const auto packets = transmit_all();
  ASSERT_EQ(packets.size(), 2U);
  for (std::uint32_t i = 0; i < 2; ++i) {
    EXPECT_EQ(type_of(packets[i]), PacketType::write);
    EXPECT_EQ(packets[i].psn.value(), kFirst.plus(i).value());
    EXPECT_EQ(packets[i].back.value(), i) << "from the oldest number that is not settled";
    EXPECT_EQ(packets[i].message.value(), message);
    EXPECT_EQ(packets[i].remote_address.value(), i * kMtu);
    EXPECT_EQ(packets[i].payload_length.value(), kMtu);
    EXPECT_EQ(packets[i].message_length.value(), 2 * kMtu);
  }
  EXPECT_EQ(packets[0].common.flags & wire::kLastOfMessage, 0);
  EXPECT_NE(packets[1].common.flags & wire::kLastOfMessage, 0);
  EXPECT_NE(packets[1].common.flags & wire::kAckRequested, 0) << "nothing comes behind it";
}

TEST_F(SenderTest, AWorkEndsWithItsLastPacket) {
  const Work& work = request(WorkKind::write, 3);
  ASSERT_EQ(transmit_all().size(), 3U);
  EXPECT_EQ(work.outstanding, 3U);
  acknowledge(kFirst.plus(2));
  EXPECT_EQ(work.outstanding, 1U);
  EXPECT_EQ(completed(), std::nullopt);
  acknowledge(kFirst.plus(3));
  EXPECT_EQ(ended(), Status::ok);
}

// Sixteen packets are posted first, and one behind them.
TEST_F(SenderTest, ShortMessagesTakeTurnsWithALongOne) {
  (void)request(WorkKind::write, 16);
  (void)request(WorkKind::send);
  const auto first = transmit();
  const auto second = transmit();
  ASSERT_TRUE(first && second);
  EXPECT_NE(type_of(*first), type_of(*second));
}

TEST_F(SenderTest, AnAcknowledgementOfWhatNeverLeftIsDropped) {
  (void)request();
  ASSERT_TRUE(transmit());
  acknowledge(kFirst.plus(2));
  EXPECT_EQ(completed(), std::nullopt);
  EXPECT_EQ(parts_.counters.drops[static_cast<std::size_t>(DropReason::ack_not_sent)], 1U);
}

TEST_F(SenderTest, AddressesTheLatestLife) {
  sender_.address(Life{7});
  (void)request();
  const auto packet = transmit();
  ASSERT_TRUE(packet);
  EXPECT_EQ(packet->common.destination_life.value(), 7U);
}

// --- Losses

// As long as no round trip was measured, it may only be waiting.
TEST_F(SenderTest, WithoutAnAnswerAPacketIsAskedForAndThenLeavesAgainAlongAnotherPath) {
  (void)request();
  const auto first = transmit();
  ASSERT_TRUE(first);
  std::optional<wire::DataHeader> again;
  std::size_t probes = 0;
  for (int i = 0; i < 100 && !again; ++i) {
    pass();
    for (const wire::DataHeader& packet : transmit_all()) {
      if (type_of(packet) == PacketType::probe) {
        ++probes;
      } else {
        again = packet;
      }
    }
  }
  EXPECT_GT(probes, 0U);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->psn.value(), first->psn.value());
  EXPECT_EQ(again->common.attempt, 1);
  EXPECT_NE(again->common.path.value(), first->common.path.value());
  EXPECT_NE(again->common.flags & wire::kAckRequested, 0);
  EXPECT_EQ(parts_.counters.lost_by_timeout, 1U);
}

TEST_F(SenderTest, WhatWasOvertakenOnItsPathIsLost) {
  const Work& work = request(WorkKind::write, 6);
  ASSERT_EQ(transmit_all().size(), 6U);  // three along each path
  // All but the first one have arrived; the word begins with a multiple of 64.
  acknowledge(kFirst, std::uint64_t{0b11111} << (kFirst.plus(1).value() % 64));
  EXPECT_EQ(work.outstanding, 1U);
  EXPECT_EQ(parts_.counters.lost_by_gap, 1U);
  EXPECT_EQ(parts_.schedule.first_ready(), &peer_);
  const auto again = transmit();
  ASSERT_TRUE(again);
  EXPECT_EQ(again->psn.value(), kFirst.value());
  EXPECT_EQ(again->common.attempt, 1);
}

TEST_F(SenderTest, WhatWasTrimmedLeavesAgainAtOnce) {
  (void)request();
  ASSERT_TRUE(transmit());
  answer(kFirst, wire::kResultTrimmed);
  const auto again = transmit();
  ASSERT_TRUE(again);
  EXPECT_EQ(again->common.attempt, 1);
  answer(kFirst, wire::kResultTrimmed);
  EXPECT_FALSE(transmit()) << "the news is of the first transmission";
}

// --- Refusals

TEST_F(SenderTest, ARefusalEndsTheWork) {
  (void)request();
  ASSERT_TRUE(transmit());
  answer(kFirst, static_cast<std::uint8_t>(Status::bad_qkey));
  EXPECT_EQ(ended(), Status::bad_qkey);
  EXPECT_FALSE(transmit());
}

TEST_F(SenderTest, AReceiverThatWasNotReadyIsAskedAgainWithANewNumber) {  // [wire 4.3]
  (void)request();
  ASSERT_TRUE(transmit());
  answer(kFirst, static_cast<std::uint8_t>(Status::receiver_not_ready));
  EXPECT_EQ(completed(), std::nullopt);
  EXPECT_FALSE(transmit()) << "not at once";
  EXPECT_EQ(sender_.next_deadline(), now_ + parts_.config.rnr_delay);
  EXPECT_LE(parts_.schedule.next_due(), sender_.next_deadline());
  pass();
  const auto again = transmit();
  ASSERT_TRUE(again);
  EXPECT_EQ(again->psn.value(), kFirst.plus(1).value());
  EXPECT_EQ(again->common.attempt, 0);
}

TEST_F(SenderTest, AReceiverIsAskedNoMoreOftenThanWasWanted) {
  request().rnr_retry = 1;
  ASSERT_TRUE(transmit());
  answer(kFirst, static_cast<std::uint8_t>(Status::receiver_not_ready));
  pass();
  ASSERT_TRUE(transmit());
  answer(kFirst.plus(1), static_cast<std::uint8_t>(Status::receiver_not_ready));
  EXPECT_EQ(ended(), Status::receiver_not_ready);
}

TEST_F(SenderTest, WhatWasPutOffLeavesLaterWithItsNumber) {
  (void)request();
  ASSERT_TRUE(transmit());
  answer(kFirst, wire::kResultDeferred);
  EXPECT_FALSE(transmit());
  EXPECT_EQ(sender_.next_deadline(), now_ + parts_.config.rnr_delay);
  pass();
  const auto again = transmit();
  ASSERT_TRUE(again);
  EXPECT_EQ(again->psn.value(), kFirst.value());
  EXPECT_EQ(again->common.attempt, 1);
}

// --- Work that is withdrawn

// Two of four packets have left when the work is withdrawn.
TEST_F(SenderTest, WithdrawnWorkCountsAsSettled) {
  const Work& work = request(WorkKind::write, 4);
  ASSERT_TRUE(transmit());
  ASSERT_TRUE(transmit());
  parts_.works.abandon(static_cast<std::uint32_t>(work.cookie), Status::flushed);
  EXPECT_EQ(ended(), Status::flushed);
  EXPECT_FALSE(transmit());
  EXPECT_EQ(sender_.next_deadline(), kNever);
  (void)request();
  const auto next = transmit();
  ASSERT_TRUE(next);
  EXPECT_EQ(next->psn.value(), kFirst.plus(2).value());
  EXPECT_EQ(next->back.value(), 0U) << "so the peer does not wait for the withdrawn ones";
}

// --- The end of a peer

class GivenUp : public SenderTest {
 protected:
  // Until the request has ended: the peer never answers.
  std::optional<Status> wait_in_vain() {
    (void)request();
    for (int i = 0; i < 100; ++i) {
      (void)transmit_all();
      if (const auto status = ended()) {
        return status;
      }
      pass();
    }
    return std::nullopt;
  }
};

TEST_F(GivenUp, APeerThatWasNeverHeardIsUnreachable) {
  EXPECT_EQ(wait_in_vain(), Status::unreachable);
  EXPECT_GE(now_ - kStart, parts_.config.peer_timeout);
}

TEST_F(GivenUp, APeerThatHasAnsweredBeforeIsUnresponsive) {
  (void)request();
  ASSERT_TRUE(transmit());
  acknowledge(kFirst.plus(1));
  EXPECT_EQ(ended(), Status::ok);
  EXPECT_EQ(wait_in_vain(), Status::unresponsive);
}

// A peer that is given up is not bothered until the program wants something of it again.
TEST_F(GivenUp, HasNothingInFlightAndLeavesItsPeerAlone) {
  ASSERT_TRUE(wait_in_vain());
  EXPECT_TRUE(sender_.muted());
  EXPECT_FALSE(transmit());
  EXPECT_EQ(sender_.next_deadline(), kNever);
}

TEST_F(GivenUp, TriesAgainWithTheNextRequest) {
  ASSERT_TRUE(wait_in_vain());
  (void)request();
  EXPECT_FALSE(sender_.muted());
  const auto packet = transmit();
  ASSERT_TRUE(packet);
  EXPECT_EQ(type_of(*packet), PacketType::send);
  acknowledge(Psn{packet->psn.value()}.plus(1));
  EXPECT_EQ(ended(), Status::ok);
}

// --- Runs along one path

class SenderInRuns : public SenderTest {
 protected:
  static constexpr std::uint32_t kRun = 4;
  SenderInRuns() : SenderTest(in_runs()) {}

  static EngineConfig in_runs() {
    EngineConfig config = configure();
    config.paths = 16;
    config.path_selector = "reps";
    config.path_run = kRun * (kMtu + sizeof(wire::DataHeader));
    return config;
  }
};

// REPS takes each path as often as it has come back: if all packets of a run brought theirs back,
// the newest run's path would fill its ring, and all others would be forgotten.
TEST_F(SenderInRuns, AsManyPathsComeBackAsWereTaken) {
  constexpr std::uint32_t kRuns = 4;
  Psn next = kFirst;
  for (int round = 0; round < 50; ++round) {
    (void)request(WorkKind::write, kRuns * kRun);
    const auto packets = transmit_all();
    ASSERT_EQ(packets.size(), kRuns * kRun);
    std::set<unsigned> paths;
    for (std::uint32_t i = 0; i < packets.size(); ++i) {
      const unsigned path = packets[i].common.path.value();
      EXPECT_EQ(path, packets[i / kRun * kRun].common.path.value()) << i;
      paths.insert(path);
    }
    ASSERT_EQ(paths.size(), kRuns) << "round " << round;
    now_ += 10us;
    // In the middle of a run, too.
    acknowledge(next.plus(kRun + 2));
    acknowledge(next = next.plus(kRuns * kRun));
    ASSERT_EQ(ended(), Status::ok);
  }
}

TEST_F(SenderInRuns, WhatLeavesLaterBeginsARun) {
  std::set<unsigned> paths;
  for (int i = 0; i < 4; ++i) {
    (void)request();
    const auto packet = transmit();
    ASSERT_TRUE(packet);
    paths.insert(packet->common.path.value());
    now_ += 1ns;
  }
  EXPECT_EQ(paths.size(), 4U);
}

// --- Congestion

class RefusedSender : public SenderTest {
 protected:
  RefusedSender() : SenderTest(in_a_small_network()) {}

  static EngineConfig in_a_small_network() {
    EngineConfig config = configure();
    config.congestion_control = "swift";  // the one whose window falls to a part of a packet
    config.line_rate = Rate::gbps(1);     // which holds 14 packets
    config.peer_timeout = 1s;
    return config;
  }
  // The peer has got the packet along an empty network, and wants it for no price.
  void refuse(const wire::DataHeader& packet) {
    wire::ResultEntry entry{};
    entry.psn = packet.psn.value();
    entry.code = static_cast<std::uint8_t>(Status::bad_key);
    entry.attempt = packet.common.attempt;
    tell(kFirst, 0, entry, &packet);
  }
};

TEST_F(RefusedSender, WhatIsRefusedHasCrossedTheNetwork) {
  (void)request(WorkKind::write, 16);
  for (int losses = 0; losses < 40; ++losses) {
    (void)transmit_all();
    pass();
  }
  ASSERT_LE(transmit_all().size(), 1U) << "the losses have left a window";
  std::size_t at_once = 0;
  for (int round = 0; round < 400; ++round) {
    now_ += 1ms;
    if (sender_.next_deadline() <= now_) {
      sender_.on_timeout(now_);
    }
    const auto packets = transmit_all();
    at_once = std::max(at_once, packets.size());
    now_ += 5us;
    for (const auto& packet : packets) {
      if (type_of(packet) == PacketType::write) {
        refuse(packet);
      }
    }
    while (ended()) {
    }
    if (!sender_.has_work()) {
      (void)request(WorkKind::write, 16);
    }
  }
  EXPECT_GT(at_once, 4U);
}

}  // namespace
}  // namespace weft::srd
