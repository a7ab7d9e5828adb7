// Tests of the lock that is tried, and leaves marks.
#include "srd/run/try_lock.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>

namespace weft::srd {
namespace {

TEST(TryLock, KnowsItsHolder) {
  TryLock lock;
  EXPECT_FALSE(lock.held_here());
  ASSERT_TRUE(lock.try_lock());
  EXPECT_TRUE(lock.held_here());
  EXPECT_FALSE(lock.try_lock());
  std::thread other([&] {
    EXPECT_FALSE(lock.held_here());
    EXPECT_FALSE(lock.try_lock());
  });
  other.join();
  lock.unlock();
  EXPECT_FALSE(lock.held_here());
  EXPECT_TRUE(lock.try_lock());
}

TEST(TryLock, WhoComesInVainIsNoticedByTheHolder) {
  TryLock lock;
  ASSERT_TRUE(lock.try_lock_or_mark());
  std::thread other([&] { EXPECT_FALSE(lock.try_lock_or_mark()); });
  other.join();
  EXPECT_FALSE(lock.unlock_unless_marked());
  EXPECT_TRUE(lock.held_here());
  EXPECT_TRUE(lock.unlock_unless_marked());
  EXPECT_FALSE(lock.held_here());
}

// A signal handler above the holder leaves a mark, too.
TEST(TryLock, TheHolderItselfMayComeInVain) {
  TryLock lock;
  ASSERT_TRUE(lock.try_lock_or_mark());
  EXPECT_FALSE(lock.try_lock_or_mark());
  EXPECT_TRUE(lock.held_here());
  EXPECT_FALSE(lock.unlock_unless_marked());
  EXPECT_TRUE(lock.unlock_unless_marked());
}

// Two threads bring something at the same moment; when both are through, each has been seen by the
// thread that had the lock last. A mark that is lost between the unlocking and the look at the
// marks would leave one behind.
TEST(TryLock, NothingThatIsBroughtIsLeftBehind) {
  constexpr int kRounds = 20'000;
  TryLock lock;
  std::array<std::atomic<int>, 2> brought{};
  std::array<int, 2> seen{};  // under the lock
  std::array<std::atomic<int>, 2> arrived{};
  const auto meet = [&](std::size_t self, int step) {
    arrived[self] = step;
    while (arrived[1 - self] < step) {
      std::this_thread::yield();
    }
  };
  int left_behind = 0;
  const auto bring = [&](std::size_t self) {
    for (int round = 1; round <= kRounds; ++round) {
      meet(self, 2 * round - 1);
      brought[self].store(round, std::memory_order_relaxed);
      if (lock.try_lock_or_mark()) {
        do {
          seen = {brought[0].load(std::memory_order_relaxed),
                  brought[1].load(std::memory_order_relaxed)};
        } while (!lock.unlock_unless_marked());
      }
      meet(self, 2 * round);
      if (self == 0 && (seen[0] != round || seen[1] != round)) {
        ++left_behind;
      }
    }
  };
  std::thread other(bring, 1);
  bring(0);
  other.join();
  EXPECT_EQ(left_behind, 0);
}

}  // namespace
}  // namespace weft::srd
