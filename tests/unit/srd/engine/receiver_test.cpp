// Owns the proof of what a receiver owes its peer, and of when it has paid. [wire 4.4]
#include "srd/engine/receiver.hpp"

#include <gtest/gtest.h>

#include <cstring>

#include "srd/engine/engine_parts.hpp"

namespace weft::srd {
namespace {

using namespace std::chrono_literals;

constexpr TimePoint kStart{Duration{1s}};

// The bookkeeping of one peer's arrivals, without delivery: every packet here is accepted.
class ReceiverTest : public ::testing::Test {
 protected:
  explicit ReceiverTest(const EngineConfig& config = {}) : parts_(config, nullptr, nullptr) {}

  // A packet arrives and is accepted. True if it is to be acknowledged at once.
  bool arrive(std::uint32_t psn, std::uint8_t flags = 0, Ecn ecn = Ecn::capable_0) {
    wire::DataHeader header{};
    header.common.type = static_cast<std::uint8_t>(wire::PacketType::write);
    header.common.flags = flags;
    header.psn = psn;
    RxPacket packet;
    packet.ecn = ecn;
    // The first number of the peer's.
    receiver_.window().advance(Psn{100});
    receiver_.window().accept(Psn{psn});
    receiver_.count_mark(ecn == Ecn::congested);
    return receiver_.note_arrival(kStart, header, packet, parts_.config.ack_every);
  }
  wire::AckHeader write() {
    TxPacket packet;
    receiver_.write_ack(parts_, kStart + 1us, wire::CommonHeader{}, 0, packet);
    wire::AckHeader header{};
    std::memcpy(&header, packet.header.data(), sizeof header);
    return header;
  }

  EngineParts parts_;
  Receiver receiver_;
};

TEST_F(ReceiverTest, OwesNothingToBeginWith) {
  EXPECT_FALSE(receiver_.owes_ack());
  EXPECT_FALSE(receiver_.can_ack());
}

// Four, as the defaults have it; `wait` says how long the echoed packet has waited for its answer,
// in nanoseconds.
TEST_F(ReceiverTest, AnswersEverySoManyPackets) {
  EXPECT_FALSE(arrive(100));
  EXPECT_FALSE(arrive(101));
  EXPECT_FALSE(arrive(102));
  EXPECT_TRUE(arrive(103));
  EXPECT_TRUE(receiver_.owes_ack());
  const wire::AckHeader ack = write();
  EXPECT_EQ(ack.cumulative.value(), 104U);
  EXPECT_EQ(ack.echo_psn.value(), 103U);
  EXPECT_EQ(ack.wait.value(), 1000U);
  EXPECT_FALSE(receiver_.owes_ack());
  EXPECT_FALSE(arrive(104)) << "the count begins anew";
}

// A mark is news that the sender needs before its next window.
TEST_F(ReceiverTest, AnswersAtOnceWhatAsksAndWhatIsMarked) {
  EXPECT_TRUE(arrive(100, wire::kAckRequested));
  EXPECT_TRUE(arrive(101, 0, Ecn::congested));
}

TEST_F(ReceiverTest, AnswersAtOnceWhatFillsTheLastGap) {
  EXPECT_TRUE(arrive(101, wire::kAckRequested));  // the end of a message overtook the rest
  (void)write();
  EXPECT_TRUE(arrive(100));
}

// One acknowledgement echoes one packet: the marked one, though another came later.
TEST_F(ReceiverTest, EchoesAMarkThatWasNotToldYet) {
  (void)arrive(100, 0, Ecn::congested);
  (void)arrive(101);
  const wire::AckHeader ack = write();
  EXPECT_EQ(ack.echo_psn.value(), 100U);
  EXPECT_NE(ack.common.flags & wire::kEchoCongested, 0);
  EXPECT_EQ(ack.marked.value(), 1U);
}

TEST_F(ReceiverTest, TellsOnceWhatMustComeAgain) {
  wire::DataHeader header{};
  header.psn = 105;
  receiver_.note_again(parts_, header, wire::kResultTrimmed);
  EXPECT_TRUE(receiver_.owes_ack());
  EXPECT_EQ(write().results, 1);
  EXPECT_FALSE(receiver_.owes_ack());
  EXPECT_EQ(write().results, 0);
}

// A demand is for credits; nobody else asks this receiver, so all is granted.
TEST_F(ReceiverTest, AnswersADemandWithAllOfIt) {
  receiver_.note_demand(TimePoint{}, 77);
  EXPECT_TRUE(receiver_.owes_ack());
  const wire::AckHeader ack = write();
  EXPECT_NE(ack.common.flags & wire::kCreditValid, 0);
  EXPECT_EQ(ack.credit.value(), 77U);
  EXPECT_FALSE(receiver_.owes_ack());
}

TEST_F(ReceiverTest, SaysThatItHasNoWindow) {
  receiver_.note_grant();
  EXPECT_NE(write().common.flags & wire::kNoWindow, 0);
  (void)arrive(100);
  EXPECT_EQ(write().common.flags & wire::kNoWindow, 0);
}

TEST_F(ReceiverTest, ARestartLeavesNothingButTheWayToAnswer) {
  receiver_.answer(Qpn{3}, Qpn{4});
  (void)arrive(101, 0, Ecn::congested);
  receiver_.note_demand(TimePoint{}, 5);
  receiver_.forget(parts_);
  EXPECT_FALSE(receiver_.can_ack());
  wire::CommonHeader header{};
  receiver_.steer(header);
  EXPECT_EQ(header.destination_qpn.value(), 3U);
  EXPECT_EQ(header.source_qpn.value(), 4U);
  receiver_.note_grant();
  EXPECT_EQ(write().marked.value(), 0U);
}

TEST(ArrivalOrder, APacketThatBelongsBeforeAnotherOfItsMessageIsLate) {
  ArrivalOrder order;
  EXPECT_FALSE(order.note_packet(1, 4096));
  EXPECT_TRUE(order.note_packet(1, 0));
  EXPECT_FALSE(order.note_packet(1, 8192));
  EXPECT_FALSE(order.note_packet(2, 0));
}

TEST(ArrivalOrder, AMessageThatWasPostedEarlierIsLate) {
  ArrivalOrder order;
  EXPECT_FALSE(order.note_message(5));
  EXPECT_TRUE(order.note_message(4));
  EXPECT_FALSE(order.note_message(6));
}

// Acknowledgements are not acknowledged. That one was lost shows when the peer asks what it was
// told, and the next one may take a dead path as well.
class ReceiverOfQuestions : public ReceiverTest {
 protected:
  explicit ReceiverOfQuestions(bool losses_are_reported = true)
      : ReceiverTest(in_network(losses_are_reported)) {}

  static EngineConfig in_network(bool losses_are_reported) {
    EngineConfig config;
    config.trimming = losses_are_reported;
    return config;
  }
  // The peer's oldest packet in flight is `una`.
  void ask(std::uint32_t una) {
    wire::DataHeader header{};
    header.common.type = static_cast<std::uint8_t>(wire::PacketType::probe);
    header.psn = una;
    receiver_.note_probe(parts_, kStart, header, RxPacket{});
  }
  int answers() {
    int count = 0;
    for (; receiver_.owes_ack(); ++count) {
      (void)write();
    }
    return count;
  }
};

TEST_F(ReceiverOfQuestions, SaysTwiceWhatThePeerHasNotHeard) {
  (void)arrive(100);
  EXPECT_EQ(answers(), 1);
  ask(101);
  EXPECT_EQ(answers(), 1) << "the peer knows it";
  ask(100);
  EXPECT_EQ(answers(), 2);
  receiver_.note_demand(kStart, 10);
  EXPECT_EQ(answers(), 1);
  receiver_.note_demand(kStart, 10);
  EXPECT_EQ(answers(), 2);
}

// Questions overtake each other.
TEST_F(ReceiverOfQuestions, AnOlderDemandTakesNothingBack) {
  receiver_.note_demand(kStart, 0xFFFFFFF0);
  receiver_.note_demand(kStart, 10);
  receiver_.note_demand(kStart, 0xFFFFFFF5);
  EXPECT_EQ(write().credit.value(), 10U);
}

class ReceiverBehindQueues : public ReceiverOfQuestions {
 protected:
  ReceiverBehindQueues() : ReceiverOfQuestions(false) {}
};

TEST_F(ReceiverBehindQueues, SaysItOnceWhereQueuesLoseWithoutAReport) {
  (void)arrive(100);
  EXPECT_EQ(answers(), 1);
  ask(100);
  EXPECT_EQ(answers(), 1);
  receiver_.note_demand(kStart, 10);
  receiver_.note_demand(kStart, 10);
  EXPECT_EQ(answers(), 1);
}

TEST_F(ReceiverOfQuestions, AnswersOnceWhatHasNotBeenToldYet) {
  (void)arrive(100);
  ask(100);
  EXPECT_EQ(answers(), 2) << "one for the packet, one for the question";
}

// [wire 4.10] What the acknowledgement says of a packet settles it, and its echo would come too
// late; but each probe is echoed. [wire 4.7]
TEST_F(ReceiverOfQuestions, AWordOfLeavingPutsOffTheEchoesOfProbesOnly) {
  (void)arrive(100, 0, Ecn::congested);
  ask(100);
  ASSERT_TRUE(receiver_.parting().take_leave(receiver_.window(), Leave::begin, Psn{7}));
  const wire::AckHeader word = write();
  EXPECT_EQ(word.common.flags, wire::kLeaving);
  EXPECT_EQ(word.echo_psn.value(), 7U);
  (void)arrive(101);
  EXPECT_EQ(write().common.flags, wire::kEchoValid);
  EXPECT_EQ(write().common.flags, wire::kEchoValid | wire::kEchoProbe);
  EXPECT_FALSE(receiver_.owes_ack());
}

TEST(ReceiveWindow, KnowsHowFarTheSenderWasTold) {
  ReceiveWindow window;
  window.advance(Psn{100});
  EXPECT_EQ(window.una(), Psn{100});
  for (std::uint32_t psn = 100; psn != 105; ++psn) {
    window.accept(Psn{psn});
  }
  window.note_una(Psn{103});
  window.note_una(Psn{102});
  EXPECT_EQ(window.una(), Psn{103});
  window.advance(Psn{104});
  EXPECT_EQ(window.una(), Psn{104});
  window.note_una(Psn{110});  // what was never sent, or never came
  EXPECT_EQ(window.una(), Psn{105});
}

}  // namespace
}  // namespace weft::srd
