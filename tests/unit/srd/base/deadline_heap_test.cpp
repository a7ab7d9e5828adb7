// Owns the tests of the deadline heap, against a model that is too simple to be wrong.
#include "srd/base/deadline_heap.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include "srd/base/rng.hpp"

namespace weft {
namespace {

TimePoint at(std::int64_t ns) { return time_at(Duration{ns}); }

// An index that was never set is like one that was cleared, however large it is.
TEST(DeadlineHeap, EmptyHasNoDeadline) {
  const DeadlineHeap heap;
  EXPECT_TRUE(heap.empty());
  EXPECT_EQ(heap.earliest(), kNever);
  EXPECT_EQ(heap.deadline_of(0), kNever);
  EXPECT_EQ(heap.deadline_of(123456), kNever);
}

// A later time sinks in the heap, an earlier one rises.
TEST(DeadlineHeap, MovesADeadlineBothWays) {
  DeadlineHeap heap;
  heap.set(1, at(100));
  heap.set(2, at(200));
  heap.set(1, at(300));
  EXPECT_EQ(heap.earliest_index(), 2U);
  heap.set(1, at(50));
  EXPECT_EQ(heap.earliest_index(), 1U);
  EXPECT_EQ(heap.earliest(), at(50));
  EXPECT_EQ(heap.deadline_of(2), at(200));
}

// Whatever an index holds, it may be cleared: callers need not ask first.
TEST(DeadlineHeap, NeverClearsAndClearingTwiceIsHarmless) {
  DeadlineHeap heap;
  heap.set(5, at(1));
  heap.set(5, kNever);
  EXPECT_TRUE(heap.empty());
  heap.clear(5);
  heap.clear(77);
  heap.set(88, kNever);
  EXPECT_TRUE(heap.empty());
  heap.set(5, at(2));
  EXPECT_EQ(heap.earliest(), at(2));
}

// Or a run would depend on its history, and two runs of one seed could differ.
TEST(DeadlineHeap, EqualDeadlinesGoByIndexWhateverTheOrderOfSetting) {
  for (const std::uint64_t seed : {1, 2, 3}) {
    Rng rng{seed};
    DeadlineHeap heap;
    std::set<std::uint32_t> indices;
    for (int i = 0; i < 50; ++i) {
      const std::uint32_t index = rng.below(1000);
      indices.insert(index);
      heap.set(index, at(7));
    }
    for (const std::uint32_t index : indices) {
      // All deadlines are the same, so the smallest index that is left comes first; a std::set has
      // them in that order.
      ASSERT_EQ(heap.earliest_index(), index) << "seed " << seed;
      heap.clear(index);
    }
    EXPECT_TRUE(heap.empty());
  }
}

// What the heap is a faster form of.
class Model {
 public:
  void set(std::uint32_t index, TimePoint when) {
    clear(index);
    if (when != kNever) {
      by_index_[index] = when;
      ordered_.insert({when, index});
    }
  }
  void clear(std::uint32_t index) {
    if (const auto found = by_index_.find(index); found != by_index_.end()) {
      ordered_.erase({found->second, index});
      by_index_.erase(found);
    }
  }
  [[nodiscard]] const std::set<std::pair<TimePoint, std::uint32_t>>& ordered() const {
    return ordered_;
  }

 private:
  std::map<std::uint32_t, TimePoint> by_index_;
  std::set<std::pair<TimePoint, std::uint32_t>> ordered_;
};

class DeadlineHeapModel : public testing::TestWithParam<std::uint32_t> {};

// Few indices make many moves of the same one; many make a deep heap. 5 and 6 lie around a full
// level of four children.
TEST_P(DeadlineHeapModel, BehavesLikeTheModel) {
  const std::uint32_t indices = GetParam();
  Rng rng{indices};
  DeadlineHeap heap;
  Model model;
  for (int step = 0; step < 20'000; ++step) {
    const std::uint32_t index = rng.below(indices);
    switch (rng.below(4)) {
      case 0:
        heap.clear(index);
        model.clear(index);
        break;
      case 1:
        if (!heap.empty()) {
          const std::uint32_t due = heap.earliest_index();
          heap.clear(due);
          model.clear(due);
        }
        break;
      default: {
        // Few different times for many indices, so that equal deadlines are common.
        const TimePoint when = rng.chance(0.02) ? kNever : at(rng.below(500));
        heap.set(index, when);
        model.set(index, when);
      }
    }
    ASSERT_EQ(heap.empty(), model.ordered().empty());
    if (!heap.empty()) {
      ASSERT_EQ(heap.earliest(), model.ordered().begin()->first) << "step " << step;
      ASSERT_EQ(heap.earliest_index(), model.ordered().begin()->second) << "step " << step;
    }
  }
  for (const auto& [when, index] : model.ordered()) {
    ASSERT_EQ(heap.deadline_of(index), when);
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, DeadlineHeapModel, testing::Values(1, 2, 5, 6, 50, 1000));

}  // namespace
}  // namespace weft
