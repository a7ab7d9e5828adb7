// Owns the stories of remote reads.
#include <gtest/gtest.h>

#include "tests/support/lab.hpp"

namespace weft::testing {
namespace {

// Of one packet, of many, and of none: the last one is checked at the responder all the same.
TEST(EngineRead, BringsTheBytes) {
  Pair pair;
  const std::string bytes = pattern(50'000);
  pair.b.fill_memory(777, bytes);
  const auto small = pair.a.read(pair.b, 777, 10);
  const auto large = pair.a.read(pair.b, 777, bytes.size());
  const auto nothing = pair.a.read(pair.b, 777, 0);
  ASSERT_TRUE(pair.run_until_idle());
  EXPECT_EQ(pair.a.status(small), Status::ok);
  EXPECT_EQ(pair.a.status(large), Status::ok);
  EXPECT_EQ(pair.a.status(nothing), Status::ok);
  EXPECT_EQ(pair.a.read_result(small), bytes.substr(0, 10));
  EXPECT_EQ(pair.a.read_result(large), bytes);
}

TEST(EngineRead, ThroughLossReorderingAndDuplication) {
  LabConfig config = lab_config();
  config.link.loss = 0.05;
  config.link.reorder = 0.1;
  config.link.duplicate = 0.1;
  Pair pair(config);
  const std::string bytes = pattern(300'000);
  pair.b.fill_memory(0, bytes);
  std::vector<std::uint64_t> reads;
  for (std::uint64_t i = 0; i < 20; ++i) {
    reads.push_back(pair.a.read(pair.b, i * 10'000, 100'000));
  }
  ASSERT_TRUE(pair.run_until_idle());
  for (std::uint64_t i = 0; i < 20; ++i) {
    EXPECT_EQ(pair.a.status(reads[i]), Status::ok);
    EXPECT_EQ(pair.a.read_result(reads[i]), bytes.substr(i * 10'000, 100'000)) << i;
  }
}

// [wire 4.5] The responder checks the request when it arrives.
TEST(EngineRead, RefusedOnesNameTheReason) {
  Pair pair;
  std::vector<std::byte> bytes(100);
  const auto write_only = pair.b.engine()
                              .memory()
                              .insert({.data = bytes.data(),
                                       .address = 1,
                                       .length = 100,
                                       .access = srd::Access::remote_write,
                                       .domain = kDomain})
                              .value();
  const auto bad_key = pair.a.read(pair.b, 0, 10, {.key = srd::RegionKey{0xFFFFFF}});
  const auto bounds = pair.a.read(pair.b, kMemorySize - 5, 10);
  const auto access = pair.a.read(pair.b, 0, 10, {.key = write_only, .address = 1});
  const auto endpoint = pair.a.read(pair.b, 0, 10, {.destination = Qpn{4711}});
  ASSERT_TRUE(pair.run_until_idle());
  EXPECT_EQ(pair.a.status(bad_key), Status::bad_key);
  EXPECT_EQ(pair.a.status(bounds), Status::out_of_bounds);
  EXPECT_EQ(pair.a.status(access), Status::access_denied);
  EXPECT_EQ(pair.a.status(endpoint), Status::bad_qpn);
}

TEST(EngineRead, ARegionThatGoesAwayInTheMiddleEndsTheRead) {
  LabConfig config = lab_config();
  config.link.rate = Rate::gbps(1);
  Pair pair(config);
  const auto read = pair.a.read(pair.b, 0, 500'000);
  pair.run_for(500us);
  ASSERT_EQ(pair.a.status(read), std::nullopt);
  // The responder looks the region up for each packet, not once for the read.
  ASSERT_TRUE(pair.b.engine().memory().erase(pair.b.key()));
  ASSERT_TRUE(pair.run_until_idle());
  EXPECT_EQ(pair.a.status(read), Status::bad_key);
  const std::uint64_t responses = pair.b.engine().counters().rdma_read_resp_bytes;
  EXPECT_LT(responses, 500'000U);
}

// The requester keeps to the limit by itself, so no responder has to refuse.
TEST(EngineRead, MoreThanTheTablesHoldWaitForTheirTurn) {
  for (const std::uint32_t served : {1U, 2U, 64U}) {
    LabConfig config = lab_config();
    config.engine.max_reads_per_peer = served;
    Pair pair(config);
    pair.b.fill_memory(0, pattern(100'000));
    std::vector<std::uint64_t> reads;
    for (int i = 0; i < 100; ++i) {
      reads.push_back(pair.a.read(pair.b, 0, 3000));
    }
    ASSERT_TRUE(pair.run_until_idle());
    for (const auto read : reads) {
      EXPECT_EQ(pair.a.status(read), Status::ok);
    }
  }
}

// The requester allows itself more than the responder serves: the rest is asked again, unseen.
TEST(EngineRead, ABusyResponderIsAskedAgain) {
  Pair pair;
  srd::EngineConfig small = lab_config().engine;
  small.max_reads_per_peer = 1;
  small.life = srd::Life{2};
  pair.crash(pair.b);
  pair.boot(pair.b, small);
  pair.b.fill_memory(0, pattern(10'000));
  std::vector<std::uint64_t> reads;
  for (int i = 0; i < 20; ++i) {
    reads.push_back(pair.a.read(pair.b, 0, 10'000));
  }
  ASSERT_TRUE(pair.run_until_idle());
  for (const auto read : reads) {
    EXPECT_EQ(pair.a.status(read), Status::ok);
    EXPECT_EQ(pair.a.read_result(read), pattern(10'000));
  }
}

// [wire 4.5, 4.7] A requester that waits has nothing unacknowledged: it must probe.
TEST(EngineRead, AResponderThatDiesIsNoticed) {
  LabConfig config = lab_config();
  config.link.rate = Rate::gbps(1);
  config.engine.peer_timeout = 20ms;
  config.engine.max_rto = 5ms;
  Pair pair(config);
  const auto read = pair.a.read(pair.b, 0, 500'000);
  pair.run_for(1ms);
  ASSERT_EQ(pair.a.status(read), std::nullopt);
  pair.crash(pair.b);
  ASSERT_TRUE(pair.run_until([&] { return pair.a.status(read).has_value(); }, 100ms));
  EXPECT_EQ(pair.a.status(read), Status::unresponsive);
}

// Only the responder's way to the requester is cut, for longer than the responder's patience.
TEST(EngineRead, AnAnswerIsKeptForARequesterOutOfReach) {
  LabConfig config = lab_config();
  config.engine.peer_timeout = 50ms;
  config.engine.max_rto = 5ms;
  Pair pair(config);
  srd::EngineConfig hasty = config.engine;
  hasty.peer_timeout = 10ms;
  hasty.life = srd::Life{2};
  pair.crash(pair.b);
  pair.boot(pair.b, hasty);
  pair.b.fill_memory(0, pattern(3000));
  pair.network().partition(1, 0);
  const auto read = pair.a.read(pair.b, 0, 3000);
  pair.run_for(30ms);
  EXPECT_GE(pair.b.engine().counters().unreachable_remote_events, 1U);
  pair.network().rejoin(1, 0);
  ASSERT_TRUE(pair.run_until([&] { return pair.a.status(read).has_value(); }, 200ms));
  EXPECT_EQ(pair.a.status(read), Status::ok);
  EXPECT_EQ(pair.a.read_result(read), pattern(3000));
}

// Answers to a read that was cancelled travel for a while. Whatever happens to the record of that
// read meanwhile, they belong to no other read.
TEST(EngineRead, LateAnswersOfACancelledReadLandNowhere) {
  LabConfig config = lab_config();
  config.engine.peer_timeout = 5s;
  Pair pair(config);
  const std::string wrong(50'000, 'W');
  const std::string right(50'000, 'R');
  pair.b.fill_memory(0, wrong);
  pair.b.fill_memory(100'000, right);
  pair.a.read(pair.b, 0, 8);
  ASSERT_TRUE(pair.run_until_idle());
  pair.network().add({.kind = Packet::read_response,
                      .action = Action::delay,
                      .count = 49,
                      .from = 1U,
                      .delay = 300us});
  pair.a.read(pair.b, 0, 50'000);
  pair.run_for(30us);
  pair.a.engine().flush(pair.a.peer(pair.b), kEndpoint);
  pair.run_for(1us);
  for (int i = 0; i < 4095; ++i) {  // its record is used by others
    pair.a.send(pair.b, "x");
    pair.a.engine().flush(pair.a.peer(pair.b), kEndpoint);
    pair.a.collect();
  }
  pair.network().add({.kind = Packet::read_request,
                      .action = Action::delay,
                      .count = 1,
                      .from = 0U,
                      .delay = 400us});
  const auto second = pair.a.read(pair.b, 100'000, 50'000);
  ASSERT_TRUE(pair.run_until([&] { return pair.a.status(second).has_value(); }));
  EXPECT_EQ(pair.a.status(second), Status::ok);
  EXPECT_TRUE(pair.a.read_result(second) == right);
}

TEST(EngineRead, NumbersComeRound) {
  LabConfig config = lab_config();
  config.engine.first_psn = Psn{0xFFFFFFF0};
  Pair pair(config);
  for (int i = 0; i < 64; ++i) {
    const std::string text = "text " + std::to_string(i);
    pair.b.fill_memory(0, text);
    const auto read = pair.a.read(pair.b, 0, text.size());
    ASSERT_TRUE(pair.run_until_idle());
    ASSERT_EQ(pair.a.status(read), Status::ok);
    ASSERT_EQ(pair.a.read_result(read), text);
  }
}

// [wire 4.5] The requester refuses the first response of a read that it has given up. So the
// responder sends what is under way, and not the other 100 MB.
TEST(EngineRead, ACancelledReadEndsAtItsResponder) {
  LabConfig config = lab_config();
  config.link.rate = config.engine.line_rate = Rate::gbps(10);
  Pair pair(config);
  srd::ReadRequest request;
  std::vector<std::byte> memory(100'000'000);
  request.peer = pair.a.peer(pair.b);
  request.source = request.destination = kEndpoint;
  request.remote_key = pair.b.phantom_key();
  request.remote_address = Node::kPhantomAddress;
  request.segments[0] = {memory.data(), static_cast<std::uint32_t>(memory.size())};
  ASSERT_EQ(pair.a.engine().post(request), srd::PostResult::accepted);
  pair.run_for(100us);
  pair.a.engine().flush(pair.a.peer(pair.b), kEndpoint);
  srd::Completion completion;
  ASSERT_EQ(pair.a.engine().poll({&completion, 1}), 1U);
  EXPECT_EQ(completion.status, Status::flushed);
  ASSERT_TRUE(pair.run_until([&] { return pair.network().in_flight() == 0; }));
  EXPECT_LT(pair.b.engine().counters().rdma_read_resp_bytes, 1'000'000U);
  // And the context goes on.
  const auto next = pair.a.read(pair.b, 0, 10'000);
  ASSERT_TRUE(pair.run_until_idle());
  EXPECT_EQ(pair.a.status(next), Status::ok);
}

}  // namespace
}  // namespace weft::testing
