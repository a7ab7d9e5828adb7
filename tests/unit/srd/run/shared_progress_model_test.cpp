// Tests the protocol of sleeping and waking in every interleaving of two to four threads.
#include <gtest/gtest.h>

#include "tests/unit/srd/run/progress_model.hpp"

namespace weft::testing {
namespace {

template <class Model>
Interleavings::Result explore(const std::vector<Script>& scripts,
                              const typename Model::Faults& faults = {}) {
  return Interleavings::explore([&] { return std::make_unique<Model>(scripts, faults); });
}

std::string story_of(const Interleavings::Result& result) {
  std::string text = result.wrong + ":\n";
  for (const std::string& line : result.story) {
    text += "  " + line + "\n";
  }
  return text;
}

struct Case {
  const char* name;
  std::vector<Script> scripts;
};

void PrintTo(const Case& one, std::ostream* out) { *out << one.name; }

// The address sanitizer takes a fiber's stack, which is memory of ours, for an overrun of the
// thread's.
void skip_with_sanitizer() {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "fibers with stacks of their own: not with the address sanitizer";
#endif
}

class Interleaved : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override { skip_with_sanitizer(); }
};
class Mistakes : public ::testing::Test {
 protected:
  void SetUp() override { skip_with_sanitizer(); }
};

TEST_P(Interleaved, NothingIsLost) {
  const auto result = explore<ProgressModel<>>(GetParam().scripts);
  EXPECT_EQ(result.wrong, "") << story_of(result);
  RecordProperty("states", static_cast<int>(result.states));
  RecordProperty("runs", static_cast<int>(result.runs));
  std::printf("%zu states, %zu runs\n", result.states, result.runs);
}

using enum Act;
INSTANTIATE_TEST_SUITE_P(
    Threads, Interleaved,
    ::testing::Values(Case{"background_and_packets", {{watch}, {arrive, arrive}}},
                      Case{"background_and_poller", {{watch}, {poll, poll}, {arrive}}},
                      Case{"background_and_pushes", {{watch}, {push, push}, {arrive}}},
                      Case{"background_and_two_callers", {{watch}, {push}, {with}}},
                      Case{"background_and_spinner", {{watch}, {push, linger}, {arrive}}},
                      Case{"background_and_two_lingers", {{watch}, {linger, linger}, {arrive}}},
                      Case{"background_stops", {{watch}, {poll, stop}, {arrive}}},
                      Case{"background_stops_beside_a_sleeper", {{watch}, {stop}, {sleep_a_bit}}},
                      Case{"a_sleeper_and_packets", {{sleep_on}, {arrive, arrive}}},
                      Case{"two_sleepers", {{sleep_on}, {sleep_a_bit}, {arrive}}},
                      Case{"two_sleepers_and_a_deadline", {{sleep_on}, {sleep_a_bit}, {with}}},
                      Case{"two_sleepers_for_ever", {{sleep_on}, {sleep_on}, {arrive}}},
                      Case{"a_sleeper_and_two_callers", {{sleep_on}, {with}, {push}}},
                      Case{"a_sleeper_and_a_holder", {{sleep_on}, {look, look}, {push}}},
                      Case{"a_sleeper_beside_the_background", {{watch}, {sleep_a_bit}, {poll}}},
                      Case{"a_sleeper_beside_background_and_packets",
                           {{watch}, {sleep_a_bit}, {arrive}}},
                      Case{"a_crowd", {{push, push}, {push}, {with}}}),
    [](const auto& test) { return std::string(test.param.name); });

// --- Mistakes, most of which were made once. Each must be found, or the tests above say nothing.
void expect_found(const Interleavings::Result& result, const std::string& what) {
  EXPECT_EQ(result.wrong, what);
  std::printf("after %zu states, %zu runs\n%s", result.states, result.runs,
              story_of(result).c_str());
}

// Deadlines that arise after the sleeper has lain down.
struct MissesLateDeadlines : BriefState {
  [[nodiscard]] static bool misses(TimePoint /*deadline*/) { return false; }
};
TEST_F(Mistakes, ADeadlineThatNoSleeperKnows) {
  expect_found(explore<ProgressModel<MissesLateDeadlines>>({{sleep_on}, {with}, {push}}),
               "all sleep past the deadline");
}
// The same only where the holder has made a round for another thread: that one posted.
struct SettlesBeforeRounds : BriefState {
  [[nodiscard]] bool misses(TimePoint deadline) {
    return std::exchange(asked, true) ? false : BriefState::misses(deadline);
  }
  void lie_down(Sleeper& self, bool armed) {
    asked = false;
    BriefState::lie_down(self, armed);
  }
  bool asked = false;
};
TEST_F(Mistakes, ADeadlineMadeOnTheWayOut) {
  expect_found(explore<ProgressModel<SettlesBeforeRounds>>({{sleep_on}, {look}, {push}}),
               "all sleep past the deadline");
}

// One flag for all sleepers: the first to wake disarms.
struct DisarmsForAll : BriefState {
  [[nodiscard]] Remaining get_up(Sleeper& self) {
    const Remaining remains = BriefState::get_up(self);
    return remains == Remaining::arm_again ? Remaining::disarm : remains;
  }
};
TEST_F(Mistakes, TheFirstToWakeLeavesTheOthersDeaf) {
  expect_found(explore<ProgressModel<DisarmsForAll>>({{sleep_on}, {sleep_a_bit}, {arrive}}),
               "packets lie there and all sleep");
}

// The bell is silenced by the first that hears it.
struct OneCallForAll : BriefState {
  [[nodiscard]] Phase phase() const { return getting_up ? Phase::awake : BriefState::phase(); }
  [[nodiscard]] Remaining get_up(Sleeper& self) {
    getting_up = true;
    return BriefState::get_up(self);
  }
  void lie_down(Sleeper& self, bool armed) {
    getting_up = false;
    BriefState::lie_down(self, armed);
  }
  bool getting_up = false;
};
TEST_F(Mistakes, OneSleeperTakesAnothersCallAway) {
  expect_found(explore<ProgressModel<OneCallForAll>>({{watch}, {stop}, {sleep_a_bit}}),
               "the background thread does not see that it must end");
}

// After some rounds for others the last mark is taken away, and no thread serves it.
class ForgetfulLock : public SteppedLock {
 public:
  [[nodiscard]] bool unlock_unless_marked() {
    if (SteppedLock::unlock_unless_marked()) {
      return true;
    }
    if (++refused_ < 2) {
      return false;
    }
    unlock();
    return true;
  }

 private:
  int refused_ = 0;
};
TEST_F(Mistakes, TheLastMarkIsServedByNobody) {
  expect_found(explore<ProgressModel<BriefState, ForgetfulLock>>({{push, push}, {push}, {with}}),
               "posted work is left behind");
}

// A mark that comes between the look at the marks and the unlocking.
class BlindLock : public SteppedLock {
 public:
  [[nodiscard]] bool unlock_unless_marked() {
    unlock();
    return true;
  }
};
TEST_F(Mistakes, MarksAreNotLookedAt) {
  expect_found(explore<ProgressModel<BriefState, BlindLock>>({{push}, {push}}),
               "posted work is left behind");
}

// A packet between the last look and the arming.
TEST_F(Mistakes, ArmingIsNotFollowedByALook) {
  using Model = ProgressModel<>;
  expect_found(explore<Model>({{sleep_on}, {arrive}}, {.arms_without_look = true}),
               "packets lie there and all sleep");
}
// The same for a program that hands over and looks at its memory from then on.
TEST_F(Mistakes, AHandOverIsNotFollowedByALook) {
  using Model = ProgressModel<>;
  expect_found(explore<Model>({{watch}, {poll, linger}, {arrive}}, {.arms_without_look = true}),
               "packets lie there and all sleep");
}

}  // namespace
}  // namespace weft::testing
