// Owns the tests of the event calendar, which has to be a sorted list in all but its cost: the
// order of equal times decides what a seed means. The arguments are the logarithms of how long a
// slice is and how many of them its ring has: small here, so that tests go round it.
#include "emu/fabric/event_queue.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "srd/base/rng.hpp"

namespace weft::fabric {
namespace {

std::uint32_t take(EventQueue& queue) {
  const CalendarEvent* front = queue.front();
  const std::uint32_t frame = front == nullptr ? 0xFFFFFFFF : front->frame;
  if (front != nullptr) {
    queue.pop();
  }
  return frame;
}

TEST(EventQueue, EmptyHasNoFront) {
  EventQueue queue(8, 6);
  EXPECT_EQ(queue.front(), nullptr);
  EXPECT_TRUE(queue.empty());
}

TEST(EventQueue, EqualTimesKeepTheOrderOfInsertion) {
  EventQueue queue(8, 6);
  for (std::uint32_t i = 0; i < 100; ++i) {
    queue.push({.when = 5000, .frame = i});
  }
  for (std::uint32_t i = 0; i < 100; ++i) {
    EXPECT_EQ(take(queue), i);
  }
}

TEST(EventQueue, AnEventForNowComesAfterThoseAlreadyPlannedForNow) {
  EventQueue queue(8, 6);
  queue.push({.when = 10, .frame = 0});
  queue.push({.when = 10, .frame = 1});
  queue.push({.when = 11, .frame = 3});
  EXPECT_EQ(take(queue), 0U);
  queue.push({.when = 10, .frame = 2});
  EXPECT_EQ(take(queue), 1U);
  EXPECT_EQ(take(queue), 2U);
  EXPECT_EQ(take(queue), 3U);
}

TEST(EventQueue, TakesAnEventThatLiesBeforeTheOpenSlice) {
  EventQueue queue(8, 6);
  queue.push({.when = 1'000'000'000, .frame = 2});
  ASSERT_NE(queue.front(), nullptr);  // opens a slice far ahead, as a caller that only looks does
  queue.push({.when = 10, .frame = 0});
  queue.push({.when = 999'999'999, .frame = 1});
  for (std::uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(take(queue), i);
  }
}

// As under traffic without a pause while a fault is planned for much later.
TEST(EventQueue, DoesNotGrowWhileAllEventsLieBeforeTheOpenSlice) {
  EventQueue queue(8, 6);
  queue.push({.when = 1'000'000'000'000, .frame = 0});
  ASSERT_NE(queue.front(), nullptr);
  const std::size_t before = queue.memory();
  queue.push({.when = 1, .frame = 1});
  for (std::uint32_t i = 2; i < 200'000; ++i) {
    queue.push({.when = i, .frame = i});
    ASSERT_EQ(take(queue), i - 1);
  }
  EXPECT_LT(queue.memory(), before + (std::size_t{1} << 18));
}

// Against a sorted list, over all distances: same slice, ring, far heap, several rings apart.
TEST(EventQueue, PopsInTheOrderOfAStableSort) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    EventQueue queue(6, 6);
    std::vector<CalendarEvent> model;
    Picos now = 0;
    std::uint32_t next = 0;
    for (int step = 0; step < 20'000; ++step) {
      if (model.empty() || rng.chance(0.52)) {
        const Picos spread = Picos{1} << rng.below(18);
        const CalendarEvent event{
            .when = now + static_cast<Picos>(rng.below(static_cast<std::uint32_t>(spread))),
            .frame = next++};
        queue.push(event);
        model.push_back(event);
        continue;
      }
      const auto first = std::min_element(
          model.begin(), model.end(),
          [](const CalendarEvent& a, const CalendarEvent& b) { return a.when < b.when; });
      const CalendarEvent* front = queue.front();
      ASSERT_NE(front, nullptr);
      ASSERT_EQ(front->when, first->when);
      now = front->when;
      const auto same = std::find_if(model.begin(), model.end(), [&](const CalendarEvent& e) {
        return e.frame == front->frame;
      });
      ASSERT_NE(same, model.end()) << "popped twice";
      model.erase(same);
      queue.pop();
    }
    EXPECT_EQ(queue.size(), model.size());
  }
}

}  // namespace
}  // namespace weft::fabric
