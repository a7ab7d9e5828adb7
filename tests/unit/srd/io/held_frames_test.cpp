// Owns the tests of frames that wait for a link that refuses them: for how long, in which order,
// and when they are given up. Time is the test's.
#include "srd/io/held_frames.hpp"

#include <gtest/gtest.h>

#include <array>
#include <utility>
#include <vector>

namespace weft::srd {
namespace {

constexpr Duration kPatience = std::chrono::milliseconds{20};

class HeldFramesTest : public ::testing::Test {
 protected:
  void hold(TimePoint now) {
    TxFrame frame;
    frame.pieces[0] = bytes_;
    ASSERT_TRUE(held_.hold(now, frame));
  }
  std::size_t flush(TimePoint now, bool takes) {
    return held_.flush(now, [takes](std::span<const std::byte>) { return takes; });
  }

  std::array<std::byte, 10> bytes_{};
  // Four frames of 64 bytes at the most.
  HeldFrames held_{4, 64, kPatience};
  const TimePoint start_{std::chrono::seconds{1}};
};

TEST_F(HeldFramesTest, AreGivenUpAfterPatienceWithoutAFrameTaken) {
  hold(start_);
  hold(start_);
  EXPECT_EQ(flush(start_ + kPatience - Duration{1}, false), 0U);
  EXPECT_EQ(flush(start_ + kPatience, false), 2U);
  EXPECT_TRUE(held_.empty());
}

// Otherwise a stopped reader would stop its writer again with every burst.
TEST_F(HeldFramesTest, WaitForALinkThatHasStoppedOnlyOnce) {
  hold(start_);
  ASSERT_EQ(flush(start_ + kPatience, false), 1U);
  const TimePoint later = start_ + 2 * kPatience;
  hold(later);
  EXPECT_EQ(flush(later, false), 1U);
}

TEST_F(HeldFramesTest, WaitAgainForALinkThatHasTakenOne) {
  hold(start_);
  ASSERT_EQ(flush(start_ + kPatience, false), 1U);
  const TimePoint later = start_ + 2 * kPatience;
  hold(later);
  ASSERT_EQ(flush(later, true), 0U);
  hold(later);
  EXPECT_EQ(flush(later + kPatience - Duration{1}, false), 0U);
  EXPECT_EQ(flush(later + kPatience, false), 1U);
}

// Room that has become free is used again while others still wait, and the order stays.
TEST_F(HeldFramesTest, KeepTheirOrderAroundTheEnd) {
  std::vector<int> left;
  int next = 0;
  for (int round = 0; round < 10; ++round) {
    while (held_.room() > 0) {
      bytes_[0] = static_cast<std::byte>(next++);
      hold(start_);
    }
    TxFrame frame;
    frame.pieces[0] = bytes_;
    EXPECT_FALSE(held_.hold(start_, frame));
    int taken = 0;
    EXPECT_EQ(held_.flush(start_,
                          [&](std::span<const std::byte> bytes) {
                            // Three of four: the ring's begin and end come to lie everywhere.
                            if (taken == 3) {
                              return false;
                            }
                            ++taken;
                            left.push_back(std::to_integer<int>(bytes[0]));
                            return true;
                          }),
              0U);
  }
  for (std::size_t i = 0; i < left.size(); ++i) {
    EXPECT_EQ(left[i], static_cast<int>(i));
  }
  EXPECT_EQ(left.size(), 30U);
}

TEST_F(HeldFramesTest, BeginToWaitAnewWithEachFrameThatIsTaken) {
  hold(start_);
  hold(start_);
  bool first = true;
  const auto one = [&](std::span<const std::byte>) { return std::exchange(first, false); };
  EXPECT_EQ(held_.flush(start_ + kPatience - Duration{1}, one), 0U);
  EXPECT_EQ(flush(start_ + kPatience, false), 0U);
  EXPECT_EQ(held_.size(), 1U);
}

}  // namespace
}  // namespace weft::srd
