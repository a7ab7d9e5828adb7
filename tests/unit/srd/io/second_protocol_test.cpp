// Owns the tests that rings carry another protocol than SRD as well: its ports, its route key, and
// what it has behind the payload.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "srd/io/ring_io.hpp"
#include "tests/unit/srd/io/conformance.hpp"
#include "tests/unit/srd/io/srd_carriers.hpp"
#include "tests/unit/srd/net/trailer_codec.hpp"

namespace weft::srd {
namespace {

using net::test::TrailerCodec;
using Rings = RingIo<TrailerCodec>;

constexpr std::size_t kMtu = 1000;
constexpr std::size_t kRing = kMinRingBytes;
const Address kOne = Address::v4(127, 1, 0, 1);
const Address kOther = Address::v4(127, 1, 0, 2);

std::pair<RingPort, RingPort> joined_ports() {
  const auto memory = RingPort::create_memory(kRing);
  auto bells = Bell::create_pair();
  EXPECT_TRUE(memory && bells);
  constexpr std::size_t kFrame = net::max_frame_for(kMtu);
  auto near = RingPort::open(memory->get(), kRing, 0, kFrame, std::move(bells->first));
  auto far = RingPort::open(memory->get(), kRing, 1, kFrame, std::move(bells->second));
  EXPECT_TRUE(near && far);
  return {std::move(*near), std::move(*far)};
}

// To queue pair 9 of that process.
TxPacket packet_to(unsigned attachment, std::span<const std::byte> payload) {
  TxPacket packet;
  packet.to = kOther;
  packet.path = PathId{0x3FFF};
  packet.header_size = TrailerCodec::kHeader;
  packet.header.fill({});
  packet.header[1] = static_cast<std::byte>(attachment);
  packet.header[3] = std::byte{9};
  packet.payload[0] = payload;
  return packet;
}

class SecondProtocol : public testing::Test {
 protected:
  void SetUp() override {
    auto pair = Rings::create_pair({.own = kOne, .mtu = kMtu}, {.own = kOther, .mtu = kMtu}, kRing);
    ASSERT_TRUE(pair) << pair.error().message;
    one_ = std::move(pair->first);
    other_ = std::move(pair->second);
  }

  std::unique_ptr<Rings> one_;
  std::unique_ptr<Rings> other_;
};

TEST_F(SecondProtocol, HasAllItsPaths) {
  EXPECT_EQ(one_->capabilities().paths, 0x4000);
  const TxPacket packet = packet_to(7, {});
  ASSERT_EQ(one_->transmit({&packet, 1}), 1U);
  const auto received = other_->receive();
  ASSERT_EQ(received.size(), 1U);
  EXPECT_EQ(received[0].path, PathId{0x3FFF});
  EXPECT_FALSE(received[0].trimmed);
  other_->release();
}

TEST_F(SecondProtocol, PacketsHaveTheirTrailer) {
  for (std::size_t size = 0; size < 9; ++size) {
    const std::vector<std::byte> payload(size, std::byte{0x5A});
    const TxPacket packet = packet_to(7, payload);
    ASSERT_EQ(one_->transmit({&packet, 1}), 1U);
    const auto received = other_->receive();
    ASSERT_EQ(received.size(), 1U);
    std::vector<std::byte> expected(packet.header.data(), packet.header.data() + 8);
    expected.insert(expected.end(), payload.begin(), payload.end());
    expected.resize(8 + (size + 3) / 4 * 4 + TrailerCodec::kCheck);
    EXPECT_TRUE(std::ranges::equal(received[0].bytes, expected)) << size;
    other_->release();
  }
}

// For checksums that protect parts of the headers around a packet.
TEST_F(SecondProtocol, TheReceiverSeesTheEnvelope) {
  const TxPacket packet = packet_to(7, {});
  ASSERT_EQ(one_->transmit({&packet, 1}), 1U);
  const auto received = other_->receive();
  ASSERT_EQ(received.size(), 1U);
  const auto envelope = received[0].envelope();
  ASSERT_EQ(envelope.size(), net::kEnvelopeSizeV4);
  const auto frame = std::span(envelope.data(), envelope.size() + received[0].bytes.size());
  EXPECT_EQ(net::FlowKey::parse(frame).source(), kOne);
  EXPECT_EQ(net::FlowKey::parse(frame).destination_port(), TrailerCodec::kPorts.destination);
  other_->release();
}

TEST_F(SecondProtocol, TheTrailerCountsForTheMtu) {
  const std::vector<std::byte> payload(kMtu - TrailerCodec::kHeader);
  for (const std::size_t size : {payload.size() - TrailerCodec::kCheck, payload.size()}) {
    const TxPacket packet = packet_to(7, std::span(payload).first(size));
    ASSERT_EQ(one_->transmit({&packet, 1}), 1U);
  }
  EXPECT_EQ(one_->counters().tx_oversize, 1U);
  EXPECT_EQ(other_->receive().size(), 1U);
  other_->release();
}

TEST_F(SecondProtocol, DirectRingsAreFoundByItsRouteKey) {
  auto ports = joined_ports();
  ASSERT_TRUE(one_->add_direct({kOther, AttachmentId{8}, Life{1}}, std::move(ports.first)));
  for (const unsigned attachment : {7U, 8U, 8U}) {
    const TxPacket packet = packet_to(attachment, {});
    ASSERT_EQ(one_->transmit({&packet, 1}), 1U);
  }
  TxPacket management = packet_to(0, {});
  management.header[3] = std::byte{1};
  ASSERT_EQ(one_->transmit({&management, 1}), 1U);
  EXPECT_EQ(other_->receive().size(), 2U) << "the uplink: another process, and management";
  other_->release();
  auto direct = Rings::create({.own = kOther, .mtu = kMtu}, std::move(ports.second));
  ASSERT_TRUE(direct);
  EXPECT_EQ((*direct)->receive().size(), 2U);
  (*direct)->release();
}

// It says nothing of its sender but the address: that must fit.
TEST_F(SecondProtocol, AnotherNicsPacketsDoNotComeOutOfADirectRing) {
  auto ports = joined_ports();
  ASSERT_TRUE(other_->add_direct({kOne, AttachmentId{8}, Life{1}}, std::move(ports.first)));
  auto forger =
      Rings::create({.own = Address::v4(127, 1, 0, 3), .mtu = kMtu}, std::move(ports.second));
  ASSERT_TRUE(forger);
  const TxPacket packet = packet_to(7, {});
  ASSERT_EQ((*forger)->transmit({&packet, 1}), 1U);
  EXPECT_TRUE(other_->receive().empty());
  EXPECT_EQ(other_->counters().rx_forged, 1U);
}

TEST(TwoProtocols, DoNotHearEachOther) {
  auto ports = joined_ports();
  auto second = Rings::create({.own = kOne, .mtu = kMtu}, std::move(ports.first));
  auto srd = test::SrdRings::create({.own = kOther, .mtu = kMtu}, std::move(ports.second));
  ASSERT_TRUE(second && srd);
  TxPacket packet = packet_to(7, {});
  ASSERT_EQ((*second)->transmit({&packet, 1}), 1U);
  EXPECT_TRUE((*srd)->receive().empty());
  EXPECT_EQ((*srd)->counters().rx_malformed, 1U);
  packet.to = kOne;
  packet.path = PathId{3};
  packet.header_size = 64;
  ASSERT_EQ((*srd)->transmit({&packet, 1}), 1U);
  EXPECT_TRUE((*second)->receive().empty());
  EXPECT_EQ((*second)->counters().rx_malformed, 1U);
}

}  // namespace
}  // namespace weft::srd
