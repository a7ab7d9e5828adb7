// Owns the stories at the edges: full queues, full windows, numbers that wrap.
#include <gtest/gtest.h>

#include "tests/support/lab.hpp"

namespace weft::testing {
namespace {

// Sends so many messages in hundreds and expects each of them once; there is always a receive for
// them.
void exchange(const LabConfig& config, int messages) {
  Pair pair(config);
  int sent = 0;
  int posted = 0;
  while (sent < messages) {
    while (posted < messages && posted < sent + 500) {
      pair.b.receive();
      ++posted;
    }
    for (int i = 0; i < 100 && sent < messages; ++i, ++sent) {
      pair.a.send(pair.b, "message " + std::to_string(sent));
    }
    ASSERT_TRUE(pair.run_until_idle());
  }
  ASSERT_EQ(pair.b.inbox().size(), static_cast<std::size_t>(messages));
  std::set<std::string> distinct;
  for (const Message& message : pair.b.inbox()) {
    distinct.insert(message.text);
  }
  EXPECT_EQ(distinct.size(), static_cast<std::size_t>(messages));
}

TEST(EngineLimits, SequenceNumbersWrap) {
  // The numbers wrap at 32 bits; a comparison as signed numbers would go wrong at 31.
  for (const std::uint32_t first : {0xFFFFFFFFU - 100, 0x7FFFFFFFU - 100, 0x80000000U - 1}) {
    LabConfig config = lab_config();
    config.engine.first_psn = Psn{first};
    config.link.loss = 0.02;
    config.link.duplicate = 0.02;
    exchange(config, 1000);
  }
}

// [wire 4.1]
TEST(EngineLimits, TheWindowGoesRoundManyTimes) {
  // The smallest and the largest windows that can be configured, and those around the 64 bits of a
  // word of the map.
  for (const std::uint32_t window : {1U, 2U, 63U, 64U, 65U, 2047U, 2048U}) {
    LabConfig config = lab_config();
    config.engine.window_packets = window;
    config.engine.ack_every = 1;
    config.link.loss = 0.01;
    exchange(config, 3000);
  }
}

TEST(EngineLimits, PeersThatReadLeaveRoomForOurRequests) {
  LabConfig config = lab_config();
  config.engine.max_work_requests = config.engine.max_completions = 4;
  config.link.rate = config.engine.line_rate = Rate::gbps(1);
  Lab lab(4, config);
  for (std::uint32_t reader = 1; reader < 4; ++reader) {
    for (int i = 0; i < 4; ++i) {
      lab[reader].read(lab[0], 0, 100'000);
    }
  }
  lab.run_for(200us);
  for (int i = 0; i < 4; ++i) {
    EXPECT_TRUE(lab[0].try_write(lab[1], 0, "ours").has_value()) << i;
  }
  EXPECT_TRUE(lab.run_until_idle());
}

TEST(EngineLimits, AFullWindowWaitsForItsOldestPacket) {
  LabConfig config = lab_config();
  config.engine.window_packets = 64;
  config.engine.congestion_control = "fixed";
  Pair pair(config);
  pair.b.receive(300);
  pair.network().delay_next(Packet::send, 200us);
  for (int i = 0; i < 300; ++i) {
    pair.a.send(pair.b, pattern(100));
  }
  std::uint32_t widest = 0;
  pair.network().observe([&](TimePoint, world::NetworkEvent event, const auto& packet) {
    srd::wire::DataHeader header;
    // How far the packet is from the oldest one that the sender still waits for.
    if (event == world::NetworkEvent::sent && world::kind_of(packet.bytes) == Packet::send &&
        srd::wire::load(packet.bytes, header)) {
      widest = std::max<std::uint32_t>(widest, header.back.value());
    }
  });
  ASSERT_TRUE(pair.run_until_idle());
  EXPECT_EQ(pair.b.inbox().size(), 300U);
  EXPECT_LT(widest, 64U);
}

TEST(EngineLimits, WorkBeyondTheLimitIsRefusedAndAcceptedLater) {
  LabConfig config = lab_config();
  config.engine.max_work_requests = 10;
  Pair pair(config);
  pair.b.receive(100);
  for (int i = 0; i < 10; ++i) {
    pair.a.send(pair.b, "accepted");
  }
  EXPECT_EQ(pair.a.try_send(pair.b, "refused"), std::nullopt);
  EXPECT_EQ(pair.a.try_write(pair.b, 0, "refused"), std::nullopt);
  EXPECT_EQ(pair.a.try_read(pair.b, 0, 1), std::nullopt);
  ASSERT_TRUE(pair.run_until_idle());
  EXPECT_EQ(pair.b.inbox().size(), 10U);
  EXPECT_NE(pair.a.try_send(pair.b, "accepted again"), std::nullopt);
  ASSERT_TRUE(pair.run_until_idle());
  EXPECT_EQ(pair.b.inbox().size(), 11U);
}

TEST(EngineLimits, ReceivesBeyondTheDepthAreRefused) {
  Pair pair;
  const Qpn small{31};
  pair.b.open(small, {.qkey = kQkey, .domain = kDomain, .receive_depth = 3});
  pair.b.receive(3, 100, small);
  EXPECT_FALSE(pair.b.try_receive(100, small));
  pair.a.send(pair.b, "one", {.destination = small});
  ASSERT_TRUE(pair.run_until_idle());
  EXPECT_TRUE(pair.b.try_receive(100, small));
}

// The application does not poll: what cannot be told waits at the sender, and nothing is lost.
TEST(EngineLimits, AFullCompletionQueueHoldsTheSenderBack) {
  LabConfig config = lab_config();
  config.engine.max_completions = 40;
  config.engine.max_work_requests = 20;
  world::VirtualWorld world(1);
  world.network().link() = config.link;
  world.add_host(config.engine);
  world.add_host(config.engine);
  srd::Engine& a = world.engine(0);
  srd::Engine& b = world.engine(1);
  std::vector<std::byte> memory(1000);
  for (srd::Engine* engine : {&a, &b}) {
    ASSERT_TRUE(engine->open_endpoint(kEndpoint, {.qkey = kQkey, .receive_depth = 1000}));
  }
  for (std::uint64_t i = 0; i < 200; ++i) {
    srd::ReceiveRequest receive;
    receive.cookie = i;
    receive.segments[0] = {memory.data(), 100};
    ASSERT_EQ(b.post_receive(kEndpoint, receive), srd::PostResult::accepted);
  }
  srd::Completion batch[64];
  std::size_t sent = 0;
  const auto send_what_fits = [&] {
    srd::SendRequest request;
    request.peer = a.peer(world::address_of_host(1), srd::AttachmentId{}).value();
    request.source = request.destination = kEndpoint;
    request.qkey = kQkey;
    request.segments[0] = {memory.data(), 50};
    while (sent < 200 && a.post(request) == srd::PostResult::accepted) {
      ++sent;
    }
  };
  for (int i = 0; i < 50; ++i) {
    send_what_fits();
    world.run_until(world.now() + 100us);
    (void)a.poll(batch);
  }
  EXPECT_LT(sent, 200U);
  std::size_t received = 0;
  for (int i = 0; i < 100 && received < 200; ++i) {
    const std::size_t n = b.poll(batch);
    EXPECT_LE(n, 40U);
    received += n;
    send_what_fits();
    world.run_until(world.now() + 1ms);
    (void)a.poll(batch);
  }
  EXPECT_EQ(received, 200U);
}

// Each has as much under way as it may. What arrives must still find room, or both would wait.
TEST(EngineLimits, BothEndsFullMakeProgress) {
  LabConfig config = lab_config();
  config.engine.max_work_requests = 64;
  config.engine.max_completions = 64;
  Pair pair(config);
  pair.a.receive(64);
  pair.b.receive(64);
  for (int i = 0; i < 64; ++i) {
    pair.a.send(pair.b, "ab");
    pair.b.send(pair.a, "ba");
  }
  ASSERT_TRUE(pair.run_until_idle(1s));
  EXPECT_EQ(pair.a.inbox().size(), 64U);
  EXPECT_EQ(pair.b.inbox().size(), 64U);
  EXPECT_EQ(pair.a.engine().counters().deferred_pkts, 0U);
}

// An application that does not poll for long costs few packets, and none once it does.
TEST(EngineLimits, DeferredPacketsBackOff) {
  LabConfig config = lab_config();
  config.engine.max_work_requests = config.engine.max_completions = 4;
  config.engine.peer_timeout = 10s;
  world::VirtualWorld world(1);
  world.network().link() = config.link;
  world.add_host(config.engine);
  config.engine.max_work_requests = config.engine.max_completions = 64;
  world.add_host(config.engine);
  srd::Engine& slow = world.engine(0);
  srd::Engine& sender = world.engine(1);
  std::vector<std::byte> memory(64);
  for (srd::Engine* engine : {&slow, &sender}) {
    ASSERT_TRUE(engine->open_endpoint(kEndpoint, {.qkey = kQkey, .receive_depth = 64}));
  }
  srd::SendRequest request;
  request.peer = sender.peer(world::address_of_host(0), srd::AttachmentId{}).value();
  request.source = request.destination = kEndpoint;
  request.qkey = kQkey;
  request.segments[0] = {memory.data(), 50};
  for (int i = 0; i < 8; ++i) {
    srd::ReceiveRequest receive;
    receive.segments[0] = {memory.data(), 64};
    ASSERT_EQ(slow.post_receive(kEndpoint, receive), srd::PostResult::accepted);
    ASSERT_EQ(sender.post(request), srd::PostResult::accepted);
  }
  world.run_until(world.now() + 1s);
  EXPECT_LT(sender.counters().tx_pkts, 4 * (1000 + 20)) << "each of four about once in 1.28 ms";
  EXPECT_EQ(sender.counters().unresponsive_remote_events, 0U);
  srd::Completion batch[16];
  ASSERT_EQ(slow.poll(batch), 4U);
  world.run_until(world.now() + 10ms);
  EXPECT_EQ(slow.poll(batch), 4U);
  EXPECT_EQ(sender.poll(batch), 8U);
}

// From inside by an error, from outside by silence.
TEST(EngineLimits, PeersBeyondTheLimitAreRefused) {
  LabConfig config = lab_config();
  config.engine.max_peers = 2;
  config.engine.peer_timeout = 20ms;
  Lab lab(4, config);
  for (std::uint32_t i = 0; i < 4; ++i) {
    lab[i].receive(10);
  }
  EXPECT_TRUE(lab[0].engine().peer(world::address_of_host(1), srd::AttachmentId{}));
  EXPECT_TRUE(lab[0].engine().peer(world::address_of_host(2), srd::AttachmentId{}));
  const auto third = lab[0].engine().peer(world::address_of_host(3), srd::AttachmentId{});
  ASSERT_FALSE(third.has_value());
  EXPECT_NE(third.error().message.find("max_peers"), std::string::npos);
  // From the outside the limit looks like a machine that is not there.
  const auto unheard = lab[3].send(lab[0], "let me in");
  ASSERT_TRUE(lab.run_until([&] { return lab[3].outstanding() == 0; }));
  EXPECT_EQ(lab[3].status(unheard), Status::unreachable);
  EXPECT_GT(
      lab[0].engine().counters().drops[static_cast<std::size_t>(srd::DropReason::peer_table_full)],
      0U);
}

// One context is then both ends: its sender and its receiver must not share anything.
TEST(EngineLimits, AProcessMayBeItsOwnPeer) {
  Lab lab(1);
  lab[0].receive(3);
  lab[0].send(lab[0], "to myself");
  lab[0].write(lab[0], 0, pattern(10'000), {.immediate = 1});
  ASSERT_TRUE(lab.run_until_idle());
  EXPECT_EQ(lab[0].inbox().size(), 2U);
  EXPECT_EQ(lab[0].memory(0, 10'000), pattern(10'000));
}

}  // namespace
}  // namespace weft::testing
