// Owns the tests of arrays whose indices run on.
#include "srd/base/masked_array.hpp"

#include <gtest/gtest.h>

#include "srd/base/ring_queue.hpp"

namespace weft {
namespace {

TEST(MaskedArray, NumbersThatRunOnComeRound) {
  MaskedArray<int> array(4);
  for (int i = 0; i < 10; ++i) {
    array[static_cast<std::size_t>(i)] = i;
  }
  // 0 to 9 went round four places: 8 came after 0 and 4, 9 after 1 and 5, 6 after 2, 7 after 3.
  EXPECT_EQ(array[0], 8);
  EXPECT_EQ(array[1], 9);
  EXPECT_EQ(array[2], 6);
  EXPECT_EQ(array[7], 7);
  EXPECT_EQ(array.next_size(16), 8U);
}

// A queue that is never used must not cost memory.
TEST(MaskedArray, OneWithoutElementsGrowsToTheFirstSize) {
  MaskedArray<int> array;
  EXPECT_TRUE(array.empty());
  EXPECT_EQ(array.size(), 0U);
  EXPECT_EQ(array.next_size(16), 16U);
}

// What a move leaves behind has no elements and says so: it can be used again.
TEST(MaskedArray, KnowsThatItsElementsWereTaken) {
  MaskedArray<int> from(8);
  from[3] = 7;
  MaskedArray<int> to;
  to = std::move(from);
  EXPECT_EQ(to.size(), 8U);
  EXPECT_EQ(to[3], 7);
  EXPECT_TRUE(from.empty());  // NOLINT(bugprone-use-after-move)

  RingQueue<int> queue;
  ASSERT_TRUE(queue.push(1));
  const RingQueue<int> moved = std::move(queue);
  EXPECT_EQ(moved.front(), 1);
}

// With another length the mask would leave elements out.
TEST(MaskedArrayDeathTest, OtherLengthsAreMistakes) { EXPECT_DEATH(MaskedArray<int>(6), ""); }

}  // namespace
}  // namespace weft
