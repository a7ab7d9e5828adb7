// Owns congestion notifications: which end sends them, how often, and what they do to the sender.
#include <gtest/gtest.h>

#include "tests/unit/emu/roce/engine/bench.hpp"

namespace weft::roce {
namespace {

EngineConfig with_control() {
  auto config = Bench::default_config();
  config.congestion_control = true;
  config.line_rate = Rate::gbps(1);
  return config;
}

TEST(Rate, AnswersAMarkedPacketAtMostEveryFiftyMicroseconds) {
  Bench bench(QpType::rc, Bench::default_request(), with_control());
  bench.bring_up();
  auto write = bench.request(wire::Operation::write_only, kRqPsn);
  write.ack_request = false;
  const auto marked = [&] {
    bench.arrive(write, 0, srd::Ecn::congested);
    write.psn = (write.psn + 1) & kPsnMask;
  };
  marked();
  marked();
  const auto sent = bench.all();
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(sent[0].packet.opcode, wire::kCongestionNotification);
  EXPECT_TRUE(sent[0].packet.backward_congestion);
  EXPECT_EQ(sent[0].packet.destination_qpn, kPeerQpn);
  bench.now += 49us;
  marked();
  EXPECT_TRUE(bench.all().empty());
  bench.now += 1us;
  marked();
  EXPECT_EQ(bench.all().size(), 1U);
}

TEST(Rate, SendsSlowerAfterANotificationAndThenFasterAgain) {
  auto request = Bench::default_request();
  request.max_send = 4096;
  Bench bench(QpType::rc, request, with_control());
  bench.attributes.timeout = 0;
  bench.bring_up();
  // Packets in a millisecond, each acknowledged at once.
  const auto in_a_millisecond = [&] {
    const TimePoint end = bench.now + 1ms;
    std::size_t count = 0;
    while (bench.now < end) {
      EXPECT_EQ(bench.send(WrOpcode::write, 256), 0);
      while (const auto sent = bench.next()) {
        ++count;
        EXPECT_EQ(sent->ecn, srd::Ecn::capable_0);
        bench.arrive(bench.request(wire::Operation::acknowledge, sent->packet.psn));
      }
      bench.now += 1us;
      bench.engine.on_timeout(bench.now);
      while (bench.completion()) {
      }
    }
    return count;
  };
  const std::size_t before = in_a_millisecond();
  EXPECT_GE(before, 999U);  // not limited: one for each microsecond
  bench.arrive(bench.request(wire::Operation::send_first, 0));  // any packet
  auto notification = bench.request(wire::Operation::send_first, 0);
  notification.opcode = wire::kCongestionNotification;
  for (int i = 0; i < 4; ++i) {
    bench.arrive(notification);
  }
  // 1 Gb/s is 427 packets of 292 bytes in a millisecond; a sixteenth, and half way back every 300
  // us.
  const std::size_t after = in_a_millisecond();
  EXPECT_LT(after, 250U);
  EXPECT_GT(after, 20U);
  const std::size_t later = in_a_millisecond();
  EXPECT_GT(later, after);
}

TEST(Rate, HoldsBackTheAnswersToReads) {
  EngineConfig config = Bench::default_config();
  config.congestion_control = true;
  config.line_rate = Rate::gbps(1);
  Bench bench(QpType::rc, Bench::default_request(), config);
  bench.bring_up();
  auto notification = bench.request(wire::Operation::send_first, 0);
  notification.opcode = wire::kCongestionNotification;
  for (int i = 0; i < 4; ++i) {
    bench.arrive(notification);
  }
  auto read = bench.request(wire::Operation::read_request, kRqPsn);
  read.length = 4096;  // 16 packets, which take 37 us at the line's rate
  bench.arrive(read);
  const TimePoint begun = bench.now;
  std::size_t packets = bench.all().size();
  EXPECT_LT(packets, 3U);
  while (packets < 16 && bench.wait()) {
    packets += bench.all().size();
  }
  EXPECT_EQ(packets, 16U);
  EXPECT_GT(bench.now - begun, 4 * 37us);
}

TEST(Rate, IsNotAskedWhereItIsOff) {
  Bench bench;
  bench.bring_up();
  auto write = bench.request(wire::Operation::write_only, kRqPsn);
  bench.arrive(write, 0, srd::Ecn::congested);
  EXPECT_EQ(bench.answer(), wire::kAckNoCredit);
}

}  // namespace
}  // namespace weft::roce
