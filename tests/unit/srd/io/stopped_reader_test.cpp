// Owns what becomes of everybody else when one reader of a ring stops reading. It must cost them
// nothing: what is for the stopped one is dropped once its patience is over, and it alone has to
// have it sent again.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>

#include "srd/wire/srd_header.hpp"
#include "tests/unit/srd/io/conformance.hpp"
#include "tests/unit/srd/io/srd_carriers.hpp"

namespace weft::srd {
namespace {

constexpr std::size_t kCapacity = std::size_t{1} << 16;
constexpr std::size_t kMtu = 4160;
constexpr AttachmentId kStopped{7};

// `io` has an uplink that is read, and a direct ring to a process that never reads unless asked to.
class StoppedReader : public testing::Test {
 protected:
  void build(Duration patience) {
    auto pair = test::SrdRings::create_pair({.own = own_, .mtu = kMtu, .patience = patience},
                                            {.own = other_, .mtu = kMtu});
    ASSERT_TRUE(pair) << pair.error().message;
    io_ = std::move(pair->first);
    reader_ = std::move(pair->second);
    auto memfd = RingPort::create_memory(kCapacity);
    ASSERT_TRUE(memfd);
    const std::size_t frame = net::max_frame_for(kMtu);
    auto bell = Bell::create_pair();
    ASSERT_TRUE(bell);
    auto near = RingPort::open(memfd->get(), kCapacity, 0, frame, std::move(bell->first));
    auto far = RingPort::open(memfd->get(), kCapacity, 1, frame, std::move(bell->second));
    ASSERT_TRUE(near && far);
    far_.emplace(std::move(*far));
    ASSERT_TRUE(io_->add_direct({stopped_, kStopped, Life{1}}, std::move(*near)));
  }
  static TxPacket packet(const Address& to, AttachmentId attachment) {
    TxPacket packet;
    packet.to = to;
    packet.header_size = 64;
    std::memset(packet.header.data(), 0, 64);
    packet.header[wire::kDestinationAttachmentOffset + 1] =
        static_cast<std::byte>(attachment.value());
    return packet;
  }
  bool send_to_stopped() {
    const TxPacket one = packet(stopped_, kStopped);
    return io_->transmit({&one, 1}) == 1;
  }
  // Until the ring takes no more. Returns how many it holds.
  std::size_t fill() {
    std::size_t count = 0;
    while (io_->counters().tx_stalled == 0 && count < 100'000 && send_to_stopped()) {
      ++count;
    }
    return count;
  }
  std::size_t drain_stopped() {
    std::size_t count = 0;
    RecordInfo info;
    while (!far_->rx().next(info).empty()) {
      ++count;
    }
    far_->rx().release();
    return count;
  }

  Address own_ = test::ipv4(127, 1, 0, 1);
  Address other_ = test::ipv4(127, 1, 0, 2);
  Address stopped_ = test::ipv4(127, 1, 0, 3);
  std::unique_ptr<test::SrdRings> io_;
  std::unique_ptr<test::SrdRings> reader_;
  std::optional<RingPort> far_;
};

TEST_F(StoppedReader, HoldsNobodyElseUp) {
  build(Duration::zero());
  const std::size_t held = fill();
  EXPECT_GT(held, 100U);
  EXPECT_GT(io_->transmit_room(), 0U);
  for (int i = 0; i < 5000; ++i) {
    const TxPacket burst[] = {packet(stopped_, kStopped), packet(other_, AttachmentId{1})};
    ASSERT_EQ(io_->transmit(burst), 2U) << "round " << i;
    ASSERT_EQ(reader_->receive().size(), 1U) << "round " << i;
    reader_->release();
  }
  // One for each round, and the one that ended fill().
  EXPECT_EQ(io_->counters().tx_stalled, 5000U + 1U);
}

// The one packet that found the ring full is lost; all others of each round are there when the
// reader comes back.
TEST_F(StoppedReader, GetsPacketsAgainOnceItReads) {
  build(Duration::zero());
  for (int round = 0; round < 5; ++round) {
    const auto before = io_->counters();
    std::size_t sent = 0;
    while (io_->counters().tx_stalled == before.tx_stalled) {
      ASSERT_TRUE(send_to_stopped());
      ++sent;
    }
    EXPECT_EQ(drain_stopped(), sent - 1) << "round " << round;
    EXPECT_EQ(io_->counters().tx_packets - before.tx_packets, sent - 1);
  }
}

// It takes a record whenever it would be given up otherwise.
TEST_F(StoppedReader, HoldsNobodyUpByReadingSlowly) {
  build(std::chrono::microseconds{100});
  EXPECT_TRUE(fill() > 100U);
  int rounds = 0;
  int with_room = 0;
  for (int records = 0; records < 50; ++records) {
    RecordInfo info;
    ASSERT_FALSE(far_->rx().next(info).empty());
    far_->rx().release();
    for (int round = 0; round < 2000; ++round, ++rounds) {
      const std::size_t room = io_->transmit_room();
      with_room += room > 0 ? 1 : 0;
      const TxPacket burst[] = {packet(stopped_, kStopped), packet(other_, AttachmentId{1})};
      const std::size_t taken = io_->transmit({burst, std::min<std::size_t>(room, 2)});
      ASSERT_EQ(taken, std::min<std::size_t>(room, 2));  // what was promised
      reader_->release();
      ASSERT_EQ(reader_->receive().size(), taken / 2);
    }
  }
  // At most half of the time may go into waiting for one that reads a record now and then.
  EXPECT_GT(with_room, rounds / 2);
}

// With patience left nothing is dropped: the sender is held up instead, for a reader that may only
// be slow.
TEST_F(StoppedReader, HasTimeToReadBeforeAnythingIsDropped) {
  build(std::chrono::hours{1});
  std::size_t sent = 0;
  while (send_to_stopped()) {
    ++sent;
  }
  EXPECT_EQ(io_->transmit_room(), 0U);
  EXPECT_EQ(io_->counters().tx_stalled, 0U);
  EXPECT_EQ(drain_stopped(), sent);
  EXPECT_GT(io_->transmit_room(), 0U);
  EXPECT_TRUE(send_to_stopped());
}

}  // namespace
}  // namespace weft::srd
