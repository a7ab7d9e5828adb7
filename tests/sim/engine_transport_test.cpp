// Owns the tests of flows as the engine's writes, between two hosts whose packets the test carries.
#include "emu/sim/engine_transport.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

namespace weft::sim {
namespace {

// Carries all that `from` has to send; returns whether there was something. The first data packet
// of all is lost.
bool carry(TimePoint now, EngineTransport& from, fabric::PortId of, EngineTransport& to,
           bool& lost) {
  srd::TxPacket packet;
  bool any = false;
  while (from.machine().next_transmit(now, packet)) {
    any = true;
    if (packet.payload_size() > 0 && !std::exchange(lost, true)) {
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

// Such a flow is several writes, and the second one, of a packet, would be here before the first
// one's lost packet has come again.
TEST(EngineTransport, AFlowBeyondTheLongestWriteHasArrivedWhenAllOfItHas) {
  constexpr Bytes kFlow = srd::kMaxTransfer + 1000;
  srd::EngineConfig config;
  config.mtu_payload = 8192;
  config.checksum = false;
  ASSERT_TRUE(srd::validate(config));
  const auto keys = std::make_shared<EngineTransport::Keys>();
  EngineTransport sender(0, config, keys);
  EngineTransport receiver(1, config, keys);
  TimePoint now = time_at(std::chrono::milliseconds{1});
  sender.start(now, {.flow = 5, .destination = 1, .bytes = kFlow});
  std::array<FlowEvent, 4> events{};
  bool lost = false;
  bool received = false;
  bool sent = false;
  while (!sent && now < time_at(std::chrono::seconds{10})) {
    while (carry(now, sender, 0, receiver, lost) | carry(now, receiver, 1, sender, lost)) {
      if (receiver.poll(events) != 0) {
        EXPECT_EQ(events[0].flow, 5U);
        EXPECT_EQ(events[0].kind, FlowEvent::Kind::received);
        EXPECT_EQ(receiver.engine().counters().rdma_write_recv_bytes, kFlow);
        EXPECT_FALSE(std::exchange(received, true));
      }
      if (sender.poll(events) != 0) {
        EXPECT_EQ(events[0].kind, FlowEvent::Kind::sent);
        EXPECT_TRUE(received);
        sent = true;
      }
    }
    now = std::min(sender.machine().next_timeout(), receiver.machine().next_timeout());
    sender.machine().on_timeout(now);
    receiver.machine().on_timeout(now);
  }
  EXPECT_TRUE(sent);
  EXPECT_TRUE(lost);
}

}  // namespace
}  // namespace weft::sim
