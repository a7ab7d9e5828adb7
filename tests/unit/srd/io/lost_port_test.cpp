// Tests that a direct ring whose other end has no owner carries nothing: its peer is reached
// through the uplink.
#include <gtest/gtest.h>

#include <optional>

#include "srd/net/envelope.hpp"
#include "tests/unit/srd/io/conformance.hpp"
#include "tests/unit/srd/io/srd_carriers.hpp"

namespace weft::srd {
namespace {

constexpr std::size_t kRing = kMinRingBytes;
constexpr std::size_t kMtu = 1000;
constexpr std::size_t kFrame = net::max_frame_for(kMtu);
const Address kOwn = test::ipv4(127, 1, 0, 1);
const Address kPeer = test::ipv4(127, 1, 0, 2);

struct Ends {
  std::optional<RingPort> ours;
  std::optional<RingPort> theirs;
};

Ends join() {
  const auto memory = RingPort::create_memory(kRing);
  auto bells = Bell::create_pair();
  EXPECT_TRUE(memory && bells);
  auto ours = RingPort::open(memory->get(), kRing, 0, kFrame, std::move(bells->first));
  auto theirs = RingPort::open(memory->get(), kRing, 1, kFrame, std::move(bells->second));
  EXPECT_TRUE(ours && theirs);
  return {std::move(*ours), std::move(*theirs)};
}

std::size_t frames_in(RingPort& port) {
  RecordInfo info;
  std::size_t count = 0;
  while (!port.rx().next(info).empty()) {
    ++count;
  }
  return count;
}

class LostPort : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    uplink_ = join();
    direct_ = join();
    auto io = test::SrdRings::create({.own = kOwn, .mtu = kMtu}, std::move(*uplink_.ours));
    ASSERT_TRUE(io) << io.error().message;
    io_ = std::move(*io);
    ASSERT_TRUE(io_->add_direct({kPeer, AttachmentId{0}, Life{1}}, std::move(*direct_.ours)));
  }
  void send() {
    TxPacket packet;
    packet.to = kPeer;
    packet.header_size = 64;
    packet.header.fill({});
    ASSERT_EQ(io_->transmit({&packet, 1}), 1U);
  }
  // As a thread that polls, or as one that sleeps and is woken.
  void look() {
    if (GetParam()) {
      ASSERT_TRUE(io_->arm());
      io_->disarm();
    }
    for (int i = 0; i < 100; ++i) {
      EXPECT_TRUE(io_->receive().empty());
      io_->release();
    }
  }

  Ends uplink_;
  Ends direct_;
  std::unique_ptr<test::SrdRings> io_;
};

TEST_P(LostPort, IsReplacedByTheUplink) {
  send();
  look();
  EXPECT_EQ(frames_in(*direct_.theirs), 1U);
  EXPECT_EQ(io_->direct_ports(), 1U);
  // As when the peer's process ends.
  direct_.theirs.reset();
  look();
  EXPECT_EQ(io_->direct_ports(), 0U);
  send();
  EXPECT_EQ(frames_in(*uplink_.theirs), 1U);
}

INSTANTIATE_TEST_SUITE_P(PollingAndSleeping, LostPort, testing::Bool());

}  // namespace
}  // namespace weft::srd
