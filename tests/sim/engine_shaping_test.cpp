// Owns the stories of how traffic is shaped: acknowledgements, marks, pacing, credits, order on
// purpose.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/lab.hpp"

namespace weft::testing {
namespace {

// A sender may have four packets under way without having been granted any.
LabConfig rationed() {
  LabConfig config = lab_config();
  config.engine.receiver_credits = true;
  config.engine.credit_window = 4096;
  return config;
}

// Its question was lost, and the bytes of reads go on coming: they bring no credits.
TEST(EngineShaping, CreditsAreAskedForAgainBesideLongReads) {
  LabConfig config = rationed();
  config.link.rate = Rate::gbps(10);
  Pair pair(config);
  pair.a.write(pair.b, 0, pattern(1000));  // an acquaintance
  ASSERT_TRUE(pair.run_until_idle());
  std::vector<std::uint64_t> reads;
  for (int i = 0; i < 20; ++i) {
    reads.push_back(pair.a.read(pair.b, 0, 1'000'000));
  }
  pair.run_for(200us);
  pair.network().lose_next(Packet::credit_request);
  const auto write = pair.a.write(pair.b, 0, pattern(50'000));
  ASSERT_TRUE(pair.run_until([&] { return pair.a.status(write).has_value(); }));
  EXPECT_EQ(pair.a.status(write), Status::ok);
  EXPECT_EQ(pair.a.status(reads.back()), std::nullopt);  // long before the reads have ended
  ASSERT_TRUE(pair.run_until_idle());
}

// A packet that was refused wants credits again, until it is given up. What was granted for it must
// not pile up: it would let the next message flood the receiver.
TEST(EngineShaping, WhatIsGivenUpInABackOffKeepsNoCredits) {
  Pair pair(rationed());
  for (int i = 0; i < 50; ++i) {
    pair.a.send(pair.b, pattern(1000));  // no receive is posted
    pair.run_for(25us);
    pair.a.engine().flush(pair.a.peer(pair.b), kEndpoint);
    pair.run_for(1ms);
  }
  const std::uint64_t before = pair.a.engine().counters().data_pkts;
  pair.a.write(pair.b, 0, pattern(60'000));
  pair.run_for(9us);  // less than a round trip
  const std::uint64_t blind = pair.a.engine().counters().data_pkts - before;
  EXPECT_LE(blind, 4096U / 1024 + 2);
}

// Its demand was not withdrawn for a silence during which the receiver did not listen.
TEST(EngineShaping, AReceiverThatSleptGoesOnGranting) {
  LabConfig config = rationed();
  config.engine.peer_timeout = 20ms;
  config.engine.max_rto = 1ms;
  config.link.rate = Rate::gbps(1);
  Pair pair(config);
  const auto write = pair.a.write(pair.b, 0, pattern(200'000));
  pair.run_for(300us);
  pair.world().pause(0);  // asks nothing meanwhile
  pair.world().pause(1);
  pair.run_for(1s);
  pair.world().resume(1);
  pair.run_for(1ms);
  const std::uint64_t asked = pair.a.engine().counters().credit_requests;
  pair.world().resume(0);
  ASSERT_TRUE(pair.run_until([&] { return pair.a.status(write).has_value(); }));
  EXPECT_EQ(pair.a.status(write), Status::ok);
  EXPECT_GE(asked, 1U);
}

// [wire 4.4]
TEST(EngineShaping, OneAcknowledgementForSeveralPackets) {
  LabConfig config = lab_config();
  config.engine.ack_every = 8;
  config.engine.mtu_payload = 4096;
  config.engine.congestion_control = "fixed";
  config.link.rate = Rate::gbps(100);
  Pair pair(config);
  pair.a.write_phantom(pair.b, 4'000'000);
  ASSERT_TRUE(pair.run_until_idle());
  const auto& counters = pair.a.engine().counters();
  EXPECT_LE(counters.acks_received * 6, counters.data_pkts);
}

TEST(EngineShaping, ALonelyPacketIsAcknowledgedAtOnce) {
  LabConfig config = lab_config();
  config.engine.ack_every = 64;
  config.engine.ack_delay = 1ms;
  Pair pair(config);
  pair.b.receive();
  const auto send = pair.a.send(pair.b, "alone");
  ASSERT_TRUE(pair.run_until([&] { return pair.a.status(send).has_value(); }));
  EXPECT_EQ(pair.elapsed(), pair.rtt());
}

TEST(EngineShaping, EveryMarkIsToldToTheSender) {
  Pair pair;
  pair.b.receive(10);
  pair.network().add({.kind = Packet::send, .action = Action::mark, .skip = 2, .count = 3});
  std::uint32_t echoed = 0;
  std::uint32_t counted = 0;
  pair.network().observe([&](TimePoint, world::NetworkEvent event, const auto& packet) {
    srd::wire::AckHeader ack;
    if (event == world::NetworkEvent::delivered && world::kind_of(packet.bytes) == Packet::ack &&
        srd::wire::load(packet.bytes, ack)) {
      echoed += (ack.common.flags & srd::wire::kEchoCongested) != 0;
      counted = ack.marked.value();
    }
  });
  for (int i = 0; i < 10; ++i) {
    pair.a.send(pair.b, "message");
    ASSERT_TRUE(pair.run_until_idle());
  }
  EXPECT_EQ(pair.b.engine().counters().congested_pkts, 3U);
  EXPECT_EQ(echoed, 3U);
  EXPECT_EQ(counted, 3U);
}

// [wire 3.1] Every packet says which path it takes.
TEST(EngineShaping, EveryPacketNamesItsPath) {
  LabConfig config = lab_config();
  config.engine.receiver_credits = true;
  config.engine.credit_window = 2048;
  Pair pair(config);
  std::map<std::uint8_t, int> seen;
  pair.network().observe([&](TimePoint, world::NetworkEvent event, const auto& packet) {
    srd::wire::CommonHeader header;
    if (event == world::NetworkEvent::sent && srd::wire::load(packet.bytes, header) &&
        world::kind_of(packet.bytes) != Packet::ack) {
      EXPECT_EQ(header.path.value(), packet.path.value()) << int{header.type};
      ++seen[header.type];
    }
  });
  pair.b.receive(200);
  for (int i = 0; i < 100; ++i) {
    pair.a.send(pair.b, pattern(1000));
  }
  ASSERT_TRUE(pair.run_until_idle());
  for (int i = 0; i < 20; ++i) {
    pair.restart(pair.b);
    pair.a.send(pair.b, "who are you?");
    ASSERT_TRUE(pair.run_until_idle());
  }
  EXPECT_GT(seen[static_cast<std::uint8_t>(srd::wire::PacketType::credit_request)], 0);
  EXPECT_EQ(seen[static_cast<std::uint8_t>(srd::wire::PacketType::stale_life)], 20);
}

// Threads that drive an engine in turn read their clocks a little apart.
TEST(EngineShaping, ANowBeforeTheLatestIsTheLatest) {
  LabConfig config = lab_config();
  config.engine.seed = 1;
  srd::Engine engine(config.engine);
  ASSERT_TRUE(engine.open_endpoint(kEndpoint, {.qkey = kQkey}));
  srd::SendRequest request;
  request.peer = engine.peer(world::address_of_host(1), srd::AttachmentId{}).value();
  request.source = request.destination = kEndpoint;
  ASSERT_EQ(engine.post(request), srd::PostResult::accepted);
  const TimePoint now = time_at(1s);
  engine.on_timeout(now);
  srd::TxPacket out;
  ASSERT_TRUE(engine.next_transmit(now - 1us, out));
  srd::wire::DataHeader header;
  ASSERT_TRUE(srd::wire::load(std::span(out.header), header));
  EXPECT_EQ(header.send_time.value(), static_cast<std::uint32_t>(nanoseconds(now)));
  EXPECT_GE(engine.next_timeout(), now);
}

// Twelve packets wait at a process that has no core, and one acknowledgement speaks for all.
TEST(EngineShaping, ABurstOfMarksIsToldAsMany) {
  Pair pair;
  pair.a.read(pair.b, 0, 8);
  ASSERT_TRUE(pair.run_until_idle());
  pair.b.receive(24);
  pair.network().link().mark = 1.0;
  std::uint32_t told = 0;
  pair.network().observe([&](TimePoint, world::NetworkEvent event, const auto& packet) {
    srd::wire::AckHeader ack;
    if (event == world::NetworkEvent::delivered && world::kind_of(packet.bytes) == Packet::ack &&
        srd::wire::load(packet.bytes, ack)) {
      told = ack.marked.value();
    }
  });
  pair.world().pause(1);
  for (int i = 0; i < 12; ++i) {
    pair.a.send(pair.b, "message");
  }
  pair.run_for(20us);
  pair.network().lose_next(Packet::ack);  // what it said, the next one says as well
  pair.world().resume(1);
  pair.run_for(30us);
  pair.a.send(pair.b, "message");
  ASSERT_TRUE(pair.run_until_idle());
  EXPECT_EQ(told, 13U);
}

// The queue at a shared port, the most that an incast of `senders` lets it grow to.
Duration longest_delay(const std::string& control, bool credits) {
  LabConfig config = lab_config();
  config.engine.congestion_control = control;
  config.engine.receiver_credits = credits;
  config.engine.credit_window = 8192;  // what everybody sends unasked is the queue that stays
  config.engine.mtu_payload = 4096;
  config.engine.line_rate = Rate::gbps(25);
  config.link.rate = Rate::gbps(25);
  config.link.mark_above = 20'000;
  Lab lab(9, config);
  for (std::uint32_t i = 1; i < 9; ++i) {
    lab[i].write_phantom(lab[0], 2'000'000);
  }
  Duration longest{};
  std::map<std::uint64_t, TimePoint> departures;
  lab.network().observe([&](TimePoint when, world::NetworkEvent event, const auto& packet) {
    srd::wire::DataHeader header;
    if (world::kind_of(packet.bytes) != Packet::write || !srd::wire::load(packet.bytes, header)) {
      return;
    }
    const std::uint64_t key = (std::uint64_t{packet.from} << 40) | header.psn.value();
    if (event == world::NetworkEvent::sent) {
      departures[key] = when;
    } else if (event == world::NetworkEvent::delivered && lab.elapsed() > 500us) {
      longest = std::max(longest, when - departures[key]);
    }
  });
  EXPECT_TRUE(lab.run_until_idle());
  for (std::uint32_t i = 1; i < 9; ++i) {
    EXPECT_EQ(lab[i].engine().counters().rdma_write_bytes, 2'000'000U);
  }
  return longest;
}

TEST(EngineShaping, CongestionControlKeepsTheQueueOfAnIncastShort) {
  const Duration blind = longest_delay("fixed", false);
  for (const std::string control : {"nscc", "swift", "dctcp", "mprdma"}) {
    EXPECT_LT(longest_delay(control, false), blind) << control;
  }
}

TEST(EngineShaping, CreditsKeepTheQueueOfAnIncastShort) {
  EXPECT_LT(longest_delay("fixed", true), longest_delay("fixed", false) / 2);
}

TEST(EngineShaping, APacedSenderSpreadsItsPackets) {
  LabConfig config = lab_config();
  config.engine.congestion_control = "swift";
  config.link.rate = Rate::gbps(1);
  config.engine.line_rate = Rate::gbps(1);
  Lab lab(17, config);
  for (std::uint32_t i = 1; i < 17; ++i) {
    lab[i].write_phantom(lab[0], 200'000);
  }
  ASSERT_TRUE(lab.run_until_idle());
  // Each packet of 1024 bytes has 64 bytes of headers.
  const double ideal = 16 * 200'000 * 1088.0 / 1024 * 8 / 1e9;
  EXPECT_LT(static_cast<double>(lab.elapsed().count()) * 1e-9, ideal * 1.3);
}

// Two engines as a carrier drives them: once in a microsecond a burst there and a burst back, in
// each of which the clock was read once. The receiver goes by many addresses.
class Bursts {
 public:
  explicit Bursts(std::uint32_t peers) : sender_(configured(1)), receiver_(configured(2)) {
    EXPECT_TRUE(sender_.open_endpoint(kEndpoint, {.qkey = kQkey}));
    EXPECT_TRUE(receiver_.open_endpoint(kEndpoint, {.qkey = kQkey, .receive_depth = 1024}));
    for (std::uint32_t i = 0; i < peers; ++i) {
      peers_.push_back(*sender_.peer(numbered(i), srd::AttachmentId{0}));
    }
    for (int i = 0; i < 1024; ++i) {
      EXPECT_EQ(receiver_.post_receive(kEndpoint, {}), srd::PostResult::accepted);
    }
  }

  // Messages in runs of one turn for each peer, as many under way as fill every burst.
  void step() {
    while (sender_.outstanding() < 16 * srd::TxPacket::kMaxBurst) {
      srd::SendRequest request;
      request.peer = peers_[posted_++ / srd::Scheduler::kPacketsOfTurn % peers_.size()];
      request.source = request.destination = kEndpoint;
      request.qkey = kQkey;
      ASSERT_EQ(sender_.post(request), srd::PostResult::accepted);
    }
    now_ += std::chrono::microseconds{1};
    carry(sender_, receiver_);
    carry(receiver_, sender_);
    std::array<srd::Completion, 64> done;
    while (sender_.poll(done) != 0) {
    }
    while (const std::size_t count = receiver_.poll(done)) {
      for (std::size_t i = 0; i < count; ++i) {
        ASSERT_EQ(receiver_.post_receive(kEndpoint, {}), srd::PostResult::accepted);
      }
    }
  }
  [[nodiscard]] const srd::Counters& counters() const { return sender_.counters(); }

 private:
  static srd::EngineConfig configured(std::uint64_t seed) {
    srd::EngineConfig config;
    config.seed = seed;
    config.paths = 16;
    config.mtu_payload = 64;
    config.line_rate = Rate::gbps(400);
    config.pace_step = std::chrono::microseconds{1};
    return config;
  }
  static srd::Address numbered(std::uint32_t i) {
    return srd::Address::v4(10, 0, i / 256, i % 256);
  }
  void carry(srd::Engine& from, srd::Engine& to) {
    if (from.next_timeout() <= now_) {
      from.on_timeout(now_);
    }
    std::vector<srd::TxPacket> burst(srd::TxPacket::kMaxBurst);
    std::size_t count = 0;
    while (count < burst.size() && from.next_transmit(now_, burst[count])) {
      ++count;
    }
    for (std::size_t i = 0; i < count; ++i) {
      srd::RxPacket packet;
      packet.from = burst[i].to;  // both know each other under the same addresses
      packet.path = burst[i].path;
      packet.bytes = std::span(burst[i].header).first(burst[i].header_size);
      to.on_packet(now_, packet);
    }
  }

  srd::Engine sender_;
  srd::Engine receiver_;
  std::vector<srd::PeerId> peers_;
  std::size_t posted_ = 0;
  TimePoint now_{};
};

// Below one bandwidth-delay product a sender is paced, and its packets are due within nanoseconds.
// One for each burst would make every turn a single packet, which nobody asks an acknowledgement
// for, until a probe does.
TEST(EngineShaping, WhatHasComeDueSinceTheLastBurstLeavesTogether) {
  Bursts bursts(64);
  for (int i = 0; i < 2000; ++i) {
    ASSERT_NO_FATAL_FAILURE(bursts.step());
  }
  EXPECT_GT(bursts.counters().data_pkts, 2000U * srd::TxPacket::kMaxBurst * 95 / 100);
  EXPECT_LT(bursts.counters().tx_pkts, bursts.counters().data_pkts * 101 / 100);
  EXPECT_EQ(bursts.counters().tail_probes, 0U);
}

// How many messages arrived after one that was posted later.
std::size_t overtaken(std::uint16_t forced_reorder, std::uint64_t seed) {
  LabConfig config = lab_config();
  config.seed = seed;
  config.engine.forced_reorder = forced_reorder;
  Pair pair(config);
  pair.b.receive(300);
  for (int i = 0; i < 300; ++i) {
    pair.a.send(pair.b, std::string(1, static_cast<char>(i / 100)) +
                            std::string(1, static_cast<char>(i % 100)));
  }
  EXPECT_TRUE(pair.run_until_idle());
  const auto texts = pair.b.texts();
  EXPECT_EQ(texts.size(), 300U);
  std::size_t count = 0;
  std::string latest;
  for (const auto& text : texts) {
    count += text < latest;
    latest = std::max(latest, text);
  }
  return count;
}

TEST(EngineShaping, OrderIsShuffledOnPurposeAndBySeed) {
  EXPECT_EQ(overtaken(0, 1), 0U);
  EXPECT_GT(overtaken(16, 1), 50U);
  EXPECT_EQ(overtaken(16, 5), overtaken(16, 5));
}

TEST(EngineShaping, AWriteIsShuffledPacketByPacket) {
  LabConfig config = lab_config();
  config.engine.forced_reorder = 16;
  Pair pair(config);
  pair.b.receive();
  std::vector<std::uint64_t> addresses;
  pair.network().observe([&](TimePoint, world::NetworkEvent event, const auto& packet) {
    srd::wire::DataHeader header;
    if (event == world::NetworkEvent::delivered && world::kind_of(packet.bytes) == Packet::write &&
        srd::wire::load(packet.bytes, header)) {
      addresses.push_back(header.remote_address.value());
    }
  });
  pair.a.write(pair.b, 0, pattern(64 * 1024), {.immediate = 1});
  ASSERT_TRUE(pair.run_until_idle());
  EXPECT_EQ(pair.b.memory(0, 64 * 1024), pattern(64 * 1024));
  EXPECT_FALSE(std::is_sorted(addresses.begin(), addresses.end()));
  EXPECT_EQ(pair.b.inbox().size(), 1U);
}

}  // namespace
}  // namespace weft::testing
