// Owns the tests of flows as the engine's writes, between two hosts whose packets the test carries.
#include "emu/sim/engine_transport.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace weft::sim {
namespace {

using ::testing::ElementsAre;

srd::EngineConfig bulk_config() {
  srd::EngineConfig config;
  config.mtu_payload = 8192;
  config.checksum = false;
  EXPECT_TRUE(srd::validate(config));
  return config;
}

// Two hosts, and a wire that loses what `loses` says.
struct Pair {
  explicit Pair(std::function<bool(const srd::TxPacket&)> rule) : loses(std::move(rule)) {}

  // Carries all there is at this moment, and goes on to the next. Returns what has ended, the
  // sender's and the receiver's.
  std::vector<FlowEvent> step() {
    std::vector<FlowEvent> ended;
    std::array<FlowEvent, 4> events{};
    for (bool carried = true; carried;) {
      carried = carry(sender, 0, receiver);
      carried |= carry(receiver, 1, sender);
      for (EngineTransport* const host : {&receiver, &sender}) {
        const std::size_t count = host->poll(events);
        ended.insert(ended.end(), events.begin(), events.begin() + count);
        carried |= count != 0;
      }
    }
    now = std::min(sender.machine().next_timeout(), receiver.machine().next_timeout());
    if (now != kNever) {
      sender.machine().on_timeout(now);
      receiver.machine().on_timeout(now);
    }
    return ended;
  }

  std::shared_ptr<EngineTransport::Keys> keys = std::make_shared<EngineTransport::Keys>();
  EngineTransport sender{0, bulk_config(), keys};
  EngineTransport receiver{1, bulk_config(), keys};
  TimePoint now = time_at(std::chrono::milliseconds{1});
  std::function<bool(const srd::TxPacket&)> loses;

 private:
  bool carry(EngineTransport& from, fabric::PortId of, EngineTransport& to) {
    srd::TxPacket packet;
    bool any = false;
    while (from.machine().next_transmit(now, packet)) {
      any = true;
      if (loses(packet)) {
        continue;
      }
      srd::RxPacket arrived;
      arrived.from = address_of(of);
      arrived.path = packet.path;
      arrived.bytes = {packet.header.data(), packet.header_size};
      arrived.more = phantom_payload(packet.payload_size());
      to.machine().on_packet(now, arrived);
    }
    return any;
  }
};

// Such a flow is several writes, and the last one, of a packet, would be here before the first
// one's lost packet has come again.
TEST(EngineTransport, AFlowBeyondTheLongestWriteHasArrivedWhenAllOfItHas) {
  constexpr Bytes kFlow = 2 * Bytes{srd::kMaxTransfer} + 1000;
  bool lost = false;
  Pair pair([&](const srd::TxPacket& packet) {
    return packet.payload_size() > 0 && !std::exchange(lost, true);
  });
  pair.sender.start(pair.now, {.flow = 5, .destination = 1, .bytes = kFlow});
  std::vector<FlowEvent::Kind> ended;
  while (ended.size() < 2 && pair.now < time_at(std::chrono::seconds{10})) {
    for (const FlowEvent& event : pair.step()) {
      EXPECT_EQ(event.flow, 5U);
      ended.push_back(event.kind);
      EXPECT_EQ(pair.receiver.engine().counters().rdma_write_recv_bytes, kFlow);
    }
  }
  EXPECT_THAT(ended, ElementsAre(FlowEvent::Kind::received, FlowEvent::Kind::sent));
}

// The network is dead until the sender has given the peer up. Then it is well again, and the rest
// of the flow stays where it is: the receiver would take the last write for the end of all.
TEST(EngineTransport, AFlowThatHasFailedInTheMiddleIsNotAnnounced) {
  std::vector<FlowEvent::Kind> ended;
  int packets = 0;
  Pair pair([&](const srd::TxPacket& /*packet*/) { return ++packets > 1000 && ended.empty(); });
  pair.sender.start(pair.now,
                    {.flow = 5, .destination = 1, .bytes = 2 * Bytes{srd::kMaxTransfer} + 1000});
  while (pair.now < time_at(std::chrono::minutes{1})) {
    for (const FlowEvent& event : pair.step()) {
      ended.push_back(event.kind);
    }
  }
  EXPECT_THAT(ended, ElementsAre(FlowEvent::Kind::failed));
  // Another flow to the same peer is not held up by it.
  pair.now =
      std::max(pair.now == kNever ? TimePoint{} : pair.now, time_at(std::chrono::minutes{1}));
  pair.sender.start(pair.now, {.flow = 6, .destination = 1, .bytes = 1000});
  for (int i = 0; i < 1000 && ended.size() < 3 && pair.now != kNever; ++i) {
    for (const FlowEvent& event : pair.step()) {
      EXPECT_EQ(event.flow, 6U);
      ended.push_back(event.kind);
    }
  }
  EXPECT_THAT(ended, ElementsAre(FlowEvent::Kind::failed, FlowEvent::Kind::received,
                                 FlowEvent::Kind::sent));
}

}  // namespace
}  // namespace weft::sim
