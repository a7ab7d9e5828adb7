// Owns what happens when the other process writes nonsense into a ring.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <span>
#include <vector>

#include "srd/base/rng.hpp"
#include "tests/unit/srd/io/conformance.hpp"
#include "tests/unit/srd/io/srd_carriers.hpp"

namespace weft::srd {
namespace {

constexpr std::size_t kCapacity = std::size_t{1} << 15;
constexpr std::size_t kMtu = 4160;

// The reader is ours; the test maps the same memory and writes words into it that no honest
// producer would.
class HostileRing : public testing::Test {
 protected:
  void SetUp() override {
    auto memfd = RingPort::create_memory(kCapacity);
    ASSERT_TRUE(memfd) << memfd.error().message;
    auto bell = Bell::create_pair();
    ASSERT_TRUE(bell);
    bell_ = std::move(bell->second);
    auto port = RingPort::open(memfd->get(), kCapacity, 0, net::max_frame_for(kMtu),
                               std::move(bell->first));
    ASSERT_TRUE(port) << port.error().message;
    auto memory = Mapping::map(memfd->get(), ring_pair_bytes(kCapacity));
    ASSERT_TRUE(memory);
    memory_ = std::move(*memory);
    auto io = test::SrdRings::create({.own = own_, .mtu = kMtu}, std::move(*port));
    ASSERT_TRUE(io);
    io_ = std::move(*io);
  }
  std::byte* outgoing() { return memory_.data(); }
  std::byte* incoming() { return memory_.data() + kRingHeaderBytes + kCapacity; }
  void write_length(std::size_t offset, std::uint32_t length) {
    std::memcpy(incoming() + kRingHeaderBytes + offset, &length, sizeof length);
  }
  // Writes records with that frame (empty: none, of 64 bytes) from one end to the other, as an
  // honest producer does on its first lap. Returns how many.
  std::size_t fill(std::span<const std::byte> frame) {
    const std::size_t size = frame.empty() ? 64 : frame.size();
    const std::size_t bytes = ring_record_bytes(size);
    std::size_t offset = 0;
    std::size_t records = 0;
    for (; offset + bytes + kRingCell <= kCapacity; offset += bytes, ++records) {
      if (!frame.empty()) {
        std::memcpy(incoming() + kRingHeaderBytes + offset + kRingFrameOffset, frame.data(), size);
      }
      write_length(offset, static_cast<std::uint32_t>(size));
    }
    write_length(offset, kRingWrap);
    return records;
  }
  // Receives a while; must neither crash nor end up sending packets that are no packets.
  void drain() {
    for (int i = 0; i < 100; ++i) {
      for (const RxPacket& packet : io_->receive()) {
        EXPECT_LE(packet.bytes.size(), kMtu);
      }
      io_->release();
    }
  }

  Address own_ = test::ipv4(127, 1, 0, 1);
  Mapping memory_;
  Bell bell_;  // the peer's end
  std::unique_ptr<test::SrdRings> io_;
};

TEST_F(HostileRing, ARecordBeyondTheEndBreaksIt) {
  write_length(0, static_cast<std::uint32_t>(kCapacity));
  drain();
  EXPECT_EQ(io_->counters().ports_broken, 1U);
}

TEST_F(HostileRing, ARecordAboveTheFrameSizeBreaksIt) {
  write_length(0, net::max_frame_for(kMtu) + 1);
  drain();
  EXPECT_EQ(io_->counters().ports_broken, 1U);
}

// A wrap mark sends the reader to the beginning, where this one stands: a reader that follows it
// blindly never returns.
TEST_F(HostileRing, WrapMarksAtTheBeginningDoNotHang) {
  write_length(0, kRingWrap);
  drain();
  EXPECT_EQ(io_->counters().rx_packets, 0U);
}

TEST_F(HostileRing, AnImpossibleConsumerPositionBreaksIt) {
  const std::uint64_t position = kCapacity * 100;
  std::memcpy(outgoing(), &position, sizeof position);
  TxPacket packet;
  packet.header_size = 64;
  packet.header.fill({});
  packet.to = test::ipv4(127, 1, 0, 2);
  std::size_t taken = 0;
  for (int i = 0; i < 10'000; ++i) {
    taken += io_->transmit({&packet, 1});
    drain();
  }
  EXPECT_EQ(io_->counters().ports_broken, 1U);
  EXPECT_GT(io_->counters().tx_unroutable, 0U);
}

// A ring full of records, written once. What is in it is seen once, a burst at a time.
TEST_F(HostileRing, GarbageIsLookedAtOnceAndInBursts) {
  const std::size_t records = fill({});
  for (std::size_t seen = 0; seen < records;) {
    EXPECT_TRUE(io_->receive().empty());
    io_->release();
    const std::size_t now = io_->counters().rx_malformed;
    ASSERT_GT(now, seen);
    ASSERT_LE(now - seen, test::SrdRings::kBurst);
    seen = now;
  }
  drain();
  EXPECT_EQ(io_->counters().rx_malformed, records);
  EXPECT_EQ(io_->counters().ports_broken, 0U);
  EXPECT_TRUE(io_->arm());  // there is nothing to stay awake for
  io_->disarm();
}

// Good packets, whose producer never came back: what has been read once must be worthless when the
// reader comes round.
TEST_F(HostileRing, PacketsOfAnEarlierLapDoNotComeAgain) {
  std::array<std::byte, 64 + net::kEnvelopeSizeV4> frame{};
  const auto envelope = net::EnvelopeWriter::make(test::ipv4(127, 1, 0, 2), wire::SrdCodec::kPorts);
  ASSERT_TRUE(envelope && envelope->write(frame.data(), own_, PathId{0}, Ecn::not_capable, 0, 64));
  const std::size_t records = fill(frame);
  drain();
  EXPECT_EQ(io_->counters().rx_packets, records);
  EXPECT_EQ(io_->counters().rx_malformed, 0U);
  EXPECT_TRUE(io_->arm());
  io_->disarm();
}

// Lengths at each place where a record could begin, so that the reader gets far into the rubbish.
TEST_F(HostileRing, RandomBytesAreDroppedOrBreakIt) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    SetUp();
    Rng rng(seed);
    for (std::size_t i = 0; i < kRingHeaderBytes + kCapacity; ++i) {
      incoming()[i] = rng.chance(0.5) ? std::byte{0} : static_cast<std::byte>(rng.next());
    }
    for (std::size_t offset = 0; offset < kCapacity; offset += kRingCell) {
      write_length(offset, rng.below(kMtu + 100));
    }
    drain();
    EXPECT_EQ(io_->counters().rx_packets, 0U) << "seed " << seed;
    EXPECT_GT(io_->counters().rx_malformed + io_->counters().ports_broken, 0U) << "seed " << seed;
  }
}

// Memory comes from another process. If its size were only believed, a touch beyond its end would
// kill the reader.
TEST(SharedMemory, OfAnotherSizeOrUnsealedIsRefused) {
  auto memfd = RingPort::create_memory(kCapacity);
  ASSERT_TRUE(memfd);
  EXPECT_FALSE(RingPort::open(memfd->get(), kCapacity * 2, 0, 4000, Bell()));
  EXPECT_FALSE(RingPort::open(memfd->get(), kCapacity + 64, 0, 4000, Bell()));
  EXPECT_FALSE(RingPort::open(memfd->get(), kCapacity, 0, kCapacity, Bell()));
  EXPECT_FALSE(RingPort::create_memory(kCapacity + 1));
}

}  // namespace
}  // namespace weft::srd
