// Owns the stories of work that the other side refuses: each refusal hurts one request and no
// other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/lab.hpp"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;

// Nothing of it is taken for loss: no packet is sent twice.
TEST(EngineRefusal, EveryWrongSendHasItsStatusAndTheRightOneArrives) {
  Pair pair;
  const Qpn deaf{60};
  pair.b.open(deaf, {.qkey = kQkey, .domain = kDomain, .receive_depth = 4, .receiving = false});
  pair.b.receive(1, 10);
  const auto nobody = pair.a.send(pair.b, "x", {.destination = Qpn{4711}});
  const auto closed = pair.a.send(pair.b, "x", {.destination = deaf});
  const auto stranger = pair.a.send(pair.b, "x", {.qkey = kQkey + 1});
  const auto too_long = pair.a.send(pair.b, "eleven bytes");
  ASSERT_TRUE(pair.run_until_idle());
  const auto right = pair.a.send(pair.b, "right");
  ASSERT_TRUE(pair.run_until_idle());
  EXPECT_EQ(pair.a.status(nobody), Status::bad_qpn);
  EXPECT_EQ(pair.a.status(closed), Status::bad_qpn);
  EXPECT_EQ(pair.a.status(stranger), Status::bad_qkey);
  EXPECT_EQ(pair.a.status(too_long), Status::length_error);
  EXPECT_EQ(pair.a.status(right), Status::ok);
  EXPECT_THAT(pair.b.texts(), ElementsAre("right"));
  EXPECT_EQ(pair.a.engine().counters().retrans_pkts, 0U);
}

TEST(EngineRefusal, EveryWrongWriteHasItsStatusAndTouchesNothing) {
  Pair pair;
  using srd::Access;
  std::vector<std::byte> bytes(4096);
  const auto region = [&](Access access, std::uint32_t domain) {
    return pair.b.engine()
        .memory()
        .insert({.data = bytes.data(),
                 .address = 0x5000,
                 .length = 4096,
                 .access = access,
                 .domain = domain})
        .value();
  };
  const auto read_only = region(Access::remote_read, kDomain);
  const auto foreign = region(Access::local_write | Access::remote_write, kDomain + 1);
  const auto gone = region(Access::local_write | Access::remote_write, kDomain);
  ASSERT_TRUE(pair.b.engine().memory().erase(gone));
  const auto successor = region(Access::local_write | Access::remote_write, kDomain);
  EXPECT_NE(successor, gone);

  // The region has 4096 bytes from 0x5000 on. Each write is wrong by one thing, or by one byte.
  const auto at = [](srd::RegionKey key, std::uint64_t address) {
    return How{.key = key, .address = address};
  };
  const auto denied = pair.a.write(pair.b, 0, "secret", at(read_only, 0x5000));
  const auto wrong_domain = pair.a.write(pair.b, 0, "secret", at(foreign, 0x5000));
  const auto erased = pair.a.write(pair.b, 0, "secret", at(gone, 0x5000));
  const auto no_key = pair.a.write(pair.b, 0, "secret", at(srd::RegionKey{0xFFFFFF}, 0x5000));
  const auto before = pair.a.write(pair.b, 0, "secret", at(successor, 0x4FFF));
  const auto behind = pair.a.write(pair.b, 0, "secret", at(successor, 0x5FFB));
  const auto far = pair.a.write(pair.b, 0, "secret", at(successor, ~std::uint64_t{0} - 2));
  const auto exact = pair.a.write(pair.b, 0, "at end", at(successor, 0x5FFA));
  ASSERT_TRUE(pair.run_until_idle());
  EXPECT_EQ(pair.a.status(denied), Status::access_denied);
  EXPECT_EQ(pair.a.status(wrong_domain), Status::bad_key);
  EXPECT_EQ(pair.a.status(erased), Status::bad_key);
  EXPECT_EQ(pair.a.status(no_key), Status::bad_key);
  EXPECT_EQ(pair.a.status(before), Status::out_of_bounds);
  EXPECT_EQ(pair.a.status(behind), Status::out_of_bounds);
  EXPECT_EQ(pair.a.status(far), Status::out_of_bounds);
  EXPECT_EQ(pair.a.status(exact), Status::ok);
  EXPECT_EQ(std::count(bytes.begin(), bytes.begin() + 4090, std::byte{0}), 4090);
}

// Each of its packets is refused. The request ends once, takes no receive, and its other packets
// disturb nobody.
TEST(EngineRefusal, ARefusedWriteOfManyPacketsEndsOnce) {
  Pair pair;
  pair.b.receive();
  const auto wrong =
      pair.a.write(pair.b, 0, pattern(50'000), {.immediate = 5, .key = srd::RegionKey{0xFFFFFF}});
  ASSERT_TRUE(pair.run_until_idle());
  EXPECT_EQ(pair.a.status(wrong), Status::bad_key);
  EXPECT_TRUE(pair.b.inbox().empty());
  EXPECT_EQ(pair.b.receives_posted(), 1U);
  pair.a.send(pair.b, "unharmed");
  ASSERT_TRUE(pair.run_until_idle());
  EXPECT_THAT(pair.b.texts(), ElementsAre("unharmed"));
}

TEST(EngineRefusal, WithoutReceiveAndWithoutRetryTheSendFailsAfterOneRoundTrip) {
  Pair pair;
  const auto hasty = pair.a.send(pair.b, "now or never", {.rnr_retry = 0});
  ASSERT_TRUE(pair.run_until([&] { return pair.a.status(hasty).has_value(); }));
  EXPECT_EQ(pair.a.status(hasty), Status::receiver_not_ready);
  EXPECT_EQ(pair.elapsed(), pair.rtt());
}

TEST(EngineRefusal, RetriesAreCountedAndBackOff) {
  LabConfig config = lab_config();
  config.engine.rnr_delay = 20us;
  Pair pair(config);
  const auto patient = pair.a.send(pair.b, "please", {.rnr_retry = 3});
  ASSERT_TRUE(pair.run_until([&] { return pair.a.status(patient).has_value(); }));
  EXPECT_EQ(pair.a.status(patient), Status::receiver_not_ready);
  EXPECT_EQ(pair.a.engine().counters().rnr_retries, 3U);
  EXPECT_EQ(pair.b.engine().counters().rnr_sent, 4U);
  // Four round trips, and waits of 20, 40 and 80 us.
  EXPECT_GE(pair.elapsed(), 4 * pair.rtt() + 140us);
  EXPECT_LE(pair.elapsed(), 4 * pair.rtt() + 200us);
}

// The write with immediate data needs a receive as well, when its last packet arrives. 100 ms is
// far more than the longest back-off.
TEST(EngineRefusal, WhoRetriesForEverGetsThrough) {
  Pair pair;
  const auto patient = pair.a.send(pair.b, "at last");
  const auto write = pair.a.write(pair.b, 0, pattern(5000), {.immediate = 1});
  pair.run_for(100ms);
  EXPECT_EQ(pair.a.status(patient), std::nullopt);
  pair.b.receive(2);
  ASSERT_TRUE(pair.run_until_idle());
  EXPECT_EQ(pair.a.status(patient), Status::ok);
  EXPECT_EQ(pair.a.status(write), Status::ok);
  EXPECT_EQ(pair.b.inbox().size(), 2U);
}

// [wire 4.3] Sixteen refusals can be on record at a time; a thousand are under way. What finds no
// room on record is deferred, and comes again.
TEST(EngineRefusal, MoreRefusalsThanTheRecordHolds) {
  LabConfig config = lab_config();
  config.link.loss = 0.02;
  Pair pair(config);
  pair.b.receive(500);
  std::vector<std::uint64_t> wrong;
  std::vector<std::uint64_t> right;
  for (int i = 0; i < 500; ++i) {
    wrong.push_back(pair.a.send(pair.b, "wrong", {.destination = Qpn{4711}}));
    right.push_back(pair.a.send(pair.b, "right"));
  }
  ASSERT_TRUE(pair.run_until_idle());
  for (std::size_t i = 0; i < 500; ++i) {
    EXPECT_EQ(pair.a.status(wrong[i]), Status::bad_qpn);
    EXPECT_EQ(pair.a.status(right[i]), Status::ok);
  }
  EXPECT_EQ(pair.b.inbox().size(), 500U);
}

// A burst that finds no receive: all but sixteen are deferred, and none of them waits for a timer.
TEST(EngineRefusal, EveryDeferredPacketOfABurstIsTold) {
  Pair pair;
  pair.a.send(pair.b, "acquaintance");
  pair.b.receive();
  ASSERT_TRUE(pair.run_until_idle());
  std::vector<std::uint64_t> early;
  for (int i = 0; i < 500; ++i) {
    early.push_back(pair.a.send(pair.b, "early"));
  }
  pair.run_for(1ms);
  pair.b.receive(500);
  ASSERT_TRUE(pair.run_until_idle());
  for (const std::uint64_t one : early) {
    EXPECT_EQ(pair.a.status(one), Status::ok);
  }
  const auto& counters = pair.a.engine().counters();
  EXPECT_GT(pair.b.engine().counters().deferred_pkts, 100U);
  EXPECT_EQ(counters.lost_by_timeout + counters.lost_by_time + counters.lost_by_gap, 0U);
  EXPECT_EQ(counters.retrans_timeout_events, 0U);
  EXPECT_EQ(counters.paths_abandoned, 0U);
}

// [wire 4.3] Every ack repeats the recorded results.
TEST(EngineRefusal, AStatusSurvivesTheLossOfItsAcknowledgements) {
  Pair pair;
  pair.b.receive(4);
  pair.network().lose_next(Packet::ack, 5);
  const auto wrong = pair.a.send(pair.b, "wrong", {.destination = Qpn{4711}});
  const auto right = pair.a.send(pair.b, "right");
  ASSERT_TRUE(pair.run_until_idle());
  EXPECT_EQ(pair.a.status(wrong), Status::bad_qpn);
  EXPECT_EQ(pair.a.status(right), Status::ok);
  EXPECT_THAT(pair.b.texts(), ElementsAre("right"));
}

// While it does not receive it looks as if it were not there. Its posted receives stay.
TEST(EngineRefusal, AnEndpointMayStopReceivingAndStartAgain) {
  Pair pair;
  pair.b.receive(2);
  pair.b.engine().set_receiving(kEndpoint, false);
  const auto early = pair.a.send(pair.b, "early");
  ASSERT_TRUE(pair.run_until_idle());
  EXPECT_EQ(pair.a.status(early), Status::bad_qpn);
  pair.b.engine().set_receiving(kEndpoint, true);
  pair.a.send(pair.b, "on time");
  ASSERT_TRUE(pair.run_until_idle());
  EXPECT_THAT(pair.b.texts(), ElementsAre("on time"));
}

}  // namespace
}  // namespace weft::testing
