// Owns the tests of the bound of weftd's memory while frames are inside of the modelled network.
//
// A NIC may have at most as many bytes inside as are still free. So one NIC that floods the network
// fills half of it, and what comes then is refused and counted.
#include <gtest/gtest.h>

#include <cstddef>
#include <map>
#include <memory>
#include <vector>

#include "emu/daemon/live_fabric.hpp"
#include "emu/daemon/loans.hpp"
#include "srd/net/envelope.hpp"
#include "srd/wire/srd_codec.hpp"

namespace weft::daemon {
namespace {

namespace net = srd::net;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

constexpr std::size_t kMaxFrame = 9126;
constexpr std::size_t kBudget = std::size_t{32} << 20;

srd::Address host(unsigned number) { return srd::Address::v4(127, 0, number, 1); }

std::vector<std::byte> frame_of(std::size_t size) {
  const auto writer = net::EnvelopeWriter::make(host(1), srd::wire::SrdCodec::kPorts);
  std::vector<std::byte> bytes(size, std::byte{0x22});
  EXPECT_TRUE(writer->write(bytes.data(), host(4), srd::PathId{0}, srd::Ecn::capable_0,
                            srd::wire::kDscpData, size - writer->size()));
  return bytes;
}

// Four hosts on links of 400 Gb/s, every frame a second on its way.
class NetworkMemoryTest : public testing::Test {
 protected:
  NetworkMemoryTest() {
    fabric::Topology topology;
    const fabric::NodeId middle = topology.add_switch("sw");
    const fabric::LinkProperties link{.rate = Rate::gbps(400),
                                      .delay = milliseconds{500},
                                      .buffer = 1 << 20,
                                      .ecn_low = 0,
                                      .ecn_high = 0,
                                      .trimming = false};
    for (const char* name : {"h1", "h2", "h3", "h4"}) {
      topology.connect(topology.add_host(name), middle, link);
    }
    live_ = std::make_unique<LiveFabric>(
        LiveFabric::Options{.topology = topology, .max_frame = kMaxFrame, .max_memory = kBudget},
        TimePoint{}, [this](const FrameDelivery& arrival) { ++arrived_[arrival.block]; });
  }
  // So many frames, 100 in each microsecond of the network's time. `block` tells senders apart.
  void flood(fabric::PortId from, std::size_t size, int frames) {
    const auto frame = frame_of(size);
    for (int i = 0; i < frames; ++i) {
      ASSERT_TRUE(
          live_->submit(now_, from, {.port = 3, .block = from, .record = {}, .frame = {}}, frame));
      ++sent_[from];
      now_ += nanoseconds{10};
      if (i % 64 == 0) {
        live_->advance(now_);
        most_ = std::max(most_, live_->memory());
      }
    }
  }
  void finish() {
    now_ += seconds{3};
    live_->advance(now_);
    EXPECT_EQ(live_->frames_inside(), 0U);
  }

  std::unique_ptr<LiveFabric> live_;
  std::map<std::uint32_t, std::uint64_t> sent_;
  std::map<std::uint32_t, std::uint64_t> arrived_;
  TimePoint now_{};
  std::size_t most_ = 0;
};

// A million frames in 10 ms, none of which leaves before a second is over.
TEST_F(NetworkMemoryTest, AnUnwindowedFloodIsCappedAndCounted) {
  flood(0, 128, 1'000'000);
  EXPECT_LE(most_, kBudget);
  EXPECT_GT(live_->refused(), 500'000U);
  const std::size_t full = most_;
  finish();
  EXPECT_EQ(arrived_[0] + live_->refused(), sent_[0]);
  EXPECT_LE(live_->memory(), full / 4) << "it goes back";
}

// Blocks have few sizes. A frame is charged for its block, and not for its own size: 257 bytes take
// a block of 1024.
TEST_F(NetworkMemoryTest, EverySizeOfFrameKeepsTheBound) {
  for (const std::size_t size : {std::size_t{60}, std::size_t{257}, std::size_t{400}}) {
    flood(0, size, 200'000);
    finish();
  }
  EXPECT_LE(most_, kBudget);
}

// The others lose nothing, and the flood gets no more room by going on.
TEST_F(NetworkMemoryTest, AFloodOfOneLeavesRoomForTheOthers) {
  flood(0, 128, 300'000);
  const std::uint64_t refused = live_->refused();
  EXPECT_GT(refused, 0U);
  flood(1, 128, 1000);
  flood(2, 256, 1000);
  EXPECT_EQ(live_->refused(), refused);
  flood(0, 128, 1000);
  EXPECT_EQ(live_->refused(), refused + 1000);
  finish();
  EXPECT_EQ(arrived_[1], 1000U);
  EXPECT_EQ(arrived_[2], 1000U);
}

// A fault doubles every frame within the network: the copies come from there, and not by submit().
TEST_F(NetworkMemoryTest, CopiesAreFramesToo) {
  fabric::Fault fault;
  fault.where = "h1->sw";
  fault.impairment.duplication = 1;
  ASSERT_TRUE(live_->apply(now_, fault));
  flood(0, 128, 200'000);
  EXPECT_LE(most_, kBudget);
  finish();
}

// A frame in its sender's ring counts from the first: it may have to be copied at any time.
TEST_F(NetworkMemoryTest, FramesOnLoanCount) {
  Loans loans;
  const auto frame = frame_of(128);
  for (std::uint64_t i = 0; i < 200'000; ++i) {
    ASSERT_TRUE(live_->submit(now_, 0, {.port = 3, .record = {}, .frame = {}}, frame,
                              {.loans = &loans, .position = i, .now = now_}));
    now_ += nanoseconds{10};
    live_->advance(now_);
  }
  EXPECT_GT(live_->refused(), 0U);
  // The worst that may come: all of them at once.
  while (!loans.empty()) {
    live_->call_in(loans);
  }
  EXPECT_LE(live_->memory(), kBudget);
  finish();
}

}  // namespace
}  // namespace weft::daemon
