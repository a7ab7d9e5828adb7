// Owns what responses and silence mean: retries are counted exactly, gaps are filled, late answers
// harm nothing.
#include <gtest/gtest.h>

#include "tests/unit/emu/roce/engine/bench.hpp"

namespace weft::roce {
namespace {

using wire::Operation;

// The peer is the test: it acknowledges, refuses or says nothing.
class Comp : public ::testing::Test {
 protected:
  void bring_up(std::uint8_t retries = 7, std::uint8_t rnr_retries = 7) {
    bench.attributes.retry_count = retries;
    bench.attributes.rnr_retry = rnr_retries;
    bench.bring_up();
  }
  void reply(std::uint32_t psn, std::uint8_t syndrome = wire::kAckNoCredit) {
    auto packet = bench.request(Operation::acknowledge, psn);
    packet.syndrome = syndrome;
    bench.arrive(packet);
  }
  void respond(Operation operation, std::uint32_t psn, std::size_t payload) {
    bench.arrive(bench.request(operation, psn), payload);
  }
  Bench bench;
};

TEST_F(Comp, RetriesAsOftenAsItIsTold) {
  for (const std::uint8_t retries : std::initializer_list<std::uint8_t>{0, 1, 3, 7}) {
    Bench fresh;
    fresh.attributes.retry_count = retries;
    fresh.bring_up();
    ASSERT_EQ(fresh.send(WrOpcode::send, 10), 0);
    const TimePoint begun = fresh.now;
    std::size_t sent = 0;
    do {
      sent += fresh.all().size();
    } while (fresh.wait());
    EXPECT_EQ(sent, 1U + retries);
    const auto completion = fresh.completion();
    ASSERT_TRUE(completion);
    EXPECT_EQ(completion->status, WcStatus::retries_exceeded);
    EXPECT_EQ(fresh.state(), QpState::error);
    // 4.096 us * 2^14 for each.
    EXPECT_EQ(fresh.now - begun, (1 + retries) * Duration{4096LL << 14});
  }
}

TEST_F(Comp, WaitsNoLessThanTheConfigurationSays) {
  bench.attributes.timeout = 1;
  bring_up();
  ASSERT_EQ(bench.send(WrOpcode::send, 10), 0);
  const TimePoint begun = bench.now;
  ASSERT_EQ(bench.all().size(), 1U);
  EXPECT_EQ(bench.engine.next_timeout() - begun, 20ms);
}

TEST_F(Comp, HasNoTimerForTimeoutZero) {
  bench.attributes.timeout = 0;
  bring_up();
  ASSERT_EQ(bench.send(WrOpcode::send, 10), 0);
  ASSERT_EQ(bench.all().size(), 1U);
  EXPECT_EQ(bench.engine.next_timeout(), kNever);
}

// In SQD, where attributes may be changed while packets are not acknowledged.
TEST_F(Comp, KeepsTheTimeoutThatItIsToldMeanwhile) {
  bench.attributes.timeout = 0;
  bench.bring_up();
  ASSERT_EQ(bench.send(WrOpcode::send, 8), 0);
  ASSERT_TRUE(bench.next());
  ASSERT_EQ(bench.to(QpState::sqd, 0), 0);
  EXPECT_EQ(bench.engine.next_timeout(), kNever);
  bench.attributes.timeout = 14;
  ASSERT_EQ(bench.to(QpState::sqd, kMaskTimeout), 0);
  EXPECT_NE(bench.engine.next_timeout(), kNever);
  bench.attributes.timeout = 0;
  ASSERT_EQ(bench.engine.modify_qp(bench.now, bench.qpn, kMaskTimeout, bench.attributes), 0);
  EXPECT_EQ(bench.engine.next_timeout(), kNever);
  bench.attributes.timeout = 14;
  ASSERT_EQ(bench.engine.modify_qp(bench.now, bench.qpn, kMaskTimeout, bench.attributes), 0);
  ASSERT_TRUE(bench.wait());
  EXPECT_TRUE(bench.next());  // again
}

TEST_F(Comp, RetriesReceiversThatAreNotReadyAsOftenAsItIsTold) {
  for (const std::uint8_t retries : std::initializer_list<std::uint8_t>{0, 2, 6}) {
    Bench fresh;
    fresh.attributes.rnr_retry = retries;
    fresh.bring_up();
    ASSERT_EQ(fresh.send(WrOpcode::send, 10), 0);
    std::size_t sent = 0;
    while (fresh.state() == QpState::rts) {
      const std::size_t now = fresh.all().size();
      ASSERT_EQ(now, 1U);
      sent += now;
      auto nak = fresh.request(Operation::acknowledge, kSqPsn);
      nak.syndrome = wire::kRnrNak | 14;  // 1.28 ms
      const TimePoint asked = fresh.now;
      fresh.arrive(nak);
      fresh.arrive(nak);  // a copy counts once
      if (fresh.wait()) {
        EXPECT_EQ(fresh.now - asked, 1280us);
      }
    }
    EXPECT_EQ(sent, 1U + retries);
    EXPECT_EQ(fresh.completion()->status, WcStatus::rnr_retries_exceeded);
  }
}

TEST_F(Comp, AsksAReceiverForEverWithSeven) {
  bring_up(0, 7);
  ASSERT_EQ(bench.send(WrOpcode::send, 10), 0);
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(bench.all().size(), 1U);
    reply(kSqPsn, wire::kRnrNak | 1);
    ASSERT_TRUE(bench.wait());
  }
  ASSERT_EQ(bench.all().size(), 1U);
  reply(kSqPsn);
  EXPECT_EQ(bench.completion()->status, WcStatus::success);
}

// As Linux does: of the packets behind one that found no receive it reports a gap, and a slow one
// only when the wait is over.
TEST_F(Comp, TakesAGapBehindAReceiverThatIsNotReadyForNoLoss) {
  bring_up(1, 7);
  ASSERT_EQ(bench.send(WrOpcode::send, 10, 1), 0);
  ASSERT_EQ(bench.send(WrOpcode::send, 10, 2), 0);
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(bench.all().size(), 2U);
    reply(kSqPsn, wire::kRnrNak | 1);
    ASSERT_TRUE(bench.wait());
    reply(kSqPsn, wire::kNakSequence);
    reply(kSqPsn, wire::kNakSequence);  // a copy
  }
  EXPECT_EQ(bench.all().size(), 2U);  // once for the last wait, and not again for the gap
  EXPECT_EQ(bench.engine.counters().completer_retry_err, 0U);
  reply(kSqPsn + 1, wire::kNakSequence);  // the first has found a receive, the second is lost
  EXPECT_EQ(bench.all().size(), 1U);
  EXPECT_EQ(bench.engine.counters().completer_retry_err, 1U);
  reply(kSqPsn + 1);
  EXPECT_EQ(bench.completion()->status, WcStatus::success);
  EXPECT_EQ(bench.completion()->status, WcStatus::success);
}

TEST_F(Comp, CompletesAllThatAnAcknowledgementCovers) {
  bring_up();
  for (std::uint64_t id = 1; id <= 3; ++id) {
    ASSERT_EQ(bench.send(WrOpcode::send, 300, id), 0);
  }
  EXPECT_EQ(bench.all().size(), 6U);
  reply(kSqPsn + 4);  // two messages and a half
  EXPECT_EQ(bench.completion()->wr_id, 1U);
  EXPECT_EQ(bench.completion()->wr_id, 2U);
  EXPECT_FALSE(bench.completion());
  reply(kSqPsn + 9);  // never sent
  reply(kSqPsn + 1);  // known
  EXPECT_EQ(bench.engine.counters().stale_responses, 2U);
  reply(kSqPsn + 5);
  EXPECT_EQ(bench.completion()->wr_id, 3U);
  EXPECT_EQ(bench.engine.next_timeout(), kNever);
}

TEST_F(Comp, GoesBackToThePacketThatIsMissing) {
  bring_up();
  ASSERT_EQ(bench.send(WrOpcode::write, 1000), 0);
  EXPECT_EQ(bench.all().size(), 4U);
  reply(kSqPsn + 2, wire::kNakSequence);
  reply(kSqPsn + 2, wire::kNakSequence);  // the same one again
  const auto again = bench.all();
  ASSERT_EQ(again.size(), 2U);
  EXPECT_EQ(again[0].packet.psn, kSqPsn + 2);
  EXPECT_EQ(wire::operation_of(again[0].packet.opcode), Operation::write_middle);
  EXPECT_EQ(bench.engine.counters().completer_retry_err, 1U);
}

TEST_F(Comp, TurnsNaksIntoStatuses) {
  const std::pair<std::uint8_t, WcStatus> kExpected[] = {
      {wire::kNakInvalidRequest, WcStatus::remote_invalid_request},
      {wire::kNakRemoteAccess, WcStatus::remote_access},
      {wire::kNakRemoteOperation, WcStatus::remote_operation}};
  for (const auto& [syndrome, status] : kExpected) {
    Bench fresh;
    fresh.bring_up();
    for (std::uint64_t id = 1; id <= 3; ++id) {
      ASSERT_EQ(fresh.send(WrOpcode::send, 10, id), 0);
    }
    static_cast<void>(fresh.all());
    auto nak = fresh.request(Operation::acknowledge, kSqPsn + 1);
    nak.syndrome = syndrome;
    fresh.arrive(nak);
    EXPECT_EQ(fresh.completion()->status, WcStatus::success);
    EXPECT_EQ(fresh.completion()->status, status);
    EXPECT_EQ(fresh.completion()->status, WcStatus::flushed);
    EXPECT_EQ(fresh.state(), QpState::error);
    EXPECT_EQ(fresh.send(WrOpcode::send, 10, 4), 0);  // and what comes later
    EXPECT_EQ(fresh.completion()->status, WcStatus::flushed);
  }
}

TEST_F(Comp, AsksForTheRestOfARead) {
  bring_up();
  ASSERT_EQ(bench.send(WrOpcode::read, 1000), 0);
  auto sent = bench.all();
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(sent[0].packet.length, 1000U);
  respond(Operation::read_response_first, kSqPsn, 256);
  respond(Operation::read_response_middle, kSqPsn + 2, 256);  // one is missing
  respond(Operation::read_response_last, kSqPsn + 3, 232);
  sent = bench.all();
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(sent[0].packet.psn, kSqPsn + 1);
  EXPECT_EQ(sent[0].packet.address, 0x10000U + 256);
  EXPECT_EQ(sent[0].packet.length, 744U);
  EXPECT_FALSE(bench.completion());
  // Linux goes on with Middle, others begin with First: both are taken.
  respond(Operation::read_response_first, kSqPsn + 1, 256);
  respond(Operation::read_response_middle, kSqPsn + 2, 256);
  respond(Operation::read_response_only, kSqPsn + 3, 232);
  EXPECT_EQ(bench.completion()->status, WcStatus::success);
  EXPECT_EQ(bench.memory[999], std::byte{0xA5});
  EXPECT_EQ(bench.memory[1000], std::byte{0});
}

TEST_F(Comp, RefusesAResponseOfAnotherLength) {
  bring_up();
  ASSERT_EQ(bench.send(WrOpcode::read, 300), 0);
  static_cast<void>(bench.all());
  respond(Operation::read_response_first, kSqPsn, 252);
  EXPECT_EQ(bench.completion()->status, WcStatus::bad_response);
}

// An acknowledgement of what follows a READ says that its response was lost, not that it came.
TEST_F(Comp, TakesAnAnswerPastAReadForALoss) {
  bring_up();
  ASSERT_EQ(bench.send(WrOpcode::read, 100, 1), 0);
  ASSERT_EQ(bench.send(WrOpcode::send, 100, 2), 0);
  ASSERT_EQ(bench.all().size(), 2U);
  reply(kSqPsn + 1);
  EXPECT_FALSE(bench.completion());
  EXPECT_EQ(bench.all().size(), 2U);
  respond(Operation::read_response_only, kSqPsn, 100);
  reply(kSqPsn + 1);
  EXPECT_EQ(bench.completion()->wr_id, 1U);
  EXPECT_EQ(bench.completion()->wr_id, 2U);
}

// It would keep a broken connection open for ever.
TEST_F(Comp, AResponseToNothingIsNoProgress) {
  bring_up(1);
  ASSERT_EQ(bench.send(WrOpcode::send, 100), 0);
  for (int time = 0; time < 2; ++time) {
    ASSERT_EQ(bench.all().size(), 1U);
    respond(Operation::read_response_only, kSqPsn, 100);
    ASSERT_TRUE(bench.wait());
  }
  const auto completion = bench.completion();
  ASSERT_TRUE(completion);
  EXPECT_EQ(completion->status, WcStatus::retries_exceeded);
}

TEST_F(Comp, AnErrorEndsTheAnswersToThePeer) {
  bring_up();
  auto read = bench.request(Operation::read_request, kRqPsn);
  read.length = 600;
  bench.arrive(read);
  ASSERT_EQ(bench.send(WrOpcode::send, 100), 0);
  static_cast<void>(bench.next());
  static_cast<void>(bench.next());
  reply(kSqPsn, wire::kNakRemoteAccess);
  ASSERT_EQ(bench.state(), QpState::error);
  EXPECT_TRUE(bench.all().empty());
}

TEST_F(Comp, StoresWhatAnAtomicFound) {
  bring_up();
  ASSERT_EQ(bench.send(WrOpcode::fetch_add, 8), 0);
  const auto sent = bench.all();
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(sent[0].packet.swap_or_add, 3U);
  EXPECT_EQ(sent[0].packet.compare, 0U);
  auto response = bench.request(Operation::atomic_acknowledge, kSqPsn);
  response.original = 0x0102030405060708;
  bench.arrive(response);
  EXPECT_EQ(bench.completion()->status, WcStatus::success);
  std::uint64_t stored = 0;
  std::memcpy(&stored, bench.memory.data(), sizeof stored);
  EXPECT_EQ(stored, 0x0102030405060708U);
}

TEST_F(Comp, AnAtomicWriteEndsWithAnAnswerWithoutData) {
  bring_up();
  WorkRequest work;
  work.opcode = WrOpcode::atomic_write;
  work.flags = kInline;
  work.remote_address = 0x10000;
  const std::array<std::byte, 8> value{std::byte{1}, std::byte{2}};
  ASSERT_EQ(bench.engine.post_send(bench.qpn, work, {}, value), 0);
  ASSERT_EQ(bench.send(WrOpcode::send, 10, 2), 0);
  const auto sent = bench.all();
  ASSERT_EQ(sent.size(), 2U);
  EXPECT_EQ(wire::operation_of(sent[0].packet.opcode), Operation::atomic_write);
  EXPECT_EQ(sent[0].packet.length, 8U);
  EXPECT_EQ(sent[0].payload, std::vector<std::byte>(value.begin(), value.end()));
  // An acknowledgement of what is behind it stands for it as little as for a READ.
  reply(kSqPsn + 1);
  EXPECT_FALSE(bench.completion());
  bench.arrive(bench.request(Operation::read_response_only, kSqPsn));
  const auto completion = bench.completion();
  ASSERT_TRUE(completion);
  EXPECT_EQ(completion->status, WcStatus::success);
  EXPECT_EQ(completion->opcode, WcOpcode::atomic_write);
}

TEST_F(Comp, DrainsInSqd) {
  bring_up();
  ASSERT_EQ(bench.send(WrOpcode::send, 10, 1), 0);
  ASSERT_EQ(bench.all().size(), 1U);
  bench.attributes.sqd_event = true;
  ASSERT_EQ(bench.to(QpState::sqd, kMaskSqdEvent), 0);
  EXPECT_FALSE(bench.event());
  ASSERT_EQ(bench.send(WrOpcode::send, 10, 2), 0);
  EXPECT_TRUE(bench.all().empty());
  reply(kSqPsn);
  EXPECT_EQ(bench.event(), EventType::send_queue_drained);
  EXPECT_TRUE(bench.all().empty());
  ASSERT_EQ(bench.to(QpState::rts, 0), 0);
  EXPECT_EQ(bench.all().size(), 1U);
}

}  // namespace
}  // namespace weft::roce
