// Tests of a host's sleepers in real threads: deadlines that arise late, several sleepers, kicks,
// programs that hand over.
#include "srd/run/host.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "srd/run/background.hpp"
#include "tests/unit/srd/run/tide.hpp"

namespace weft::srd {
namespace {

using namespace std::chrono_literals;

// Long enough for any machine; a lost wake-up takes this long.
constexpr auto kPatience = 20s;

template <class Condition>
bool comes_true(Condition&& condition) {
  const TimePoint end = monotonic_now() + kPatience;
  while (!condition()) {
    if (monotonic_now() > end) {
      return false;
    }
    std::this_thread::sleep_for(100us);
  }
  return true;
}

class Sleeper {
 public:
  Sleeper(Host<TideMachine>& host, Duration limit)
      : thread_([this, &host, limit] {
          host.sleep(monotonic_now() + limit);
          awake_ = true;
        }) {}
  ~Sleeper() { thread_.join(); }
  [[nodiscard]] bool awake() const { return awake_; }

 private:
  std::atomic<bool> awake_{false};
  std::thread thread_;
};

TEST(Host, ADeadlineMadeOnTheWayOutReachesTheSleeper) {
  TideHost tide;
  const Sleeper sleeper(*tide.host, 60s);
  ASSERT_TRUE(comes_true([&] { return tide.io->asleep(); }));
  // Another thread posts while this one has the machine: this one makes the round for it.
  tide.host->look([&](TideMachine& machine) {
    std::thread([&] {
      ++machine.posted;
      tide.host->push();
    }).join();
  });
  EXPECT_EQ(tide.machine->sent, 1);
  EXPECT_TRUE(comes_true([&] { return sleeper.awake(); }));
}

TEST(Host, WhoWakesFirstLeavesTheOthersListening) {
  TideHost tide;
  const Sleeper other(*tide.host, 60s);
  ASSERT_TRUE(comes_true([&] { return tide.io->asleep(); }));
  tide.host->sleep(monotonic_now() + 5ms);
  EXPECT_TRUE(tide.io->asleep());
  tide.io->arrive();
  EXPECT_TRUE(comes_true([&] { return other.awake(); }));
}

TEST(Host, AKickWakesAll) {
  TideHost tide;
  std::atomic<int> lying_down{0};
  std::atomic<int> awake{0};
  const auto sleeps = [&] {
    tide.host->sleep(monotonic_now() + 60s, [&] {
      ++lying_down;
      return false;
    });
    ++awake;
  };
  std::thread first(sleeps);
  std::thread second(sleeps);
  ASSERT_TRUE(comes_true([&] { return lying_down == 2; }));
  tide.host->kick();
  EXPECT_TRUE(comes_true([&] { return awake == 2; }));
  first.join();
  second.join();
}

TEST(Host, APollByAnotherThreadWakesWhoListened) {
  TideHost tide;
  const Sleeper sleeper(*tide.host, 60s);
  ASSERT_TRUE(comes_true([&] { return tide.io->asleep(); }));
  (void)tide.host->poll();
  EXPECT_FALSE(tide.io->asleep());
  EXPECT_TRUE(comes_true([&] { return sleeper.awake(); }));
}

// Three rounds in which the background thread places the data and the program posts next;
// `receives` says whether the program finds them by completions before.
bool seems_to_read_its_memory(bool receives) {
  TideHost tide;
  bool lingers = false;
  for (int round = 0; round < 3; ++round) {
    tide.io->arrive();
    EXPECT_EQ(tide.host->watch(), 1U);
    tide.host->took_completions(receives);
    lingers = tide.host->push();
  }
  EXPECT_EQ(tide.host->program_spins(monotonic_now()), lingers);
  return lingers;
}

TEST(Host, WhoTakesReceivesDoesNotReadItsMemory) {
  EXPECT_TRUE(seems_to_read_its_memory(false)) << "completions of its own sends say nothing";
  EXPECT_FALSE(seems_to_read_its_memory(true));
}

// The thread that has the machine may have no core, where many processes share few: a program that
// waited for it at each completion stood still.
TEST(Host, TakingCompletionsWaitsForNobody) {
  TideHost tide;
  tide.io->arrive();
  EXPECT_EQ(tide.host->watch(), 1U);
  tide.host->look([&](TideMachine& /*machine*/) {
    std::thread([&] { tide.host->took_completions(true); }).join();
  });
}

// A thread that finds the lock taken by one that has just taken completions is served by that one.
TEST(Host, TakingCompletionsServesWhoFindsTheLockTaken) {
  TideHost tide;
  tide.io->arrive();
  EXPECT_EQ(tide.host->watch(), 1U);
  const Sleeper sleeper(*tide.host, 60s);  // so that the machine is asked for its deadline
  ASSERT_TRUE(comes_true([&] { return tide.io->asleep(); }));
  tide.machine->settling = [&] {
    std::thread([&] {
      ++tide.machine->posted;
      (void)tide.host->push();
    }).join();
  };
  tide.host->took_completions(true);
  EXPECT_FALSE(tide.machine->settling);
  EXPECT_EQ(tide.machine->sent, 1);
  tide.host->kick();
}

// What f() takes is no packet's round trip.
TEST(Host, SendsWithTheTimeOfSending) {
  TideHost tide;
  TimePoint within{};
  tide.host->with([&](TideMachine& machine, TimePoint now) {
    ++machine.posted;
    within = now;
    std::this_thread::sleep_for(10ms);
  });
  EXPECT_GE(tide.machine->sent_at, within + 10ms);
}

TEST(Host, TheMachinesTimeNeverGoesBackwards) {
  TideHost tide;
  TimePoint last{};
  std::atomic<int> backwards{0};
  const auto calls = [&] {
    for (int i = 0; i < 20'000; ++i) {
      tide.host->with([&](TideMachine&, TimePoint now) {
        backwards += now < last ? 1 : 0;
        last = now;
      });
    }
  };
  std::thread other(calls);
  calls();
  other.join();
  EXPECT_EQ(backwards, 0);
}

// Without a thread that looks now and then, each packet, each post and each deadline is met,
// whatever the application does: the background thread is woken for all of it, and for its own end.
TEST(Host, TheBackgroundThreadNeedNotWatch) {
  constexpr int kRounds = 3000;
  TideHost tide;
  tide.machine->patience = 50us;
  auto background = std::make_unique<BackgroundThread<TideMachine>>(*tide.host, false);
  std::uint32_t seed = 1;
  const auto random = [&](std::uint32_t below) {
    seed = seed * 1664525 + 1013904223;
    return (seed >> 16) % below;
  };
  for (int round = 1; round <= kRounds; ++round) {
    tide.io->arrive();
    switch (random(5)) {
      case 0:
        (void)tide.host->poll();
        break;
      case 1:
        ++tide.machine->posted;
        tide.host->push();
        break;
      case 2:
        tide.host->with([](TideMachine& machine, TimePoint) { ++machine.posted; });
        break;
      case 3:
        tide.host->linger();
        break;
      default:
        break;
    }
    if (random(3) != 0) {
      continue;  // at once the next
    }
    ASSERT_TRUE(comes_true([&] { return tide.machine->packets == round; })) << round;
    ASSERT_EQ(tide.machine->sent, tide.machine->posted);
    ASSERT_TRUE(comes_true([&] { return tide.is_quiet(); })) << round;
    if (random(50) == 0) {
      background.reset();  // would wait for ever for a thread that does not hear of it
      background = std::make_unique<BackgroundThread<TideMachine>>(*tide.host, false);
    }
  }
}

// The same with several threads at once, two of which sleep themselves.
TEST(Host, ManyThreadsAtOnce) {
  constexpr int kRounds = 2000;
  TideHost tide;
  tide.machine->patience = 30us;
  const BackgroundThread<TideMachine> background(*tide.host, false);
  std::atomic<bool> done{false};
  const auto sleeps = [&] {
    while (!done) {
      (void)tide.host->poll();
      tide.host->sleep(monotonic_now() + 300us);
    }
  };
  const auto posts = [&] {
    for (int i = 0; i < kRounds; ++i) {
      ++tide.machine->posted;
      i % 2 == 0 ? (void)tide.host->push() : (void)tide.host->push_unpolled();
      if (i % 16 == 0) {
        tide.host->linger();
      }
    }
  };
  const auto arrives = [&] {
    for (int i = 0; i < kRounds; ++i) {
      tide.io->arrive();
    }
  };
  {
    std::thread sleepers[2] = {std::thread(sleeps), std::thread(sleeps)};
    std::thread posters[2] = {std::thread(posts), std::thread(posts)};
    std::thread peer(arrives);
    for (std::thread* thread : {&posters[0], &posters[1], &peer}) {
      thread->join();
    }
    done = true;
    sleepers[0].join();
    sleepers[1].join();
  }
  EXPECT_TRUE(comes_true([&] { return tide.machine->packets == kRounds; }));
  EXPECT_TRUE(comes_true([&] { return tide.machine->sent == 2 * kRounds; }));
  EXPECT_TRUE(comes_true([&] { return tide.is_quiet(); }));
}

}  // namespace
}  // namespace weft::srd
