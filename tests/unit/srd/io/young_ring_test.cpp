// Owns what a ring does in its first laps: it keeps to a part of its memory where that is enough.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "srd/base/rng.hpp"
#include "srd/io/spsc_ring.hpp"

namespace weft::srd {
namespace {

constexpr std::size_t kCapacity = std::size_t{1} << 19;
constexpr std::size_t kBurst = 32;
constexpr std::size_t kMaxFrame = 1500;

class YoungRing : public testing::Test {
 protected:
  YoungRing() { RingProducer::format(memory_.data()); }

  [[nodiscard]] std::span<const std::byte> area() const {
    return std::span(memory_).subspan(kRingHeaderBytes);
  }
  // A promise was made: there has to be a place.
  void send(std::size_t size) {
    std::byte* const frame = producer_.reserve(size);
    ASSERT_NE(frame, nullptr) << "frame " << sent_;
    std::fill_n(frame, size, static_cast<std::byte>(sent_ % 255 + 1));
    producer_.commit(size, {.flags = static_cast<std::uint32_t>(size)});
    ++sent_;
  }
  // False: there is none.
  bool take() {
    RecordInfo info;
    const auto frame = consumer_.next(info);
    if (frame.empty()) {
      EXPECT_EQ(taken_, sent_);
      return false;
    }
    EXPECT_EQ(frame.size(), info.flags);
    const auto right = static_cast<std::byte>(taken_ % 255 + 1);
    EXPECT_EQ(std::count(frame.begin(), frame.end(), right),
              static_cast<std::ptrdiff_t>(frame.size()))
        << "frame " << taken_;
    ++taken_;
    return true;
  }
  // Sends and takes one by one, that many bytes in all.
  void chat(std::size_t bytes) {
    for (std::size_t done = 0; done < bytes; done += ring_record_bytes(kMaxFrame)) {
      ASSERT_EQ(producer_.room(kBurst, kMaxFrame), kBurst);
      send(kMaxFrame);
      ASSERT_TRUE(take());
      consumer_.release();
    }
  }

  alignas(128) std::vector<std::byte> memory_ = std::vector<std::byte>(kRingHeaderBytes +
                                                                       kCapacity);
  RingProducer producer_{memory_.data(), kCapacity};
  RingConsumer consumer_{memory_.data(), kCapacity, kMaxFrame};
  std::uint64_t sent_ = 0;
  std::uint64_t taken_ = 0;
};

TEST_F(YoungRing, KeepsToAQuarterWhereEachFrameIsTakenBeforeTheNext) {
  chat(2 * kCapacity);
  const auto untouched = area().subspan(kCapacity / 4 + 2 * ring_record_bytes(kMaxFrame));
  EXPECT_TRUE(std::all_of(untouched.begin(), untouched.end(),
                          [](std::byte byte) { return byte == std::byte{0}; }));
}

TEST_F(YoungRing, UsesAllOfItLater) {
  chat(6 * kCapacity);
  const auto end = area().last(kCapacity / 4);
  EXPECT_TRUE(
      std::any_of(end.begin(), end.end(), [](std::byte byte) { return byte != std::byte{0}; }));
}

TEST_F(YoungRing, UsesAllOfItWhereNobodyReads) {
  std::size_t frames = 0;
  while (producer_.room(kBurst, kMaxFrame) != 0) {
    send(kMaxFrame);
    ++frames;
  }
  EXPECT_GT(frames * ring_record_bytes(kMaxFrame), kCapacity / 2);
  while (take()) {
  }
}

// Whatever room() says fits, also if the reader has not seen yet that the ring began anew.
TEST_F(YoungRing, KeepsItsPromises) {
  Rng rng(5);
  while (sent_ < 40'000) {
    const std::size_t room = producer_.room(kBurst, kMaxFrame);
    ASSERT_FALSE(producer_.broken());
    for (std::size_t left = std::min<std::size_t>(room, rng.below(kBurst + 1)); left > 0; --left) {
      send(1 + rng.below(kMaxFrame));
      if (HasFatalFailure()) {
        return;
      }
    }
    // Often all, so that the ring is empty; often without telling.
    for (std::uint32_t left = rng.below(3) == 0 ? rng.below(kBurst) : kBurst; left > 0 && take();
         --left) {
    }
    if (rng.below(4) != 0) {
      consumer_.release();
    }
    ASSERT_FALSE(consumer_.broken());
  }
}

// Or a reader that sleeps would not be woken for what cannot be sent before it has read.
TEST_F(YoungRing, HasRoomAtOnceWhereItBeginsAnew) {
  chat(kCapacity / 4);
  const std::size_t large = kCapacity / 4 / kBurst;
  EXPECT_EQ(producer_.room(kBurst, large), kBurst);
  EXPECT_EQ(producer_.room(kBurst, kMaxFrame), kBurst);
  EXPECT_EQ(producer_.room(kBurst, kMaxFrame), kBurst);
}

}  // namespace
}  // namespace weft::srd
