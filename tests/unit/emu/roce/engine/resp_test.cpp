// Owns the order of the responder's checks and the answer of each, and the replay of READs and
// atomics.
//
// One engine alone, as a responder. The bench makes packets as a peer would, wrong in the way that
// a case needs, and looks at the answer: its syndrome (0xFF: there was none), what was written, and
// what the program is told.
#include <gtest/gtest.h>

#include <utility>

#include "tests/unit/emu/roce/engine/bench.hpp"

namespace weft::roce {
namespace {

using wire::Operation;

class Resp : public ::testing::Test {
 protected:
  Resp() { bench.bring_up(); }
  // Behind the first half of the memory, which requests name.
  void post_receive(std::uint32_t length = 1024, std::uint64_t wr_id = 7) {
    const Sge segment = bench.sge(4096, length);
    ASSERT_EQ(bench.engine.post_receive(bench.qpn, wr_id, {&segment, 1}), 0);
  }
  Bench bench;
};

// The MSN counts messages that are complete.
TEST_F(Resp, AcknowledgesASendWithMsnOne) {
  post_receive();
  bench.arrive(bench.request(Operation::send_only, kRqPsn), 5);
  const auto answer = bench.next();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->packet.syndrome, wire::kAckNoCredit);
  EXPECT_EQ(answer->packet.psn, kRqPsn);
  EXPECT_EQ(answer->packet.msn, 1U);
  EXPECT_EQ(answer->packet.destination_qpn, kPeerQpn);
  EXPECT_EQ(answer->to, host(2));
  const auto completion = bench.completion();
  ASSERT_TRUE(completion);
  EXPECT_EQ(completion->wr_id, 7U);
  EXPECT_EQ(completion->length, 5U);
  EXPECT_EQ(bench.memory[4096 + 4], std::byte{0xA5});
  EXPECT_EQ(bench.memory[4096 + 5], std::byte{0});
}

// Each packet here is wrong in its own way and in all ways that are checked later.
TEST_F(Resp, ChecksInLinuxsOrder) {
  auto packet = bench.request(Operation::write_middle, kRqPsn + 1);
  bench.arrive(packet, 256);
  EXPECT_EQ(bench.answer(), wire::kNakSequence);  // the PSN first

  packet.psn = kRqPsn;
  bench.arrive(packet, 256);                            // as long as a middle has to be
  EXPECT_EQ(bench.answer(), wire::kNakInvalidRequest);  // then the opcode
  EXPECT_EQ(bench.state(), QpState::error);
  EXPECT_EQ(bench.event(), EventType::qp_request_error);
}

// The packet's key is wrong as well: the answer shows which check came first.
TEST_F(Resp, ChecksTheRightsOfTheQueuePairBeforeLengthAndKey) {
  bench.attributes.access = kLocalWrite;
  ASSERT_EQ(bench.engine.modify_qp(bench.now, bench.qpn, kMaskAccess, bench.attributes), 0);
  auto packet = bench.request(Operation::write_only, kRqPsn);
  packet.rkey = 0xBAD;
  packet.length = 8;
  bench.arrive(packet, 8);
  EXPECT_EQ(bench.answer(), wire::kNakInvalidRequest);
}

// A sender that is told RNR sends the same packet again. Only then, with a receive, it hears of the
// length.
TEST_F(Resp, ChecksForAReceiveBeforeTheLength) {
  bench.arrive(bench.request(Operation::send_only, kRqPsn), 1000);  // above the MTU of 256
  EXPECT_EQ(bench.answer(), wire::kRnrNak | 12U);
  EXPECT_EQ(bench.state(), QpState::rts);
  // Nothing behind it is answered, and the PSN stays expected.
  bench.arrive(bench.request(Operation::send_only, kRqPsn + 1), 4);
  EXPECT_EQ(bench.answer(), 0xFFU);
  post_receive();
  bench.arrive(bench.request(Operation::send_only, kRqPsn), 1000);
  EXPECT_EQ(bench.answer(), wire::kNakInvalidRequest);
}

// A wrong length is said by another NAK than a wrong key.
TEST_F(Resp, ChecksTheLengthBeforeTheKey) {
  auto packet = bench.request(Operation::write_first, kRqPsn);
  packet.rkey = 0xBAD;
  packet.length = 512;
  bench.arrive(packet, 128);  // a First is as long as the MTU
  EXPECT_EQ(bench.answer(), wire::kNakInvalidRequest);
}

// By one bit: the index is right, and the variant is another owner's.
TEST_F(Resp, RefusesABadKey) {
  auto packet = bench.request(Operation::write_only, kRqPsn);
  packet.rkey ^= 1;
  packet.length = 8;
  bench.arrive(packet, 8);
  EXPECT_EQ(bench.answer(), wire::kNakRemoteAccess);
  EXPECT_EQ(bench.event(), EventType::qp_access_error);
  EXPECT_EQ(bench.state(), QpState::error);
  EXPECT_EQ(bench.memory[0], std::byte{0});
}

// As the specification and Linux have it: nothing is touched, so nothing is protected.
TEST_F(Resp, AsksForNoKeyForNoBytes) {
  auto packet = bench.request(Operation::write_only, kRqPsn);
  packet.rkey = 0xBAD;
  bench.arrive(packet);
  EXPECT_EQ(bench.answer(), wire::kAckNoCredit);
  packet = bench.request(Operation::read_request, kRqPsn + 1);
  packet.rkey = 0xBAD;
  bench.arrive(packet);
  const auto response = bench.next();
  ASSERT_TRUE(response);
  EXPECT_EQ(wire::operation_of(response->packet.opcode), Operation::read_response_only);
}

// An atomic works on eight bytes at a multiple of eight.
TEST_F(Resp, RefusesAMisalignedAtomic) {
  auto packet = bench.request(Operation::fetch_add, kRqPsn);
  packet.address += 4;
  bench.arrive(packet);
  EXPECT_EQ(bench.answer(), wire::kNakInvalidRequest);
}

// Both ends hear of it, each in its own words, and the queue pair ends.
TEST_F(Resp, RefusesASendLongerThanItsReceive) {
  post_receive(16);
  bench.arrive(bench.request(Operation::send_only, kRqPsn), 17);
  EXPECT_EQ(bench.answer(), wire::kNakInvalidRequest);
  EXPECT_EQ(bench.completion()->status, WcStatus::local_length);
  EXPECT_EQ(bench.state(), QpState::error);
}

// 300 bytes were announced; 256 and 45 are 301.
TEST_F(Resp, RefusesAWriteThatIsNotAsLongAsItSays) {
  auto packet = bench.request(Operation::write_first, kRqPsn);
  packet.length = 300;
  bench.arrive(packet, 256);
  bench.arrive(bench.request(Operation::write_last, kRqPsn + 1), 45);
  EXPECT_EQ(bench.all().back().packet.syndrome, wire::kNakInvalidRequest);
}

// Each packet behind the gap would ask for the same one again. The NAK is said once, and again only
// after the missing one has come.
TEST_F(Resp, SaysOnceThatAPacketIsMissing) {
  post_receive();
  bench.arrive(bench.request(Operation::send_only, kRqPsn + 2), 4);
  const auto nak = bench.next();
  ASSERT_TRUE(nak);
  EXPECT_EQ(nak->packet.syndrome, wire::kNakSequence);
  EXPECT_EQ(nak->packet.psn, kRqPsn);
  bench.arrive(bench.request(Operation::send_only, kRqPsn + 3), 4);
  EXPECT_EQ(bench.answer(), 0xFFU);
  bench.arrive(bench.request(Operation::send_only, kRqPsn), 4);
  EXPECT_EQ(bench.answer(), wire::kAckNoCredit);
  bench.arrive(bench.request(Operation::send_only, kRqPsn + 4), 4);
  EXPECT_EQ(bench.answer(), wire::kNakSequence);
}

// The answer names the latest number that was executed, not that of the duplicate.
TEST_F(Resp, AcknowledgesADuplicateAgainWithoutExecutingIt) {
  post_receive();
  post_receive();
  bench.arrive(bench.request(Operation::send_only, kRqPsn), 4);
  bench.arrive(bench.request(Operation::send_only, kRqPsn + 1), 4);
  static_cast<void>(bench.all());
  bench.arrive(bench.request(Operation::send_only, kRqPsn), 4);
  const auto ack = bench.next();
  ASSERT_TRUE(ack);
  EXPECT_EQ(ack->packet.psn, (kRqPsn + 1) & kPsnMask);
  EXPECT_EQ(ack->packet.msn, 2U);
  EXPECT_EQ(bench.sink.completions.size(), 2U);
}

// Linux completes a READ, without its data, by an acknowledgement that has its number.
TEST_F(Resp, DoesNotAcknowledgeAReadForADuplicateSendBeforeIt) {
  std::uint32_t first = kRqPsn;
  for (const auto& [length, answer] : {std::pair(64U, Operation::read_response_only),
                                       std::pair(600U, Operation::read_response_first)}) {
    post_receive();
    bench.arrive(bench.request(Operation::send_only, first), 4);
    auto read = bench.request(Operation::read_request, psn_plus(first, 1));
    read.length = length;
    bench.arrive(read);
    static_cast<void>(bench.all());  // both answers are lost
    bench.arrive(bench.request(Operation::send_only, first), 4);
    const auto ack = bench.next();
    ASSERT_TRUE(ack);
    EXPECT_EQ(wire::operation_of(ack->packet.opcode), Operation::acknowledge);
    EXPECT_EQ(ack->packet.psn, first);
    bench.arrive(read);
    const auto again = bench.next();
    ASSERT_TRUE(again);
    EXPECT_EQ(wire::operation_of(again->packet.opcode), answer);
    static_cast<void>(bench.all());
    first = psn_plus(first, 2);
  }
}

// The answer may have been lost, so it is asked for again: what the memory held before is kept for
// as many atomics as may be under way.
TEST_F(Resp, NeverExecutesAnAtomicTwice) {
  auto packet = bench.request(Operation::fetch_add, kRqPsn);
  packet.swap_or_add = 5;
  for (int time = 0; time < 3; ++time) {
    bench.arrive(packet);
    const auto response = bench.next();
    ASSERT_TRUE(response);
    EXPECT_EQ(response->packet.original, 0U);
    EXPECT_EQ(response->packet.msn, 1U);
  }
  EXPECT_EQ(bench.memory[0], std::byte{5});
  packet.opcode = wire::opcode_of(wire::Transport::rc, Operation::compare_swap);
  packet.psn = (kRqPsn + 1) & kPsnMask;
  packet.compare = 5;
  packet.swap_or_add = 9;
  bench.arrive(packet);
  EXPECT_EQ(bench.next()->packet.original, 5U);
  EXPECT_EQ(bench.memory[0], std::byte{9});
  // Beyond what is kept, a duplicate is dropped.
  for (std::uint32_t i = 2; i < 6; ++i) {
    packet.psn = (kRqPsn + i) & kPsnMask;
    bench.arrive(packet);
  }
  static_cast<void>(bench.all());
  packet.psn = kRqPsn;
  bench.arrive(packet);
  EXPECT_FALSE(bench.next());
}

// Answered as a READ of no bytes, as by Linux, and a duplicate is answered again and not executed.
TEST_F(Resp, WritesEightBytesAtOnceAndOnce) {
  auto packet = bench.request(Operation::atomic_write, kRqPsn);
  packet.length = 8;
  for (int time = 0; time < 3; ++time) {
    bench.arrive(packet, 8);
    const auto response = bench.next();
    ASSERT_TRUE(response);
    EXPECT_EQ(wire::operation_of(response->packet.opcode), Operation::read_response_only);
    EXPECT_EQ(response->packet.psn, kRqPsn);
    EXPECT_EQ(response->packet.msn, 1U);
    EXPECT_TRUE(response->payload.empty());
    EXPECT_EQ(bench.memory[7], time == 0 ? std::byte{0xA5} : std::byte{1});
    bench.memory[7] = std::byte{1};
  }
  EXPECT_EQ(bench.memory[8], std::byte{});
}

// In this order: a good one; not at a multiple of eight; longer than eight; with too few bytes;
// without the right to write; outside of the memory.
TEST_F(Resp, RefusesAtomicWritesThatAreNone) {
  const auto answer = [](std::uint64_t offset, std::uint32_t length, std::size_t payload,
                         std::uint32_t access) {
    Bench fresh;
    fresh.attributes.access = access;
    fresh.bring_up();
    auto packet = fresh.request(Operation::atomic_write, kRqPsn);
    packet.address += offset;
    packet.length = length;
    fresh.arrive(packet, payload);
    return fresh.answer();
  };
  EXPECT_EQ(answer(0, 8, 8, kRemoteWrite), wire::kAckNoCredit);
  EXPECT_EQ(answer(4, 8, 8, kAllAccess), wire::kNakInvalidRequest);
  EXPECT_EQ(answer(0, 16, 8, kAllAccess), wire::kNakInvalidRequest);
  EXPECT_EQ(answer(0, 8, 4, kAllAccess), wire::kNakInvalidRequest);
  EXPECT_EQ(answer(0, 8, 8, kRemoteAtomic | kRemoteRead), wire::kNakInvalidRequest);
  EXPECT_EQ(answer(8192, 8, 8, kAllAccess), wire::kNakRemoteAccess);
}

// Sequence numbers come round, and the atomic that had this one first is still remembered.
TEST_F(Resp, ANewAtomicIsAnsweredByWhatItFound) {
  auto packet = bench.request(Operation::fetch_add, kRqPsn);
  packet.swap_or_add = 5;
  bench.arrive(packet);
  EXPECT_EQ(bench.next()->packet.original, 0U);

  auto nothing = bench.request(Operation::write_only, 0);
  nothing.length = 0;
  nothing.ack_request = false;
  std::vector<std::byte> bytes(wire::kLargestHeader);
  bytes.resize(wire::write_headers(nothing, bytes.data()));
  srd::RxPacket rx;
  rx.from = host(2);
  rx.bytes = bytes;
  // All 2^24 numbers, by writes of no bytes that ask for no answer. The number is written into the
  // same packet each time: making a new one would take most of the test's time.
  for (std::uint32_t i = 1; i <= kPsnMask; ++i) {
    const std::uint32_t psn = (kRqPsn + i) & kPsnMask;
    for (int byte = 0; byte < 3; ++byte) {
      bytes[9 + static_cast<std::size_t>(byte)] = static_cast<std::byte>(psn >> (16 - 8 * byte));
    }
    bench.engine.on_packet(bench.now, rx);
  }
  bench.arrive(packet);
  EXPECT_EQ(bench.next()->packet.original, 5U);
  EXPECT_EQ(bench.memory[0], std::byte{10});
  bench.arrive(packet);  // a duplicate of the newer one
  EXPECT_EQ(bench.next()->packet.original, 5U);
}

// 600 bytes by a path MTU of 256: two whole packets and 88 bytes.
TEST_F(Resp, AnswersAReadPacketByPacket) {
  bench.memory[0] = std::byte{1};
  auto packet = bench.request(Operation::read_request, kRqPsn);
  packet.length = 600;
  bench.arrive(packet);
  const auto packets = bench.all();
  ASSERT_EQ(packets.size(), 3U);
  constexpr Operation kExpected[] = {Operation::read_response_first,
                                     Operation::read_response_middle,
                                     Operation::read_response_last};
  for (std::uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(wire::operation_of(packets[i].packet.opcode), kExpected[i]);
    EXPECT_EQ(packets[i].packet.psn, (kRqPsn + i) & kPsnMask);
    EXPECT_EQ(packets[i].payload.size(), i == 2 ? 88U : 256U);
  }
  EXPECT_EQ(packets[0].packet.msn, 1U);  // a READ counts when it is asked for
  // The next request follows all PSNs of the responses.
  post_receive();
  bench.arrive(bench.request(Operation::send_only, kRqPsn + 3), 4);
  EXPECT_EQ(bench.answer(), wire::kAckNoCredit);
}

// A READ asked for again in its middle is answered as Linux does and takes: no First, no Only.
TEST_F(Resp, RepeatsAReadFromItsMiddleAsMiddleAndLast) {
  auto packet = bench.request(Operation::read_request, kRqPsn);
  packet.length = 600;
  bench.arrive(packet);
  static_cast<void>(bench.all());
  bench.memory[256] = std::byte{0x42};  // it reads memory anew
  packet.psn = (kRqPsn + 1) & kPsnMask;
  packet.address += 256;
  packet.length -= 256;
  bench.arrive(packet);
  auto packets = bench.all();
  ASSERT_EQ(packets.size(), 2U);
  EXPECT_EQ(wire::operation_of(packets[0].packet.opcode), Operation::read_response_middle);
  EXPECT_EQ(wire::operation_of(packets[1].packet.opcode), Operation::read_response_last);
  EXPECT_EQ(packets[0].payload[0], std::byte{0x42});
  EXPECT_EQ(packets[1].packet.psn, (kRqPsn + 2) & kPsnMask);

  packet.psn = (kRqPsn + 2) & kPsnMask;
  packet.address += 256;
  packet.length -= 256;
  bench.arrive(packet);
  packets = bench.all();
  ASSERT_EQ(packets.size(), 1U);
  EXPECT_EQ(wire::operation_of(packets[0].packet.opcode), Operation::read_response_last);

  packet.length += 1;  // more than was asked for the first time
  bench.arrive(packet);
  EXPECT_FALSE(bench.next());
  packet.length -= 1;
  packet.rkey ^= 1;
  bench.arrive(packet);
  EXPECT_FALSE(bench.next());
}

// The key is looked up for each packet of the response: the region may be deregistered in the
// middle.
TEST_F(Resp, AnswersAReadWhoseMemoryGoesAwayWithANak) {
  auto packet = bench.request(Operation::read_request, kRqPsn);
  packet.length = 600;
  bench.arrive(packet);
  ASSERT_TRUE(bench.next());
  ASSERT_EQ(bench.engine.keys().deregister(bench.key), 0);
  const auto nak = bench.next();
  ASSERT_TRUE(nak);
  EXPECT_EQ(nak->packet.syndrome, wire::kNakRemoteAccess);
  EXPECT_EQ(nak->packet.psn, (kRqPsn + 1) & kPsnMask);
  EXPECT_EQ(bench.state(), QpState::error);
  EXPECT_FALSE(bench.next());
}

// A window is a key for a part of a region, which its owner may let the peer take back together
// with a message.
TEST_F(Resp, InvalidatesAWindowForASend) {
  const std::uint32_t window = bench.engine.keys().allocate_window(2, kDomain);
  WorkRequest bind;
  bind.opcode = WrOpcode::bind_window;
  bind.window = window;
  bind.new_rkey = window + 1;
  bind.bind_lkey = bench.key;
  bind.bind_access = kRemoteWrite;
  bind.bind_address = bench.address(0);
  bind.bind_length = 64;
  ASSERT_EQ(bench.engine.post_send(bench.qpn, bind, {}), 0);
  EXPECT_FALSE(bench.next());
  EXPECT_EQ(bench.completion()->opcode, WcOpcode::bind_window);
  const std::uint32_t rkey = (window & ~0xFFU) | ((window + 1) & 0xFF);
  auto write = bench.request(Operation::write_only, kRqPsn);
  write.rkey = rkey;
  write.length = 64;
  bench.arrive(write, 64);
  EXPECT_EQ(bench.answer(), wire::kAckNoCredit);

  post_receive();
  post_receive();
  auto packet = bench.request(Operation::send_only_invalidate, kRqPsn + 1);
  packet.invalidate = rkey;
  bench.arrive(packet, 4);
  EXPECT_EQ(bench.answer(), wire::kAckNoCredit);
  const auto completion = bench.completion();
  ASSERT_TRUE(completion);
  EXPECT_EQ(completion->flags, kWcInvalidate);
  EXPECT_EQ(completion->immediate, rkey);
  // A second time there is nothing to invalidate: no NAK, but the queue pair ends.
  packet.psn = (kRqPsn + 2) & kPsnMask;
  bench.arrive(packet, 4);
  EXPECT_FALSE(bench.next());
  EXPECT_EQ(bench.completion()->status, WcStatus::remote_invalid_request);
  EXPECT_EQ(bench.state(), QpState::error);
}

// Before RTR, from a host that is not the peer, and with another partition key: three strays.
TEST(RespStates, HearsRequestsFromRtrOnAndOnlyItsPeer) {
  Bench bench;
  bench.bring_up(QpType::rc, QpState::init);
  auto write = bench.request(Operation::write_only, kRqPsn);
  write.length = 4;
  bench.arrive(write, 4);
  EXPECT_FALSE(bench.next());
  bench.attributes.state = QpState::rtr;
  ASSERT_EQ(bench.to(QpState::rtr, kMaskAddress | kMaskPathMtu | kMaskDestQpn | kMaskRqPsn |
                                       kMaskMaxDestReads | kMaskMinRnrTimer),
            0);
  bench.arrive(write, 4, srd::Ecn::not_capable, host(3));
  EXPECT_FALSE(bench.next());
  EXPECT_FALSE(bench.event());
  bench.arrive(write, 4);
  EXPECT_EQ(bench.answer(), wire::kAckNoCredit);
  EXPECT_EQ(bench.event(), EventType::communication_established);
  write.pkey = 0x7001;
  write.psn = (kRqPsn + 1) & kPsnMask;
  bench.arrive(write, 4);
  EXPECT_FALSE(bench.next());
  EXPECT_EQ(bench.engine.counters().stray_pkts, 3U);
}

// The limit is 2: it is told once, when fewer than that are left. The last event says that no more
// receive of the shared queue belongs to this queue pair.
TEST(RespShared, TakesFromTheSrqAndTellsOfItsLimitAndItsEnd) {
  auto request = Bench::default_request();
  request.srq = 0;
  Bench bench(QpType::rc, request);
  bench.bring_up();
  const Sge segment = bench.sge(4096, 64);
  for (std::uint64_t id = 0; id < 3; ++id) {
    ASSERT_EQ(bench.engine.post_srq_receive(bench.srq, id, {&segment, 1}), 0);
  }
  ASSERT_EQ(bench.engine.arm_srq(bench.srq, 2), 0);
  bench.arrive(bench.request(Operation::send_only, kRqPsn), 4);
  EXPECT_FALSE(bench.event());
  bench.arrive(bench.request(Operation::send_only, kRqPsn + 1), 4);
  EXPECT_EQ(bench.event(), EventType::srq_limit_reached);
  bench.arrive(bench.request(Operation::send_only, kRqPsn + 2), 4);
  EXPECT_FALSE(bench.event());  // once
  bench.arrive(bench.request(Operation::send_only, kRqPsn + 3), 4);
  EXPECT_EQ(bench.all().back().packet.syndrome, wire::kRnrNak | 12);
  ASSERT_EQ(bench.to(QpState::error, 0), 0);
  EXPECT_EQ(bench.event(), EventType::last_wqe_reached);
}

// A device with its rings in the program's memory fetches receives only when one is needed.
TEST(RespShared, AsksItsOwnerBeforeItRefuses) {
  Bench bench;
  bench.bring_up();
  bench.engine.set_refill({[](void* owner, bool is_srq, std::uint32_t id, ReceiveQueue& queue) {
                             auto& self = *static_cast<Bench*>(owner);
                             const Sge segment = self.sge(4096, 64);
                             EXPECT_FALSE(is_srq);
                             EXPECT_EQ(id, self.qpn);
                             EXPECT_TRUE(queue.push(9, {&segment, 1}));
                           },
                           &bench});
  bench.arrive(bench.request(Operation::send_only, kRqPsn), 4);
  EXPECT_EQ(bench.answer(), wire::kAckNoCredit);
  EXPECT_EQ(bench.completion()->wr_id, 9U);
}

// The receive stays for the next message that arrives whole.
TEST(RespUc, DropsTheRestOfAMessageThatLostAPacket) {
  Bench bench(QpType::uc);
  bench.bring_up(QpType::uc);
  const Sge segment = bench.sge(4096, 1024);
  ASSERT_EQ(bench.engine.post_receive(bench.qpn, 7, {&segment, 1}), 0);
  const auto packet = [&](Operation operation, std::uint32_t psn) {
    return bench.request(operation, psn, wire::Transport::uc);
  };
  bench.arrive(packet(Operation::send_first, kRqPsn), 256);
  bench.arrive(packet(Operation::send_last, kRqPsn + 2), 8);  // one is missing
  EXPECT_FALSE(bench.completion());
  bench.arrive(packet(Operation::send_first, kRqPsn + 5), 256);
  bench.arrive(packet(Operation::send_last, kRqPsn + 6), 8);
  EXPECT_FALSE(bench.next());
  const auto completion = bench.completion();
  ASSERT_TRUE(completion);
  EXPECT_EQ(completion->wr_id, 7U);
  EXPECT_EQ(completion->length, 264U);
}

// A message without a receive takes the next one with it no more.
TEST(RespUc, AMessageWithoutAReceiveIsTheOnlyOneLost) {
  Bench bench(QpType::uc);
  bench.bring_up(QpType::uc);
  const auto packet = [&](Operation operation, std::uint32_t psn) {
    auto made = bench.request(operation, psn, wire::Transport::uc);
    made.length = 264;
    return made;
  };
  bench.arrive(packet(Operation::write_first, kRqPsn), 256);
  bench.arrive(packet(Operation::write_last_immediate, kRqPsn + 1), 8);
  EXPECT_FALSE(bench.completion());
  const Sge segment = bench.sge(4096, 1024);
  ASSERT_EQ(bench.engine.post_receive(bench.qpn, 7, {&segment, 1}), 0);
  bench.arrive(packet(Operation::send_only, kRqPsn + 2), 8);
  ASSERT_TRUE(bench.completion());
}

// Its receive is used anew from the beginning.
TEST(RespUc, ANewMessageEndsOneThatWasCutShort) {
  Bench bench(QpType::uc);
  bench.bring_up(QpType::uc);
  const Sge segment = bench.sge(4096, 1024);
  ASSERT_EQ(bench.engine.post_receive(bench.qpn, 7, {&segment, 1}), 0);
  bench.arrive(bench.request(Operation::send_first, kRqPsn, wire::Transport::uc), 256);
  bench.arrive(bench.request(Operation::send_only, kRqPsn + 1, wire::Transport::uc), 8);
  const auto completion = bench.completion();
  ASSERT_TRUE(completion);
  EXPECT_EQ(completion->length, 8U);
}

// As in Linux: nothing is repeated on UC, so that a packet that begins a message begins one,
// whatever its number. A network that duplicates it brings two messages.
TEST(RespUc, ACopyOfAWholeMessageIsAnotherMessage) {
  Bench bench(QpType::uc);
  bench.bring_up(QpType::uc);
  const Sge segment = bench.sge(4096, 1024);
  ASSERT_EQ(bench.engine.post_receive(bench.qpn, 7, {&segment, 1}), 0);
  ASSERT_EQ(bench.engine.post_receive(bench.qpn, 8, {&segment, 1}), 0);
  const auto packet = bench.request(Operation::send_only, kRqPsn, wire::Transport::uc);
  bench.arrive(packet, 8);
  bench.arrive(packet, 8);
  for (const std::uint64_t receive : {7U, 8U}) {
    const auto completion = bench.completion();
    ASSERT_TRUE(completion);
    EXPECT_EQ(completion->wr_id, receive);
  }
}

TEST(RespUc, AReceiveThatCannotBeWrittenEndsTheQueuePair) {
  Bench bench(QpType::uc);
  bench.bring_up(QpType::uc);
  Sge segment = bench.sge(4096, 64);
  segment.lkey = 0xBAD;
  ASSERT_EQ(bench.engine.post_receive(bench.qpn, 7, {&segment, 1}), 0);
  bench.arrive(bench.request(Operation::send_only, kRqPsn, wire::Transport::uc), 8);
  const auto completion = bench.completion();
  ASSERT_TRUE(completion);
  EXPECT_EQ(completion->status, WcStatus::local_protection);
  EXPECT_EQ(bench.state(), QpState::error);
}

// A queue pair may have no room for segments, and receives of its own or not.
TEST(RespNoSegments, AQueuePairNeedsNone) {
  QpSetup request = Bench::default_request();
  request.max_send_sge = request.max_receive_sge = 0;
  Bench bench(QpType::rc, request);
  bench.bring_up();
  ASSERT_EQ(bench.engine.post_receive(bench.qpn, 7, {}), 0);
  auto packet = bench.request(Operation::write_only_immediate, kRqPsn);
  packet.length = 8;
  bench.arrive(packet, 8);
  EXPECT_EQ(bench.answer(), wire::kAckNoCredit);
  EXPECT_EQ(bench.completion()->wr_id, 7U);
  WorkRequest read;
  read.opcode = WrOpcode::read;
  ASSERT_EQ(bench.engine.post_send(bench.qpn, read, {}), 0);
  EXPECT_TRUE(bench.next());
}

TEST(RespNoSegments, OneWithASharedQueueNeedsNoReceivesOfItsOwn) {
  QpSetup request = Bench::default_request();
  request.max_receive = 0;
  request.srq = 0;
  Bench bench(QpType::rc, request);
  EXPECT_NE(bench.qpn, 0U);
  request.srq = kNoSrq;
  EXPECT_EQ(bench.engine.create_qp(request), 0U);
}

}  // namespace
}  // namespace weft::roce
