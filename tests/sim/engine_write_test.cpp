// Owns the stories of remote writes: placement, immediate data, sizes from nothing to a gigabyte.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/lab.hpp"

namespace weft::testing {
namespace {

TEST(EngineWrite, LandsWhereItSaysAndNowhereElse) {
  Pair pair;
  const auto write = pair.a.write(pair.b, 100, "payload");
  ASSERT_TRUE(pair.run_until_idle());
  EXPECT_EQ(pair.a.status(write), Status::ok);
  EXPECT_EQ(pair.b.memory(99, 9), std::string("\0payload\0", 9));
  EXPECT_TRUE(pair.b.completions().empty());  // the target hears nothing of it
}

TEST(EngineWrite, IsCutIntoPacketsThatArriveInAnyOrder) {
  LabConfig config = lab_config();
  config.link.path_skew = 3us;  // path 15 is 45 us slower than path 0
  config.link.jitter = 2us;
  config.engine.path_reorder_tolerance = 0;
  Pair pair(config);
  const std::string bytes = pattern(100'000);
  const auto write = pair.a.write(pair.b, 4321, bytes);
  ASSERT_TRUE(pair.run_until_idle());
  EXPECT_EQ(pair.a.status(write), Status::ok);
  EXPECT_EQ(pair.b.memory(4321, bytes.size()), bytes);
}

// The paths differ in length, so that the last packet of the message is not the last to arrive.
TEST(EngineWrite, WithImmediateTakesAReceiveOnceAllBytesAreThere) {
  LabConfig config = lab_config();
  config.link.path_skew = 2us;
  Pair pair(config);
  pair.b.receive();
  const std::string bytes = pattern(20'000);
  pair.a.write(pair.b, 0, bytes, {.immediate = 42});
  ASSERT_TRUE(pair.run_until([&] { return !pair.b.inbox().empty(); }));
  EXPECT_EQ(pair.b.memory(0, bytes.size()), bytes);
  const Completion& arrival = pair.b.inbox()[0].completion;
  EXPECT_EQ(arrival.kind, Completion::Kind::receive_write_imm);
  EXPECT_EQ(arrival.immediate, 42U);
  EXPECT_EQ(arrival.length, bytes.size());
  EXPECT_TRUE(arrival.consumed_receive);
  ASSERT_TRUE(pair.run_until_idle());
  EXPECT_EQ(pair.b.receives_posted(), 0U);
}

TEST(EngineWrite, UnsolicitedImmediateNeedsNoReceive) {
  Pair pair;
  const Qpn quiet{50};
  pair.b.open(quiet, {.qkey = kQkey, .domain = kDomain, .unsolicited_immediate = true});
  const auto write = pair.a.write(pair.b, 0, pattern(5000), {.destination = quiet, .immediate = 9});
  ASSERT_TRUE(pair.run_until_idle());
  EXPECT_EQ(pair.a.status(write), Status::ok);
  ASSERT_EQ(pair.b.inbox().size(), 1U);
  EXPECT_FALSE(pair.b.inbox()[0].completion.consumed_receive);
  EXPECT_EQ(pair.b.inbox()[0].completion.immediate, 9U);
}

TEST(EngineWrite, OfNothingTouchesNothing) {
  Pair pair;
  pair.b.receive();
  const auto plain = pair.a.write(pair.b, 0, "");
  const auto told = pair.a.write(pair.b, 0, "", {.immediate = 1});
  ASSERT_TRUE(pair.run_until_idle());
  EXPECT_EQ(pair.a.status(plain), Status::ok);
  EXPECT_EQ(pair.a.status(told), Status::ok);
  ASSERT_EQ(pair.b.inbox().size(), 1U);
  EXPECT_EQ(pair.b.inbox()[0].completion.length, 0U);
  EXPECT_EQ(pair.b.memory(0, 16), std::string(16, '\0'));
}

// As a phantom: the lengths, packets and completions are those of a gigabyte, and no byte of it
// exists.
TEST(EngineWrite, AGigabyteIsOneRequest) {
  LabConfig config = lab_config();
  config.engine.mtu_payload = 8192;
  config.engine.checksum = false;  // the checksum of bytes that do not exist proves nothing
  config.link.rate = Rate::gbps(100);
  Pair pair(config);
  pair.b.receive();
  const auto write = pair.a.write_phantom(pair.b, std::uint64_t{1} << 30, {.immediate = 3});
  ASSERT_TRUE(pair.run_until_idle());
  EXPECT_EQ(pair.a.status(write), Status::ok);
  ASSERT_EQ(pair.b.inbox().size(), 1U);
  EXPECT_EQ(pair.b.inbox()[0].completion.length, 1U << 30);
  EXPECT_EQ(pair.a.engine().counters().rdma_write_bytes, std::uint64_t{1} << 30);
}

TEST(EngineWrite, MoreThanAGigabyteIsRefusedWhenItIsPosted) {
  Pair pair;
  srd::WriteRequest request;
  request.peer = pair.a.peer(pair.b);
  request.source = request.destination = kEndpoint;
  request.phantom = true;
  request.segments[0] = {nullptr, (1U << 30) + 1};
  EXPECT_EQ(pair.a.engine().post(request), srd::PostResult::too_long);
}

TEST(EngineWrite, ImmediateDataOfManyWritesAtOnce) {
  LabConfig config = lab_config();
  config.link.path_skew = 1us;
  config.link.loss = 0.02;
  Pair pair(config);
  pair.b.receive(100);
  for (std::uint32_t i = 0; i < 100; ++i) {
    pair.a.write(pair.b, i * 8000, pattern(5000, i), {.immediate = i});
  }
  ASSERT_TRUE(pair.run_until_idle());
  ASSERT_EQ(pair.b.inbox().size(), 100U);
  std::vector<bool> seen(100, false);
  for (const Message& message : pair.b.inbox()) {
    const std::uint32_t i = message.completion.immediate;
    ASSERT_LT(i, 100U);
    EXPECT_FALSE(seen[i]) << i;
    seen[i] = true;
    EXPECT_EQ(pair.b.memory(i * 8000, 5000), pattern(5000, i));
  }
}

// Placing the same bytes twice is harmless; counting them twice would announce them too early.
TEST(EngineWrite, DuplicatesDoNotCountTowardsTheImmediate) {
  Pair pair;
  pair.b.receive();
  // Four of five packets come twice, and the fifth is late: eight copies are more than the message
  // has packets, and still not all of it.
  pair.network().duplicate_next(Packet::write, 4);
  pair.network().add(
      {.kind = Packet::write, .action = Action::delay, .skip = 4, .count = 1, .delay = 300us});
  const std::string bytes = pattern(5 * 1024);
  pair.a.write(pair.b, 0, bytes, {.immediate = 1});
  ASSERT_TRUE(pair.run_until([&] { return !pair.b.inbox().empty(); }));
  EXPECT_EQ(pair.b.memory(0, bytes.size()), bytes);
  ASSERT_TRUE(pair.run_until_idle());
  EXPECT_EQ(pair.b.inbox().size(), 1U);
}

// [wire 4.6] One endpoint posts no receives, another one does.
TEST(EngineWrite, RefusedImmediatesHoldUpNobody) {
  for (const std::uint8_t retries : {std::uint8_t{0}, srd::kRnrRetryForever}) {
    LabConfig config = lab_config();
    config.engine.peer_timeout = 10s;
    Pair pair(config);
    const Qpn ready{31};
    pair.b.open(ready, {.qkey = kQkey, .domain = kDomain, .receive_depth = 200});
    pair.b.receive(100, 100, ready);
    for (int i = 0; i < 100; ++i) {
      pair.a.write(pair.b, 0, pattern(3000), {.immediate = 2, .rnr_retry = retries});
      pair.run_for(40us);
    }
    for (int i = 0; i < 100; ++i) {
      const TimePoint begin = pair.now();
      const auto write =
          pair.a.write(pair.b, 0, pattern(3000), {.destination = ready, .immediate = 3});
      ASSERT_TRUE(pair.run_until([&] { return pair.a.status(write).has_value(); }, 30s));
      ASSERT_EQ(pair.a.status(write), Status::ok);
      ASSERT_LT(pair.now() - begin, 1ms) << i << " with " << int{retries} << " retries";
    }
    EXPECT_EQ(pair.b.engine().counters().deferred_pkts, 0U);
  }
}

// Whatever was refused arrives once, and whole, when receives are there at last.
TEST(EngineWrite, ARefusedImmediateCompletesWithItsLastPacket) {
  LabConfig config = lab_config();
  config.link.loss = 0.05;
  config.link.duplicate = 0.05;
  config.link.reorder = 0.2;
  config.link.reorder_delay = 100us;
  Pair pair(config);
  for (std::uint32_t i = 0; i < 60; ++i) {
    pair.a.write(pair.b, i * 10'000, pattern(9000, i + 1), {.immediate = i});
  }
  pair.run_for(3ms);
  pair.b.receive(60);
  ASSERT_TRUE(pair.run_until_idle());
  std::set<std::uint32_t> seen;
  for (const Message& message : pair.b.inbox()) {
    EXPECT_TRUE(seen.insert(message.completion.immediate).second);
  }
  EXPECT_EQ(seen.size(), 60U);
  for (std::uint32_t i = 0; i < 60; ++i) {
    EXPECT_EQ(pair.b.memory(i * 10'000, 9000), pattern(9000, i + 1)) << i;
  }
}

// More are given up half-way than the table holds, of all sizes, while others go on.
TEST(EngineWrite, CancelledImmediatesAreForgotten) {
  Pair pair;
  pair.b.receive(2000);
  const Qpn other{31};
  pair.a.open(other, {.qkey = kQkey, .domain = kDomain});
  for (int i = 0; i < 100; ++i) {
    const std::size_t size = std::size_t{3000} << (i % 8);
    pair.network().lose_next(Packet::write, 2, 1);
    pair.a.write(pair.b, 0, pattern(size), {.source = other, .immediate = 1});
    pair.run_for(7us);
    pair.a.engine().flush(pair.a.peer(pair.b), other);
    const auto write = pair.a.write(pair.b, 500'000, pattern(5000), {.immediate = 2});
    ASSERT_TRUE(pair.run_until([&] { return pair.a.status(write).has_value(); }, 100ms)) << i;
    ASSERT_EQ(pair.a.status(write), Status::ok);
  }
}

}  // namespace
}  // namespace weft::testing
