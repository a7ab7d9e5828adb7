// Owns the tests of frames that wait for a link that refuses them.
#include "srd/io/held_frames.hpp"

#include <gtest/gtest.h>

#include <array>
#include <utility>

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
