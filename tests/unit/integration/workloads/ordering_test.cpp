// Owns the proof that no counter is believed before what it counts, in any order of arrival.
#include "integration/workloads/ordering.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <vector>

#include "srd/base/rng.hpp"

namespace weft::workloads {
namespace {

TEST(Mark, SurvivesItsWord) {
  Rng rng(3);
  for (int i = 0; i < 1000; ++i) {
    const auto word = static_cast<std::uint32_t>(rng.next());
    EXPECT_EQ(Mark::of(word).word(), word);
  }
}

// What a sender posts for one group in some rounds, and a receiver that gets it in another order.
class Channel {
 public:
  Channel(Ordering ordering, std::uint64_t seed) : ordering_(ordering), rng_(seed) {}

  // Returns how many counters were believed before everything before them had arrived.
  std::uint64_t run(std::uint32_t rounds) {
    for (std::uint32_t round = 0; round < rounds; ++round) {
      // The counter comes last, and says how many writes were before it.
      const std::uint32_t writes = rng_.below(40);
      for (std::uint32_t i = 0; i <= writes; ++i) {
        while (ordering_ == Ordering::sequence && !window_.has_room()) {
          arrive();
        }
        Mark mark{.counter = i == writes, .value = i == writes ? writes : 0};
        mark.sequence = ordering_ == Ordering::sequence ? window_.take() : 0;
        under_way_.push_back({mark, sent_++});
      }
      while (believed_ <= round) {
        EXPECT_FALSE(under_way_.empty()) << "the counter of round " << round << " is lost";
        if (under_way_.empty()) {
          return ~std::uint64_t{0};
        }
        arrive();
      }
      while (!under_way_.empty()) {  // of `none`
        arrive();
      }
    }
    return too_early_;
  }
  OrderingCounters totals;

 private:
  struct Sent {
    Mark mark;
    std::uint64_t number;
  };
  void arrive() {
    // Any of them: this network has no order at all.
    const std::size_t at = rng_.below(static_cast<std::uint32_t>(under_way_.size()));
    const Sent one = under_way_[at];
    under_way_.erase(under_way_.begin() + static_cast<std::ptrdiff_t>(at));
    if (one.mark.counter) {
      counter_ = one.number;
    }
    if (group_.take(ordering_, one.mark, totals, waiting_)) {
      ++believed_;
      for (const Sent& other : under_way_) {
        too_early_ += other.number < counter_ ? 1U : 0U;
      }
    }
    window_.acknowledge(one.mark.sequence);
  }

  Ordering ordering_;
  Rng rng_;
  GroupArrivals group_;
  SequenceWindow window_;
  std::deque<Sent> under_way_;
  std::uint64_t waiting_ = 0;
  std::uint64_t sent_ = 0;
  std::uint64_t counter_ = 0;
  std::uint32_t believed_ = 0;
  std::uint64_t too_early_ = 0;
};

TEST(Ordering, CountersAreNeverBelievedTooEarlyExceptWithoutRules) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    for (const Ordering ordering : {Ordering::count, Ordering::sequence}) {
      Channel channel(ordering, seed);
      EXPECT_EQ(channel.run(20), 0U) << kOrderingNames[static_cast<int>(ordering)] << ' ' << seed;
      EXPECT_EQ(channel.totals.stray, 0U);
      EXPECT_GT(channel.totals.held, 0U);
      EXPECT_EQ(channel.totals.counters, 20U);
    }
    Channel none(Ordering::none, seed);
    // Else the others would have been right by luck.
    EXPECT_GT(none.run(20), 0U) << "without a rule, seed " << seed;
  }
}

TEST(Ordering, WritesWithoutACounterAreNotBelieved) {
  OrderingCounters totals;
  std::uint64_t waiting = 0;
  GroupArrivals group;
  EXPECT_FALSE(group.take(Ordering::count, {}, totals, waiting));
  EXPECT_FALSE(group.take(Ordering::count, {.counter = true, .value = 2}, totals, waiting));
  EXPECT_EQ(waiting, 1U);
  EXPECT_EQ(group.take(Ordering::count, {}, totals, waiting), 2U);
  EXPECT_EQ(waiting, 0U);
  EXPECT_EQ(group.take(Ordering::count, {.counter = true, .value = 0}, totals, waiting), 0U)
      << "nothing is a number, too";
}

// What no sender of ours does is counted, and changes nothing.
TEST(Ordering, StrayMarksAreCounted) {
  OrderingCounters totals;
  std::uint64_t waiting = 0;
  GroupArrivals twice;
  EXPECT_FALSE(twice.take(Ordering::count, {.counter = true, .value = 9}, totals, waiting));
  EXPECT_FALSE(twice.take(Ordering::count, {.counter = true, .value = 9}, totals, waiting));
  EXPECT_EQ(totals.stray, 1U);
  GroupArrivals repeated;
  EXPECT_FALSE(repeated.take(Ordering::sequence, {.sequence = 3}, totals, waiting));
  EXPECT_FALSE(repeated.take(Ordering::sequence, {.sequence = 3}, totals, waiting));
  EXPECT_EQ(totals.stray, 2U);
}

TEST(SequenceWindow, ReusesANumberOnlyBehindTheOldest) {
  SequenceWindow window;
  for (std::uint32_t i = 0; i < Mark::kSequences; ++i) {
    ASSERT_TRUE(window.has_room());
    EXPECT_EQ(window.take(), i);
  }
  EXPECT_FALSE(window.has_room());
  window.acknowledge(1);
  EXPECT_FALSE(window.has_room()) << "number 0 is still under way";
  window.acknowledge(0);
  EXPECT_TRUE(window.has_room());
  EXPECT_EQ(window.take(), 0U);
  EXPECT_EQ(window.take(), 1U);
  EXPECT_FALSE(window.has_room());
}

}  // namespace
}  // namespace weft::workloads
