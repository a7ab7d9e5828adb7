// Owns what leaves: segmentation, order, waiting, and what is refused before it leaves.
//
// One engine alone. The bench hands it work and looks at each packet that leaves; what a peer would
// answer is made by hand, so that answers can come late, early or never. The path MTU is 256 bytes.
#include <gtest/gtest.h>

#include <cerrno>

#include "tests/unit/emu/roce/engine/bench.hpp"

namespace weft::roce {
namespace {

using wire::Operation;

class Req : public ::testing::Test {
 protected:
  // What the peer would say; there is no second engine in these tests.
  void acknowledge(std::uint32_t psn) { bench.arrive(bench.request(Operation::acknowledge, psn)); }
  Bench bench;
};

// Only the last packet carries the immediate data, asks for an acknowledgement and is solicited;
// only the first one names the memory, with the length of the whole message.
TEST_F(Req, CutsByThePathMtu) {
  bench.bring_up();
  ASSERT_EQ(bench.send(WrOpcode::write_immediate, 600, 1, kSolicitedEvent), 0);
  const auto sent = bench.all();
  ASSERT_EQ(sent.size(), 3U);
  constexpr Operation kExpected[] = {Operation::write_first, Operation::write_middle,
                                     Operation::write_last_immediate};
  for (std::uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(wire::operation_of(sent[i].packet.opcode), kExpected[i]);
    EXPECT_EQ(sent[i].packet.psn, kSqPsn + i);
    EXPECT_EQ(sent[i].packet.ack_request, i == 2);
    EXPECT_EQ(sent[i].packet.solicited, i == 2);
    EXPECT_EQ(sent[i].payload.size(), i == 2 ? 88U : 256U);
    EXPECT_EQ(sent[i].packet.destination_qpn, kPeerQpn);
  }
  EXPECT_EQ(sent[0].packet.length, 600U);
  EXPECT_EQ(sent[2].packet.immediate, 0xABCDU);
}

// A whole message in one packet is an Only; 256 bytes still are.
TEST_F(Req, NamesEachOperation) {
  bench.bring_up();
  const auto operation = [this](WrOpcode opcode, std::uint32_t length) {
    EXPECT_EQ(bench.send(opcode, length), 0);
    const auto sent = bench.all();
    EXPECT_EQ(sent.size(), 1U);
    acknowledge(sent.back().packet.psn);
    return wire::operation_of(sent.back().packet.opcode);
  };
  EXPECT_EQ(operation(WrOpcode::send, 0), Operation::send_only);
  EXPECT_EQ(operation(WrOpcode::send, 256), Operation::send_only);
  EXPECT_EQ(operation(WrOpcode::send_immediate, 1), Operation::send_only_immediate);
  EXPECT_EQ(operation(WrOpcode::send_invalidate, 1), Operation::send_only_invalidate);
  EXPECT_EQ(operation(WrOpcode::write, 1), Operation::write_only);
  EXPECT_EQ(operation(WrOpcode::write_immediate, 1), Operation::write_only_immediate);
  EXPECT_EQ(operation(WrOpcode::compare_swap, 8), Operation::compare_swap);
}

// A packet's payload is one piece on the wire. Pieces of no bytes are allowed, and pad rounds up to
// four.
TEST_F(Req, GathersManyPieces) {
  bench.bring_up();
  for (std::size_t i = 0; i < 64; ++i) {
    bench.memory[i] = static_cast<std::byte>(i);
  }
  const Sge pieces[] = {bench.sge(32, 3), bench.sge(0, 0), bench.sge(10, 2), bench.sge(1, 4)};
  WorkRequest work;
  ASSERT_EQ(bench.engine.post_send(bench.qpn, work, pieces), 0);
  const auto sent = bench.next();
  ASSERT_TRUE(sent);
  const std::vector<std::byte> expected = {std::byte{32}, std::byte{33}, std::byte{34},
                                           std::byte{10}, std::byte{11}, std::byte{1},
                                           std::byte{2},  std::byte{3},  std::byte{4}};
  EXPECT_EQ(sent->payload, expected);
  EXPECT_EQ(sent->packet.pad, 3);
}

// The carrier copies a burst only when it has all of it, so the gathered bytes of one packet must
// not lie where those of the next one are put.
TEST_F(Req, KeepsWhatItGatheredForABurst) {
  QpSetup request = Bench::default_request();
  request.max_send = 40;
  Bench many(QpType::rc, request);
  many.bring_up();
  for (std::size_t i = 0; i < many.memory.size(); ++i) {
    many.memory[i] = static_cast<std::byte>(i * 7);
  }
  for (std::uint32_t i = 0; i < 40; ++i) {
    const Sge pieces[] = {many.sge(i, 1), many.sge(100 + i, 2)};
    ASSERT_EQ(many.engine.post_send(many.qpn, WorkRequest{}, pieces), 0);
  }
  const auto sent = many.all();
  ASSERT_EQ(sent.size(), 40U);
  for (std::size_t i = 0; i < sent.size(); ++i) {
    const std::vector<std::byte> expected = {many.memory[i], many.memory[100 + i],
                                             many.memory[101 + i]};
    EXPECT_EQ(sent[i].payload, expected) << i;
  }
}

// As a program sees it that asks for a queue pair: a number that is not acknowledged is still the
// next one to be sent; "draining" ends with the last acknowledgement.
TEST_F(Req, TellsHowFarItHasCome) {
  bench.bring_up();
  ASSERT_EQ(bench.send(WrOpcode::write, 600), 0);
  bench.arrive(bench.request(Operation::send_only, kRqPsn + 1));  // a gap
  ASSERT_EQ(bench.all().size(), 4U);
  EXPECT_EQ(bench.engine.query_qp(bench.qpn)->sq_psn, kSqPsn + 3);
  EXPECT_EQ(bench.engine.query_qp(bench.qpn)->rq_psn, kRqPsn);
  EXPECT_FALSE(bench.engine.query_qp(bench.qpn)->draining);
  ASSERT_EQ(bench.to(QpState::sqd, 0), 0);
  EXPECT_TRUE(bench.engine.query_qp(bench.qpn)->draining);
  acknowledge(kSqPsn + 2);
  EXPECT_FALSE(bench.engine.query_qp(bench.qpn)->draining);
  bench.arrive(bench.request(Operation::write_only, kRqPsn));
  EXPECT_EQ(bench.engine.query_qp(bench.qpn)->rq_psn, kRqPsn + 1);
}

// The program may change its buffer as soon as the post has returned.
TEST_F(Req, SendsInlineDataAsItWasWhenPosted) {
  bench.bring_up();
  std::array<std::byte, 5> data{std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4},
                                std::byte{5}};
  WorkRequest work;
  work.flags = kInline;
  ASSERT_EQ(bench.engine.post_send(bench.qpn, work, {}, data), 0);
  data.fill(std::byte{9});
  EXPECT_EQ(bench.next()->payload[4], std::byte{5});
  std::array<std::byte, 65> large{};
  EXPECT_EQ(bench.engine.post_send(bench.qpn, work, {}, large), EINVAL);
}

// A long message asks for acknowledgements on its way, or the window would close and nobody would
// have been asked to open it.
TEST_F(Req, KeepsToItsWindow) {
  auto config = Bench::default_config();
  // Packets that may be under way; the default is larger than any message here.
  config.window = 8;
  Bench narrow(QpType::rc, Bench::default_request(), config);
  narrow.bring_up();
  ASSERT_EQ(narrow.send(WrOpcode::write, 256 * 20), 0);
  const auto sent = narrow.all();
  ASSERT_EQ(sent.size(), 8U);
  EXPECT_TRUE(sent[3].packet.ack_request);  // every half window
  EXPECT_FALSE(sent[4].packet.ack_request);
  narrow.arrive(narrow.request(Operation::acknowledge, kSqPsn + 3));
  EXPECT_EQ(narrow.all().size(), 4U);
}

// max_reads is what the peer has room for. The send behind the third read waits as well: requests
// keep their order.
TEST_F(Req, HasNoMoreReadsUnderWayThanItMay) {
  bench.attributes.max_reads = 2;
  bench.bring_up();
  for (std::uint64_t id = 1; id <= 3; ++id) {
    ASSERT_EQ(bench.send(WrOpcode::read, 10, id), 0);
  }
  ASSERT_EQ(bench.send(WrOpcode::send, 10, 4), 0);
  EXPECT_EQ(bench.all().size(), 2U);
  bench.arrive(bench.request(Operation::read_response_only, kSqPsn), 10);
  EXPECT_EQ(bench.all().size(), 2U);
}

// A fenced request may depend on the bytes that a read brings, so it waits for the response; the
// one without does not.
TEST_F(Req, FencesBehindReads) {
  bench.bring_up();
  ASSERT_EQ(bench.send(WrOpcode::read, 10, 1), 0);
  ASSERT_EQ(bench.send(WrOpcode::send, 10, 2), 0);
  ASSERT_EQ(bench.send(WrOpcode::send, 10, 3, kFence), 0);
  EXPECT_EQ(bench.all().size(), 2U);
  bench.arrive(bench.request(Operation::read_response_only, kSqPsn), 10);
  EXPECT_EQ(bench.all().size(), 1U);
}

// A request that cannot be executed fails when those before it have completed, not before; those
// behind it are flushed.
TEST_F(Req, FailsInItsTurn) {
  bench.bring_up();
  ASSERT_EQ(bench.send(WrOpcode::send, 10, 1), 0);
  WorkRequest bad;
  bad.wr_id = 2;
  const Sge nowhere{bench.address(0), 10, bench.key ^ 1};
  ASSERT_EQ(bench.engine.post_send(bench.qpn, bad, {&nowhere, 1}), 0);
  ASSERT_EQ(bench.send(WrOpcode::send, 10, 3), 0);
  EXPECT_EQ(bench.all().size(), 1U);
  EXPECT_FALSE(bench.completion());
  acknowledge(kSqPsn);
  EXPECT_TRUE(bench.all().empty());
  EXPECT_EQ(bench.completion()->status, WcStatus::success);
  EXPECT_EQ(bench.completion()->status, WcStatus::local_protection);
  EXPECT_EQ(bench.completion()->status, WcStatus::flushed);
}

// Each on a queue pair of its own, because an error ends it. Success would mean that it has left.
TEST_F(Req, RefusesWhatMakesNoSense) {
  const auto status = [](QpType type, WrOpcode opcode, std::uint32_t length,
                         std::uint8_t max_reads) {
    Bench fresh(type);
    fresh.attributes.max_reads = max_reads;
    fresh.bring_up(type);
    EXPECT_EQ(fresh.send(opcode, length), 0);
    EXPECT_TRUE(fresh.all().empty());
    const auto completion = fresh.completion();
    return completion ? completion->status : WcStatus::success;
  };
  EXPECT_EQ(status(QpType::rc, WrOpcode::read, 8, 0), WcStatus::local_qp_operation);
  EXPECT_EQ(status(QpType::rc, WrOpcode::fetch_add, 4, 1), WcStatus::local_length);
  // Its value is in the request, and the peer has to keep an answer.
  EXPECT_EQ(status(QpType::rc, WrOpcode::atomic_write, 8, 1), WcStatus::local_qp_operation);
  EXPECT_EQ(status(QpType::rc, WrOpcode::atomic_write, 8, 0), WcStatus::local_qp_operation);
  EXPECT_EQ(status(QpType::rc, WrOpcode::atomic_write, 4, 1), WcStatus::local_length);
  EXPECT_EQ(status(QpType::uc, WrOpcode::read, 8, 1), WcStatus::local_qp_operation);
  EXPECT_EQ(status(QpType::ud, WrOpcode::write, 8, 1), WcStatus::local_qp_operation);
}

// UC has no acknowledgements, so nothing is waited for. An error stops the sending side only (SQE),
// from which the program can go back to RTS.
TEST_F(Req, CompletesUcWhenTheLastPacketHasLeftAndStopsInSqe) {
  Bench uc(QpType::uc);
  uc.bring_up(QpType::uc);
  ASSERT_EQ(uc.send(WrOpcode::send, 300, 1), 0);
  const auto sent = uc.all();
  ASSERT_EQ(sent.size(), 2U);
  EXPECT_EQ(sent[0].packet.opcode, 0x20);
  EXPECT_FALSE(sent[1].packet.ack_request);
  EXPECT_EQ(uc.completion()->status, WcStatus::success);
  EXPECT_EQ(uc.engine.next_timeout(), kNever);
  ASSERT_EQ(uc.send(WrOpcode::read, 8, 2), 0);
  EXPECT_TRUE(uc.all().empty());
  EXPECT_EQ(uc.completion()->status, WcStatus::local_qp_operation);
  EXPECT_EQ(uc.state(), QpState::sqe);
  ASSERT_EQ(uc.to(QpState::rts, 0), 0);
  ASSERT_EQ(uc.send(WrOpcode::send, 8, 3), 0);
  EXPECT_EQ(uc.all().size(), 1U);
}

// A long answer to a read must not keep our own requests waiting, nor the other way round.
TEST_F(Req, TakesTurnsWithWhatIsOwedToThePeer) {
  bench.bring_up();
  auto read = bench.request(Operation::read_request, kRqPsn);
  read.length = 2048;
  bench.arrive(read);
  ASSERT_EQ(bench.send(WrOpcode::write, 2048), 0);
  const auto sent = bench.all();
  ASSERT_EQ(sent.size(), 16U);
  for (std::size_t i = 0; i + 1 < sent.size(); ++i) {
    EXPECT_NE(sent[i].packet.has(wire::kResponse), sent[i + 1].packet.has(wire::kResponse)) << i;
  }
}

// Binding and invalidating are requests like others: in order, but without packets. A bind may go
// ahead of a send that is not acknowledged; an invalidate waits, because the send may have to be
// repeated.
TEST_F(Req, ExecutesLocalRequestsInTheirTurn) {
  bench.bring_up();
  const std::uint32_t window = bench.engine.keys().allocate_window(2, kDomain);
  WorkRequest work;
  work.opcode = WrOpcode::bind_window;
  work.window = window;
  work.new_rkey = window + 1;
  work.bind_lkey = bench.key;
  work.bind_access = kRemoteRead;
  work.bind_address = bench.address(0);
  work.bind_length = 8;
  const std::uint32_t rkey = (window & ~0xFFU) | ((window + 1) & 0xFF);
  const auto opens = [&] {
    return bench.engine.keys().remote(rkey, bench.address(0), 8, kRemoteRead, kDomain, bench.qpn) !=
           nullptr;
  };
  ASSERT_EQ(bench.send(WrOpcode::send, 8, 1), 0);
  ASSERT_EQ(bench.engine.post_send(bench.qpn, work, {}), 0);
  work.opcode = WrOpcode::local_invalidate;
  work.invalidate = rkey;
  ASSERT_EQ(bench.engine.post_send(bench.qpn, work, {}), 0);
  ASSERT_EQ(bench.send(WrOpcode::send, 8, 4), 0);
  EXPECT_EQ(bench.all().size(), 1U);
  EXPECT_TRUE(opens());  // bound, and not invalidated before all that is before that is done
  EXPECT_FALSE(bench.completion());
  acknowledge(kSqPsn);
  EXPECT_EQ(bench.all().size(), 1U);
  EXPECT_FALSE(opens());
  EXPECT_EQ(bench.completion()->opcode, WcOpcode::send);
  EXPECT_EQ(bench.completion()->opcode, WcOpcode::bind_window);
  EXPECT_EQ(bench.completion()->opcode, WcOpcode::local_invalidate);
  acknowledge(kSqPsn + 1);
  EXPECT_EQ(bench.completion()->status, WcStatus::success);
  ASSERT_EQ(bench.engine.post_send(bench.qpn, work, {}), 0);  // there is nothing to invalidate
  EXPECT_TRUE(bench.all().empty());
  EXPECT_EQ(bench.completion()->status, WcStatus::local_qp_operation);
}

// A bind has no answer to wait for, and is done at once; its completion is told in order.
TEST_F(Req, CompletesALocalRequestAfterTheReadBeforeIt) {
  bench.bring_up();
  WorkRequest work;
  work.opcode = WrOpcode::bind_window;
  work.window = bench.engine.keys().allocate_window(1, kDomain);
  ASSERT_EQ(bench.send(WrOpcode::read, 10, 1), 0);
  ASSERT_EQ(bench.engine.post_send(bench.qpn, work, {}), 0);
  EXPECT_EQ(bench.all().size(), 1U);
  bench.arrive(bench.request(Operation::read_response_only, kSqPsn), 10);
  EXPECT_EQ(bench.completion()->opcode, WcOpcode::read);
  const auto bound = bench.completion();
  ASSERT_TRUE(bound);
  EXPECT_EQ(bound->opcode, WcOpcode::bind_window);
}

// Receives from INIT on, sends from RTS on. RESET forgets without a word what ERROR flushes, one
// completion each.
TEST_F(Req, TakesWorkOnlyInTheRightStates) {
  EXPECT_EQ(bench.send(WrOpcode::send, 8), EINVAL);
  const Sge segment = bench.sge(0, 8);
  EXPECT_EQ(bench.engine.post_receive(bench.qpn, 1, {&segment, 1}), EINVAL);
  bench.bring_up(QpType::rc, QpState::init);
  EXPECT_EQ(bench.engine.post_receive(bench.qpn, 1, {&segment, 1}), 0);
  EXPECT_EQ(bench.send(WrOpcode::send, 8), EINVAL);
  ASSERT_EQ(bench.to(QpState::reset, 0), 0);
  EXPECT_FALSE(bench.completion());  // vanished
  bench.bring_up();
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(bench.send(WrOpcode::send, 8), 0);
  }
  EXPECT_EQ(bench.send(WrOpcode::send, 8), ENOMEM);
  EXPECT_EQ(bench.engine.post_receive(bench.qpn, 1, {&segment, 1}), 0);
  ASSERT_EQ(bench.to(QpState::error, 0), 0);
  for (int i = 0; i < 9; ++i) {
    const auto flushed = bench.completion();
    ASSERT_TRUE(flushed);
    EXPECT_EQ(flushed->status, WcStatus::flushed);
    EXPECT_EQ(flushed->opcode, i < 8 ? WcOpcode::send : WcOpcode::receive);
  }
  EXPECT_FALSE(bench.completion());
}

}  // namespace
}  // namespace weft::roce
