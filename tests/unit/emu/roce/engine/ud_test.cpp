// Owns datagrams: keys, the header in front, groups.
//
// Of a datagram nobody hears whether it has arrived: what is wrong is dropped and counted, and
// completes nothing.
#include <gtest/gtest.h>

#include "tests/unit/emu/roce/engine/bench.hpp"

namespace weft::roce {
namespace {

class Ud : public ::testing::Test {
 protected:
  Ud() : bench(QpType::ud) { bench.bring_up(QpType::ud); }
  // With the Q_Key that the bench gives its queue pair.
  wire::Packet datagram(std::uint32_t qkey = 0x1234) const {
    auto packet = bench.request(wire::Operation::send_only_immediate, 9, wire::Transport::ud);
    packet.qkey = qkey;
    packet.source_qpn = 0x55;
    packet.immediate = 3;
    return packet;
  }
  void post_receive(std::uint32_t length) {
    const Sge segment = bench.sge(4096, length);
    ASSERT_EQ(bench.engine.post_receive(bench.qpn, 7, {&segment, 1}), 0);
  }
  Bench bench;
};

// The 40 bytes are made for an IPv6 header (GRH); of IPv4 the header is put into the last 20.
TEST_F(Ud, PutsTheHeaderInFront) {
  post_receive(40 + 8);
  bench.arrive(datagram(), 8);
  const auto completion = bench.completion();
  ASSERT_TRUE(completion);
  EXPECT_EQ(completion->length, 48U);
  EXPECT_EQ(completion->source_qpn, 0x55U);
  EXPECT_EQ(completion->flags, kWcGrh | kWcImmediate);
  EXPECT_EQ(completion->service_level, kServiceLevelIpv4);
  const std::byte* const area = &bench.memory[4096];
  EXPECT_EQ(area[19], std::byte{0});
  EXPECT_EQ(area[20], std::byte{0x45});  // IPv4: the last twenty bytes
  EXPECT_EQ(area[32 + 3], std::byte{2});
  EXPECT_EQ(area[36 + 3], std::byte{1});
  EXPECT_EQ(area[40], std::byte{0xA5});
  EXPECT_FALSE(bench.next());  // nothing is answered
}

TEST_F(Ud, DropsAnotherKeyAndWhatIsTooLong) {
  post_receive(40 + 8);
  bench.arrive(datagram(0x1235), 8);
  bench.arrive(datagram(), 9);
  EXPECT_FALSE(bench.completion());
  EXPECT_EQ(bench.engine.counters().bad_qkeys, 1U);
  bench.arrive(datagram(), 8);  // the receive is still there
  EXPECT_TRUE(bench.completion());
  bench.arrive(datagram(), 8);
  EXPECT_EQ(bench.engine.counters().dropped_for_receive, 1U);
}

// Left in place, it would block all the queue pairs that share it.
TEST(UdWithSharedReceives, CompletesAReceiveThatIsTooShort) {
  QpSetup request = Bench::default_request();
  request.srq = 0;
  Bench bench(QpType::ud, request);
  bench.bring_up(QpType::ud);
  const Sge small = bench.sge(4096, 40 + 8);
  const Sge large = bench.sge(5000, 40 + 9);
  ASSERT_EQ(bench.engine.post_srq_receive(bench.srq, 7, {&small, 1}), 0);
  ASSERT_EQ(bench.engine.post_srq_receive(bench.srq, 8, {&large, 1}), 0);
  auto packet = bench.request(wire::Operation::send_only, 9, wire::Transport::ud);
  packet.qkey = 0x1234;
  bench.arrive(packet, 9);
  const auto refused = bench.completion();
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->wr_id, 7U);
  EXPECT_EQ(refused->status, WcStatus::remote_invalid_request);
  EXPECT_EQ(bench.memory[4096 + 40], std::byte{});
  EXPECT_EQ(bench.state(), QpState::rts);
  bench.arrive(packet, 9);
  const auto heard = bench.completion();
  ASSERT_TRUE(heard);
  EXPECT_EQ(heard->wr_id, 8U);
  EXPECT_EQ(heard->status, WcStatus::success);
}

TEST_F(Ud, Sends) {
  ASSERT_EQ(bench.send(WrOpcode::send_immediate, 700), 0);
  const auto sent = bench.next();
  ASSERT_TRUE(sent);
  EXPECT_EQ(sent->packet.opcode, 0x65);
  EXPECT_EQ(sent->packet.qkey, 0x5678U);
  EXPECT_EQ(sent->packet.source_qpn, bench.qpn);
  EXPECT_EQ(sent->packet.psn, kSqPsn);
  EXPECT_EQ(sent->payload.size(), 700U);
  EXPECT_EQ(bench.completion()->status, WcStatus::success);
  // Longer than the port carries: success, and nothing on the wire.
  ASSERT_EQ(bench.send(WrOpcode::send, 4097), 0);
  EXPECT_FALSE(bench.next());
  EXPECT_EQ(bench.completion()->status, WcStatus::success);
}

// By the specification: such a key in a request stands for the queue pair's own, so that a program
// cannot send with a privileged one.
TEST_F(Ud, TakesItsOwnKeyForAKeyWithTheHighestBit) {
  WorkRequest work;
  work.remote_qkey = 0x80000000;
  work.address.destination = host(2);
  ASSERT_EQ(bench.engine.post_send(bench.qpn, work, {}), 0);
  EXPECT_EQ(bench.next()->packet.qkey, 0x1234U);
}

TEST_F(Ud, HearsItsGroups) {
  // 239.0.0.1.
  srd::Address group = host(1);
  group.bytes[12] = std::byte{239};
  post_receive(64);
  post_receive(64);
  const auto arrive = [&](std::uint16_t pkey = 0xFFFF) {
    auto packet = datagram();
    packet.destination_qpn = wire::kMulticastQpn;
    packet.pkey = pkey;
    std::array<std::byte, wire::kLargestHeader> bytes{};
    srd::RxPacket rx;
    rx.from = host(2);
    rx.bytes = std::span(bytes).first(wire::write_headers(packet, bytes.data()));
    wire::DatagramHeader outer;
    outer.source = host(2);
    outer.destination = group;
    bench.engine.on_packet(bench.now, rx, outer);
  };
  arrive();
  EXPECT_FALSE(bench.completion());
  EXPECT_NE(bench.engine.attach_multicast(bench.qpn, host(1)), 0);
  ASSERT_EQ(bench.engine.attach_multicast(bench.qpn, group), 0);
  arrive(0x1234);  // a member of another partition, as with datagrams to one
  EXPECT_FALSE(bench.completion());
  arrive();
  EXPECT_TRUE(bench.completion());
  ASSERT_EQ(bench.engine.detach_multicast(bench.qpn, group), 0);
  EXPECT_NE(bench.engine.detach_multicast(bench.qpn, group), 0);
  arrive();
  EXPECT_FALSE(bench.completion());
}

}  // namespace
}  // namespace weft::roce
