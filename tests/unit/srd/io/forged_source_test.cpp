// Owns whose packets a direct ring may carry: its peer's and no others.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <span>

#include "srd/wire/srd_header.hpp"
#include "tests/unit/srd/io/conformance.hpp"
#include "tests/unit/srd/io/srd_carriers.hpp"

namespace weft::srd {
namespace {

constexpr std::size_t kCapacity = std::size_t{1} << 16;
constexpr std::size_t kMtu = 4160;

struct Source {
  Address address;
  std::uint16_t attachment;
  std::uint32_t life;
};

class ForgedSource : public testing::Test {
 protected:
  void SetUp() override {
    auto pair =
        test::SrdRings::create_pair({.own = own_, .mtu = kMtu}, {.own = other_, .mtu = kMtu});
    ASSERT_TRUE(pair) << pair.error().message;
    io_ = std::move(pair->first);
    uplink_ = std::move(pair->second);
    auto memory = RingPort::create_memory(kCapacity);
    auto bell = Bell::create_pair();
    ASSERT_TRUE(memory && bell);
    const std::size_t frame = net::max_frame_for(kMtu);
    auto near = RingPort::open(memory->get(), kCapacity, 0, frame, std::move(bell->first));
    auto far = RingPort::open(memory->get(), kCapacity, 1, frame, std::move(bell->second));
    ASSERT_TRUE(near && far);
    peer_.emplace(std::move(*far));
    ASSERT_TRUE(io_->add_direct({other_, AttachmentId{7}, Life{100}}, std::move(*near)));
  }
  // What a process with that ring may write into it. Returns how many packets come out.
  std::size_t write(const Source& source, std::size_t size = 64) {
    std::array<std::byte, 64> packet{};
    wire::CommonHeader header{};
    header.version = wire::kVersion;
    header.source_attachment = source.attachment;
    header.source_life = source.life;
    wire::store(packet.data(), header);
    const auto envelope = net::EnvelopeWriter::make(source.address, wire::SrdCodec::kPorts);
    std::byte* const frame = peer_->tx().reserve(envelope->size() + size);
    EXPECT_TRUE(envelope->write(frame, own_, PathId{0}, Ecn::not_capable, 0, size));
    std::memcpy(frame + envelope->size(), packet.data(), size);
    peer_->tx().commit(envelope->size() + size, {});
    const std::size_t count = io_->receive().size();
    io_->release();
    return count;
  }

  Address own_ = test::ipv4(127, 1, 0, 1);
  Address other_ = test::ipv4(127, 1, 0, 2);
  std::unique_ptr<test::SrdRings> io_;
  std::unique_ptr<test::SrdRings> uplink_;
  std::optional<RingPort> peer_;
};

TEST_F(ForgedSource, OnlyThePeerItselfIsHeard) {
  EXPECT_EQ(write({other_, 7, 100}), 1U);
  EXPECT_EQ(write({test::ipv4(127, 1, 0, 3), 7, 100}), 0U);  // another NIC
  EXPECT_EQ(write({other_, 8, 100}), 0U);                    // another process on that NIC
  EXPECT_EQ(write({other_, 7, 101}), 0U);                    // which might come after it
  EXPECT_EQ(write({other_, 7, 99}), 0U);
  EXPECT_EQ(write({own_, 7, 100}), 0U);
  EXPECT_EQ(io_->counters().rx_forged, 5U);
  EXPECT_EQ(write({other_, 7, 100}), 1U);
  EXPECT_EQ(io_->counters().rx_malformed, 0U);
  EXPECT_EQ(io_->counters().ports_broken, 0U);
}

TEST_F(ForgedSource, APacketTooShortToSayIsNotHeard) {
  EXPECT_EQ(write({other_, 7, 100}, sizeof(wire::CommonHeader)), 1U);
  EXPECT_EQ(write({other_, 7, 100}, sizeof(wire::CommonHeader) - 1), 0U);
  EXPECT_EQ(write({other_, 7, 100}, 1), 0U);
  EXPECT_EQ(io_->counters().rx_forged, 2U);
}

// Behind weftd there is everybody.
TEST_F(ForgedSource, TheUplinkCarriesAnybodysPackets) {
  TxPacket packet;
  packet.to = own_;
  packet.header_size = 64;
  packet.header.fill({});
  ASSERT_EQ(uplink_->transmit({&packet, 1}), 1U);
  EXPECT_EQ(io_->receive().size(), 1U);
  io_->release();
}

}  // namespace
}  // namespace weft::srd
