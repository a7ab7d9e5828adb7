// Owns what becomes of frames that are not for us: their buffers go back to the carrier that lent
// them.
#include <gtest/gtest.h>

#include <array>
#include <memory>

#include "srd/io/dpdk_port.hpp"
#include "tests/unit/srd/io/conformance.hpp"
#include "tests/unit/srd/io/srd_carriers.hpp"

namespace weft::srd {
namespace {

constexpr std::size_t kBurst = 32;

// A link with other people's frames, and as many buffers as a burst needs.
class BusyLink final : public FrameIo {
 public:
  [[nodiscard]] FrameTraits traits() const override { return {.max_frame = 1518, .burst = kBurst}; }
  [[nodiscard]] FrameCounters counters() const override { return {}; }
  [[nodiscard]] std::span<const RxFrame> receive() override {
    if (lent) {
      ++starved;
      return {};
    }
    lent = true;
    frames_.fill(bytes_);
    return frames_;
  }
  void release() override { lent = false; }
  [[nodiscard]] std::size_t transmit(std::span<const TxFrame> frames) override {
    return frames.size();
  }
  [[nodiscard]] std::size_t transmit_room() override { return kBurst; }
  [[nodiscard]] int wait_fd() const override { return -1; }
  [[nodiscard]] bool arm() override { return true; }
  void disarm() override {}

  bool lent = false;
  int starved = 0;

 private:
  std::array<std::byte, 64> bytes_{};
  std::array<RxFrame, kBurst> frames_;
};

TEST(StrayFrames, OccupyNoBuffers) {
  auto link = std::make_unique<BusyLink>();
  BusyLink& below = *link;
  auto io =
      test::SrdEnvelopes::create({.own = test::ipv4(127, 1, 0, 1), .mtu = 1400}, std::move(link));
  ASSERT_TRUE(io) << io.error().message;
  for (int burst = 0; burst < 100; ++burst) {
    EXPECT_TRUE((*io)->receive().empty());
    EXPECT_FALSE(below.lent) << "burst " << burst;
  }
  EXPECT_EQ(below.starved, 0);
  EXPECT_EQ((*io)->counters().rx_malformed, 100U * kBurst);
}

// A device that hears what it sends, with a pool of a few thousand buffers.
TEST(StrayFrames, OccupyNoBuffersOfADpdkDevice) {
  auto port = open_dpdk_port({.devargs = "net_ring0", .eal = {}});
  if (!port) {
    GTEST_SKIP() << port.error().message;
  }
  const std::array<std::byte, 64> stray{};
  std::array<TxFrame, kBurst> frames;
  for (TxFrame& frame : frames) {
    frame.pieces[0] = stray;
  }
  std::size_t heard = 0;
  constexpr std::size_t kFrames = 100'000;
  for (std::size_t sent = 0; sent < kFrames; sent += kBurst) {
    ASSERT_EQ((*port)->transmit(frames), kBurst);
    heard += (*port)->receive().size();  // and never released
  }
  EXPECT_EQ(heard, (*port)->counters().tx_frames);
  EXPECT_GE(heard, kFrames);
  EXPECT_EQ((*port)->counters().tx_lost, 0U);
}

}  // namespace
}  // namespace weft::srd
