// Owns what each counter of the engine counts: one event each, and nothing else moves it. They have
// the names of Linux's rxe where that has them; programs that watch a device read them.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "tests/unit/emu/roce/engine/bench.hpp"

namespace weft::roce {
namespace {

using wire::Operation;
using Named = std::map<std::string, std::uint64_t>;

// Those that any packet moves, and that have a test of their own.
bool is_of_every_packet(const std::string& name) {
  return name == "sent_pkts" || name == "sent_bytes" || name == "rcvd_pkts" ||
         name == "rcvd_bytes" || name == "placed_bytes";
}

// moved() names all counters that have changed, so a test that expects one also demands that no
// other moves (but those of every packet).
class RoceCounters : public ::testing::Test {
 protected:
  void bring_up(QpType type = QpType::rc) { bench.bring_up(type); }
  void reply(std::uint32_t psn, std::uint8_t syndrome = wire::kAckNoCredit) {
    auto packet = bench.request(Operation::acknowledge, psn);
    packet.syndrome = syndrome;
    bench.arrive(packet);
  }
  void post_receive() {
    const Sge segment = bench.sge(4096, 1024);
    ASSERT_EQ(bench.engine.post_receive(bench.qpn, 7, {&segment, 1}), 0);
  }
  // What has changed since the last call.
  Named moved() {
    Named now;
    bench.engine.counters().for_each(
        [&](const char* name, std::uint64_t value) { now[name] = value; });
    Named moved;
    for (const auto& [name, value] : now) {
      if (value != before_[name] && !is_of_every_packet(name)) {
        moved[name] = value - before_[name];
      }
    }
    before_ = now;
    return moved;
  }
  Bench bench;

 private:
  Named before_;
};

TEST_F(RoceCounters, PacketsAndBytesAreThoseFromBthToIcrc) {
  bring_up();
  post_receive();
  ASSERT_EQ(bench.send(WrOpcode::send, 301), 0);  // 256 and 45 bytes
  EXPECT_EQ(bench.all().size(), 2U);
  const Counters& counters = bench.engine.counters();
  EXPECT_EQ(counters.sent_pkts, 2U);
  // BTH, payload, what fills it up to four bytes, and ICRC.
  EXPECT_EQ(counters.sent_bytes, (12U + 256 + 4) + (12 + 45 + 3 + 4));
  bench.arrive(bench.request(Operation::send_only, kRqPsn), 5);
  EXPECT_EQ(counters.rcvd_pkts, 1U);
  EXPECT_EQ(counters.rcvd_bytes, 12U + 5 + 3 + 4);
  EXPECT_EQ(counters.placed_bytes, 5U);
}

TEST_F(RoceCounters, OfTheRequester) {
  bring_up();
  ASSERT_EQ(bench.send(WrOpcode::send, 600), 0);
  EXPECT_EQ(bench.all().size(), 3U);
  EXPECT_EQ(moved(), Named{});
  reply(kSqPsn, wire::kNakSequence);
  EXPECT_EQ(bench.all().size(), 3U);
  EXPECT_EQ(moved(), (Named{{"rcvd_seq_err", 1}, {"completer_retry_err", 1}, {"retrans_pkts", 3}}));
  reply(kSqPsn, wire::kRnrNak | 1);
  ASSERT_TRUE(bench.wait());
  EXPECT_EQ(bench.all().size(), 3U);
  EXPECT_EQ(moved(), (Named{{"rcvd_rnr_err", 1}, {"retrans_pkts", 3}}));
  reply(kSqPsn + 2);
  EXPECT_EQ(moved(), (Named{{"rdma_sends", 1}}));
  reply(kSqPsn + 2);
  EXPECT_EQ(moved(), (Named{{"stale_responses", 1}}));
  ASSERT_EQ(bench.send(WrOpcode::write, 10), 0);
  EXPECT_EQ(bench.all().size(), 1U);
  reply(kSqPsn + 3);
  EXPECT_EQ(moved(), Named{}) << "a write is no send";
}

TEST_F(RoceCounters, OfRequestsThatAreGivenUp) {
  bench.attributes.retry_count = 2;
  bring_up();
  ASSERT_EQ(bench.send(WrOpcode::send, 10), 0);
  EXPECT_EQ(bench.all().size(), 1U);
  while (bench.state() != QpState::error && bench.wait()) {
    bench.all();
  }
  EXPECT_EQ(moved(),
            (Named{{"completer_retry_err", 2}, {"retrans_pkts", 2}, {"retry_exceeded_err", 1}}));
}

TEST_F(RoceCounters, OfAPeerThatNeverPostsAReceive) {
  bench.attributes.rnr_retry = 0;
  bring_up();
  ASSERT_EQ(bench.send(WrOpcode::send, 10), 0);
  EXPECT_EQ(bench.all().size(), 1U);
  reply(kSqPsn, wire::kRnrNak | 1);
  EXPECT_EQ(moved(), (Named{{"rcvd_rnr_err", 1}, {"retry_rnr_exceeded_err", 1}}));
}

TEST_F(RoceCounters, OfARequestThatCannotBeSent) {
  bring_up();
  bench.key = 0xBAD;
  ASSERT_EQ(bench.send(WrOpcode::send, 10), 0);
  EXPECT_TRUE(bench.all().empty());
  EXPECT_EQ(moved(), (Named{{"send_err", 1}}));
}

TEST_F(RoceCounters, OfTheResponder) {
  bring_up();
  bench.arrive(bench.request(Operation::send_only, kRqPsn + 1), 5);
  bench.all();
  EXPECT_EQ(moved(), (Named{{"out_of_seq_request", 1}}));
  bench.arrive(bench.request(Operation::send_only, kRqPsn), 5);
  bench.all();
  EXPECT_EQ(moved(), (Named{{"send_rnr_err", 1}}));
  post_receive();
  bench.arrive(bench.request(Operation::send_only, kRqPsn), 5);
  EXPECT_EQ(moved(), (Named{{"rdma_recvs", 1}}));
  bench.arrive(bench.request(Operation::send_only, kRqPsn), 5);
  EXPECT_EQ(moved(), (Named{{"duplicate_request", 1}, {"ack_deferred", 1}}));
  EXPECT_EQ(bench.all().size(), 1U);  // one acknowledgement for both
  bench.arrive(bench.request(Operation::write_middle, kRqPsn + 1), 256);
  EXPECT_EQ(moved(), (Named{{"refused_requests", 1}}));
}

TEST_F(RoceCounters, OfWhatIsNotForThisEngine) {
  bring_up();
  auto packet = bench.request(Operation::send_only, kRqPsn);
  packet.destination_qpn = 0xABCDE;
  bench.arrive(packet, 5);
  EXPECT_EQ(moved(), (Named{{"stray_pkts", 1}}));
  srd::RxPacket rx;
  bench.engine.on_packet(bench.now, rx);
  EXPECT_EQ(moved(), (Named{{"malformed_pkts", 1}}));
}

TEST(RoceDatagramCounters, NobodyIsToldOfAMissingReceive) {
  Bench bench(QpType::ud);
  bench.bring_up(QpType::ud);
  auto packet = bench.request(Operation::send_only, 5, wire::Transport::ud);
  packet.qkey = bench.attributes.qkey;
  bench.arrive(packet, 8);
  EXPECT_EQ(bench.engine.counters().dropped_for_receive, 1U);
  EXPECT_EQ(bench.engine.counters().send_rnr_err, 0U);
  ASSERT_EQ(bench.send(WrOpcode::send, 10), 0);
  EXPECT_EQ(bench.all().size(), 1U);
  EXPECT_EQ(bench.engine.counters().rdma_sends, 1U);
}

TEST(RoceSharedCounters, AreWrittenWhereTheOwnerWantsThem) {
  Sink sink;
  Counters counters;
  Engine engine(Bench::default_config(), sink, &counters);
  srd::RxPacket rx;
  engine.on_packet(time_at(1ms), rx);
  EXPECT_EQ(counters.rcvd_pkts, 1U);
  EXPECT_EQ(&engine.counters(), &counters);
}

}  // namespace
}  // namespace weft::roce
