// Owns the tests of learning that a program waits by looking at its memory. Such a program calls
// nothing while it waits: what comes for it has to be placed by a helper thread, or by a post that
// lingers a while after its own work. The numbers are the rule's (spin_rule.hpp): three rounds
// teach, four lingers in vain are enough, and then twice as many rounds have to teach again.
#include "srd/run/spin_rule.hpp"

#include <gtest/gtest.h>

namespace weft::srd {
namespace {

// A round of a program that looks at its memory: what came was placed by the helper.
bool round_of_spinner(SpinRule& rule) {
  rule.placed_by_watcher();
  return rule.posts();
}

SpinRule learned() {
  SpinRule rule;
  while (!round_of_spinner(rule)) {
  }
  return rule;
}

TEST(SpinRule, ThreeRoundsTeach) {
  SpinRule rule;
  EXPECT_FALSE(round_of_spinner(rule));
  EXPECT_FALSE(round_of_spinner(rule));
  EXPECT_TRUE(round_of_spinner(rule));
  EXPECT_TRUE(rule.spins());
}

TEST(SpinRule, WhoPollsFirstDoesNotSpin) {
  SpinRule rule;
  for (int round = 0; round < 100; ++round) {
    rule.placed_by_watcher();
    rule.polls();
    EXPECT_FALSE(rule.posts());
  }
  EXPECT_FALSE(rule.spins());
}

// A program that looks into its queue before each round of progress: what the helper placed there
// it finds without polling.
TEST(SpinRule, WhoFindsReceivesInItsQueueDoesNotSpin) {
  SpinRule rule;
  for (int round = 0; round < 100; ++round) {
    rule.placed_by_watcher();
    rule.takes_receive();
    EXPECT_FALSE(rule.posts());
  }
  EXPECT_FALSE(rule.spins());
}

// It was slow for a while, at its start perhaps. What comes is then placed by lingers, so that no
// poll of its own would find it.
TEST(SpinRule, WhoFindsReceivesInItsQueueIsNotLingeredForLong) {
  SpinRule rule = learned();
  int rounds = 0;
  while (rule.posts()) {
    rule.lingered(/*in_vain=*/false);
    rule.takes_receive();
    ++rounds;
  }
  EXPECT_EQ(rounds, 16);
  EXPECT_FALSE(rule.spins());
}

// Messages with completions among rounds of writes, which are what it waits for. In each round it
// writes, and in the rounds with a message it also sends one.
TEST(SpinRule, ReceivesAmongWritesDoNotHideASpinner) {
  for (const int every : {2, 3, 8}) {
    SpinRule rule;
    int lingers = 0;
    for (int round = 0; round < 1000; ++round) {
      if (lingers == 0) {
        rule.placed_by_watcher();
      }
      if (round % every == 0) {
        rule.takes_receive();
        if (rule.posts()) {
          ++lingers;
          rule.lingered(/*in_vain=*/false);
        }
      }
      if (rule.posts()) {
        ++lingers;
        rule.lingered(/*in_vain=*/false);
      }
    }
    EXPECT_TRUE(rule.spins()) << "a message in each round of " << every;
    EXPECT_GT(lingers, 900) << "a message in each round of " << every;
  }
}

TEST(SpinRule, WhoOnlyPostsDoesNotSpin) {
  SpinRule rule;
  for (int round = 0; round < 100; ++round) {
    EXPECT_FALSE(rule.posts());
  }
}

TEST(SpinRule, LingersInVainEndAndItTakesMoreToTryAgain) {
  SpinRule rule = learned();
  int lingers = 0;
  while (rule.posts()) {
    rule.lingered(/*in_vain=*/true);
    ++lingers;
  }
  EXPECT_EQ(lingers, 4);
  EXPECT_TRUE(rule.spins()) << "sleepers are still told";
  int rounds = 1;
  while (!round_of_spinner(rule)) {
    ++rounds;
  }
  EXPECT_EQ(rounds, 6);
  rule.lingered(/*in_vain=*/false);
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(rule.posts());
    rule.lingered(/*in_vain=*/true);
  }
  rounds = 1;
  while (!round_of_spinner(rule)) {
    ++rounds;
  }
  EXPECT_EQ(rounds, 6) << "one that was not in vain makes up for earlier ones";
}

TEST(SpinRule, WhoFindsEverythingByPollingIsForgotten) {
  SpinRule rule = learned();
  for (int i = 0; i < 16; ++i) {
    EXPECT_TRUE(rule.spins());
    rule.polls();
    rule.placed_by_poll();
  }
  EXPECT_FALSE(rule.spins());
  EXPECT_FALSE(rule.posts());
}

}  // namespace
}  // namespace weft::srd
