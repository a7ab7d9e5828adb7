// Owns the bound of what a process holds while a neighbour floods its ring with packets made by
// hand.
#include <gtest/gtest.h>
#include <malloc.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <vector>

#include "srd/base/rng.hpp"
#include "srd/engine/engine.hpp"
#include "srd/io/ring_io.hpp"
#include "srd/net/envelope.hpp"
#include "srd/run/poller.hpp"
#include "srd/wire/srd_codec.hpp"

namespace weft::srd {
namespace {

using namespace std::chrono_literals;
using wire::PacketType;

// 256 KiB of frames of some hundred bytes: about a thousand at a time.
constexpr std::size_t kCapacity = std::size_t{1} << 18;
constexpr std::size_t kMtu = 4160;
constexpr AttachmentId kUs{1};
constexpr Qpn kEndpoint{17};

// Bytes that the program has taken and not given back.
std::size_t held() {
  const struct mallinfo2 now = ::mallinfo2();
  return now.uordblks + now.hblkhd;
}

Address address(unsigned last) { return Address::v4(127, 1, 0, last); }

// A process with one ring. The owner of the other end writes packets of any kind, in the names of
// any peers, a ringful whenever the process looks, and reads no answer.
class RingFlood : public testing::Test {
 protected:
  void SetUp() override {
    auto memfd = RingPort::create_memory(kCapacity);
    ASSERT_TRUE(memfd);
    auto bell = Bell::create_pair();
    ASSERT_TRUE(bell);
    bell_ = std::move(bell->second);
    auto port = RingPort::open(memfd->get(), kCapacity, 0, net::max_frame_for(kMtu),
                               std::move(bell->first));
    ASSERT_TRUE(port);
    auto memory = Mapping::map(memfd->get(), ring_pair_bytes(kCapacity));
    ASSERT_TRUE(memory);
    memory_ = std::move(*memory);
    flood_ = RingProducer(memory_.data() + kRingHeaderBytes + kCapacity, kCapacity);
    auto io = RingIo<wire::SrdCodec>::create({.own = address(1), .mtu = kMtu}, std::move(*port));
    ASSERT_TRUE(io);
    io_ = std::move(*io);
    engine_ = std::make_unique<Engine>(config());
    ASSERT_TRUE(engine_->open_endpoint(kEndpoint, {.receive_depth = 64}));
    ASSERT_TRUE(engine_->memory().insert(
        {region_.data(), 0, region_.size(), Access::remote_read | Access::remote_write, 0}));
    poller_ = std::make_unique<Poller<Engine>>(*engine_, *io_);
  }
  static EngineConfig config() {
    EngineConfig config;
    config.attachment = kUs;
    config.checksum = false;
    config.max_peers = 256;
    config.max_work_requests = 256;
    config.max_completions = 256;
    return config;
  }

  // Returns how many frames it took to fill the ring.
  std::size_t write_ringful() {
    static constexpr std::array kTypes{
        PacketType::send,  PacketType::write, PacketType::read_request,  PacketType::read_response,
        PacketType::probe, PacketType::ack,   PacketType::credit_request};
    std::array<std::byte, net::kEnvelopeSizeV4 + 2 * sizeof(wire::DataHeader)> frame{};
    for (std::size_t written = 0;; ++written) {
      wire::DataHeader header{};
      header.common.version = wire::kVersion;
      header.common.type = static_cast<std::uint8_t>(kTypes[rng_.below(kTypes.size())]);
      header.common.flags = rng_.chance(0.5) ? std::uint8_t{wire::kAckRequested}
                                             : static_cast<std::uint8_t>(rng_.below(256));
      header.common.destination_attachment = kUs.value();
      // From 512 attachments of eight addresses, in four lives each, for an engine with room for
      // 256 peers.
      header.common.source_attachment = static_cast<std::uint16_t>(rng_.below(512));
      header.common.destination_qpn = kEndpoint.value();
      header.common.source_qpn = 99;
      header.common.source_life = 1 + rng_.below(4);
      header.common.destination_life = rng_.chance(0.5) ? 0 : config().life.value();
      header.psn = rng_.below(4096);
      header.payload_length = static_cast<std::uint16_t>(sizeof header);
      header.message = rng_.below(4096);
      header.message_length =
          rng_.chance(0.5) ? static_cast<std::uint32_t>(sizeof header) : rng_.below(1 << 20);
      const auto envelope =
          net::EnvelopeWriter::make(address(2 + rng_.below(8)), wire::SrdCodec::kPorts);
      EXPECT_TRUE(envelope && envelope->write(frame.data(), address(1), PathId{0}, Ecn::not_capable,
                                              0, frame.size() - net::kEnvelopeSizeV4));
      wire::store(frame.data() + net::kEnvelopeSizeV4, header);
      std::byte* const place = flood_.reserve(frame.size());
      if (place == nullptr) {
        return written;
      }
      flood_.copy(place, frame);
      flood_.commit(frame.size(), {.flags = kRecordUnchecked});
    }
  }
  // A ringful, and as many rounds as the process needs for it: all within 10 us.
  void flood() {
    written_ += write_ringful();
    while (poller_->poll(now_) > 0) {
      now_ += 100ns;
      std::array<Completion, 8> completions;
      (void)engine_->poll(completions);
    }
    now_ += 1us;
  }

  std::array<std::byte, 65536> region_{};
  Mapping memory_;
  Bell bell_;
  RingProducer flood_;
  std::unique_ptr<RingIo<wire::SrdCodec>> io_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Poller<Engine>> poller_;
  Rng rng_{1};
  TimePoint now_ = time_at(1s);
  std::size_t written_ = 0;
};

TEST_F(RingFlood, IsSeenToTheLastFrameAndHeldInBoundedMemory) {
  // Until all tables have what they will ever have.
  while (written_ < 50'000) {
    flood();
  }
  const std::size_t full = held();
  while (written_ < 400'000) {
    flood();
  }
  EXPECT_LE(held(), full + full / 8) << "eight times the packets";
  // None was lost, and the ring was not declared broken: the packets are garbage, its records are
  // not.
  EXPECT_EQ(io_->counters().rx_packets, written_);
  EXPECT_GT(engine_->counters().rx_drops, 0U);
  EXPECT_EQ(io_->counters().ports_broken, 0U);
}

}  // namespace
}  // namespace weft::srd
