// Owns the tests of the slab.
#include "srd/base/slab.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <vector>

namespace weft {
namespace {

TEST(Slab, GivesEachIndexOnceUpToItsLimit) {
  // Around the size of a chunk, which is 64: the last chunk may be a part of one only.
  for (const std::uint32_t limit : {0U, 1U, 63U, 64U, 65U, 1000U}) {
    Slab<int> slab{limit};
    std::set<std::uint32_t> indices;
    for (std::uint32_t i = 0; i < limit; ++i) {
      const std::uint32_t index = slab.allocate();
      ASSERT_LT(index, limit);
      indices.insert(index);
    }
    EXPECT_EQ(indices.size(), limit);
    EXPECT_EQ(slab.used(), limit);
    EXPECT_EQ(slab.capacity(), limit);
    EXPECT_EQ(slab.allocate(), Slab<int>::kNone) << limit;
    EXPECT_EQ(slab.used(), limit) << "a refusal takes nothing";
  }
}

// Limits are set for the worst case; a program that has few peers must not pay for a million.
TEST(Slab, GrowsOnlyAsNeeded) {
  Slab<int> slab{1'000'000};
  EXPECT_EQ(slab.capacity(), 0U);
  EXPECT_EQ(slab.allocate(), 0U);
  EXPECT_LE(slab.capacity(), 64U);
}

// Because that object is still in the cache.
TEST(Slab, RecyclesTheMostRecentlyFreed) {
  Slab<int> slab{100};
  std::vector<std::uint32_t> indices;
  for (int i = 0; i < 10; ++i) {
    indices.push_back(slab.allocate());
  }
  slab.release(indices[3]);
  slab.release(indices[7]);
  EXPECT_EQ(slab.used(), 8U);
  EXPECT_EQ(slab.allocate(), indices[7]);
  EXPECT_EQ(slab.allocate(), indices[3]);
}

// Others hold pointers to objects, and buffers inside of an object stay allocated for its next
// user.
TEST(Slab, NeverMovesAnObjectAndLeavesItAsItWas) {
  Slab<int> slab{1000};
  const std::uint32_t first = slab.allocate();
  int* const place = &slab[first];
  EXPECT_EQ(*place, 0);
  *place = 42;
  while (slab.allocate() != Slab<int>::kNone) {
  }
  EXPECT_EQ(&slab[first], place);
  slab.release(first);
  ASSERT_EQ(slab.allocate(), first);
  const Slab<int>& constant = slab;
  EXPECT_EQ(constant[first], 42);
}

}  // namespace
}  // namespace weft
