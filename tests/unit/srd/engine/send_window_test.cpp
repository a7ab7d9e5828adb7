// Owns the tests of the order in which a sender repeats what was lost.
#include "srd/engine/send_window.hpp"

#include <gtest/gtest.h>

namespace weft::srd {
namespace {

constexpr TimePoint kStart{Duration{1000}};
constexpr Psn kFirst{100};

class SendWindowTest : public ::testing::Test {
 protected:
  // Four packets under way.
  SendWindowTest() {
    for (int i = 0; i < 4; ++i) {
      window_.mark_in_flight(window_.open(), kStart);
    }
  }
  SendSlot& slot(std::uint32_t i) { return window_.slot(kFirst.plus(i)); }
  SendWindow window_{kFirst};
};

TEST_F(SendWindowTest, WithoutLossesNothingIsRepeated) {
  EXPECT_EQ(window_.first_to_repeat(), nullptr);
  SendWindow empty(kFirst);
  EXPECT_EQ(empty.first_to_repeat(), nullptr);
}

TEST_F(SendWindowTest, WhatHasBeenLostForLongestGoesFirst) {
  window_.mark_lost(slot(3));
  window_.mark_lost(slot(1));
  EXPECT_EQ(window_.first_to_repeat(), &slot(3));
  window_.take_lost(slot(3));
  window_.mark_in_flight(slot(3), kStart);
  EXPECT_EQ(window_.first_to_repeat(), &slot(1));
}

// It was repeated and lost again, so that it is the latest of the lost. Seen in a swarm: the peer
// put off all others, and each of those was repeated before it.
TEST_F(SendWindowTest, WhereThePeerPutsOffTheOldestNumberGoesFirst) {
  for (std::uint32_t i = 0; i < 3; ++i) {
    window_.mark_lost(slot(i));
  }
  window_.take_lost(slot(0));
  window_.mark_in_flight(slot(0), kStart);
  window_.mark_lost(slot(0));
  EXPECT_EQ(window_.first_to_repeat(), &slot(1)) << "nothing was put off";
  window_.mark_deferred(slot(3), kStart, Duration{1});
  EXPECT_EQ(window_.first_to_repeat(), &slot(0));
  window_.settle(slot(0));
  window_.take_lost(slot(1));
  window_.mark_in_flight(slot(1), kStart);
  window_.mark_lost(slot(1));
  EXPECT_EQ(window_.first_to_repeat(), &slot(2)) << "nothing was put off since";
}

}  // namespace
}  // namespace weft::srd
