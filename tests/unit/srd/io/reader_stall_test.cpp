// Owns how long readers of all kinds hold up their writers.
#include "srd/io/reader_stall.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace weft::srd {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kRingful = std::size_t{1} << 21;
constexpr Duration kPatience = 2ms;
constexpr Duration kLook = 1us;  // the writer looks so often
constexpr Duration kSecond = 1s;

// Of so much time, how much the writer was held up by a reader that takes `bytes` every `pause`,
// while its ring is never anything but full.
Duration held_up(std::size_t bytes, Duration pause, Duration time) {
  ReaderStall stall;
  std::uint64_t position = 0;
  Duration held{};
  Duration since_read{};
  for (Duration at{}; at < time; at += kLook, since_read += kLook) {
    if (since_read >= pause) {
      position += bytes;
      since_read = {};
    }
    if (!stall.given_up(time_at(at), position, kRingful, kPatience)) {
      held += kLook;
    }
  }
  return held;
}

TEST(ReaderStall, OneThatStoppedIsWaitedForOnce) { EXPECT_EQ(held_up(0, 1h, kSecond), kPatience); }

TEST(ReaderStall, OneThatReadsARecordNowAndThenHoldsNobodyUp) {
  // A record of 128 bytes every 1.5 ms earns 0.1 us each time, less than a look.
  EXPECT_LE(held_up(128, 1500us, kSecond), kPatience + kSecond / 1500us * kLook);
  // The largest records: 4 us each.
  EXPECT_LE(held_up(4288, 1500us, kSecond), kPatience + kSecond / 1500us * 5us);
}

// A tenth of a ringful per patience: a tenth of the time.
TEST(ReaderStall, TheShareOfTimeIsTheReadersRate) {
  for (const int part : {2, 5, 10, 100}) {
    const Duration most = kPatience + kSecond / part + kSecond / kPatience * 2 * kLook;
    const Duration held = held_up(kRingful / static_cast<std::size_t>(part), kPatience, kSecond);
    EXPECT_LE(held, most) << "1/" << part;
    EXPECT_GE(held, kSecond / part - kSecond / kPatience * 2 * kLook) << "1/" << part;
  }
}

TEST(ReaderStall, OneThatKeepsUpIsAlwaysWaitedFor) {
  EXPECT_EQ(held_up(kRingful, kPatience, kSecond), kSecond);
  EXPECT_EQ(held_up(kRingful / 8, kPatience / 8, kSecond), kSecond);
}

// Bursts are earned as well as a steady stream is.
TEST(ReaderStall, OneThatReadsInBurstsIsWaitedForBetweenThem) {
  const Duration held = held_up(4 * kRingful, 4 * kPatience, kSecond);
  EXPECT_LE(held, kSecond / 4 + 2 * kPatience);
}

TEST(ReaderStall, TimeInWhichThereWasRoomIsNotCounted) {
  ReaderStall stall;
  for (Duration at{}; at < kSecond; at += 1ms) {
    EXPECT_FALSE(stall.given_up(time_at(at), 0, kRingful, kPatience));
    stall.over();
  }
}

TEST(ReaderStall, WithoutPatienceNobodyIsWaitedFor) {
  ReaderStall stall;
  EXPECT_TRUE(stall.given_up(time_at(kSecond), 0, kRingful, Duration{}));
  EXPECT_TRUE(stall.still_given_up(0));
  EXPECT_FALSE(stall.still_given_up(1));
}

}  // namespace
}  // namespace weft::srd
