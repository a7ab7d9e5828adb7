// Owns the tests of the question how far a peer is.
#include "srd/engine/cc/distance_question.hpp"

#include <gtest/gtest.h>

namespace weft::srd {
namespace {

using namespace std::chrono_literals;

// The period is 100 ms.
TEST(DistanceQuestion, IsAskedOnceAPeriod) {
  DistanceQuestion question;
  ASSERT_TRUE(question.due(time_at(1us)));
  const std::uint32_t number = question.ask(time_at(1us), 40us);
  EXPECT_FALSE(question.due(time_at(2us)));
  EXPECT_EQ(question.answered(time_at(8us), number), Duration{7us});
  EXPECT_FALSE(question.due(time_at(99ms)));
  EXPECT_TRUE(question.due(time_at(101ms)));
}

// A peer that does not answer, for a second: a question each round trip would be a load of its own,
// and none would never learn the distance.
TEST(DistanceQuestion, IsRepeatedLessAndLessOften) {
  DistanceQuestion question;
  TimePoint now = time_at(1us);
  int asked = 0;
  for (; now < time_at(1s); now += 10us) {
    if (question.due(now)) {
      (void)question.ask(now, 40us);
      ++asked;
    }
  }
  EXPECT_GE(asked, 10);
  EXPECT_LE(asked, 25);
}

// Only the answer to the latest question measures: a late answer to an earlier one, timed from the
// latest, would make the peer nearer than it is.
TEST(DistanceQuestion, AnAnswerToAnEarlierOneMeasuresNothing) {
  DistanceQuestion question;
  const std::uint32_t first = question.ask(time_at(0us), 40us);
  const std::uint32_t second = question.ask(time_at(50us), 40us);
  EXPECT_FALSE(question.answered(time_at(51us), first).has_value());
  EXPECT_EQ(question.answered(time_at(60us), second), Duration{10us});
  EXPECT_FALSE(question.answered(time_at(61us), second).has_value());  // a copy
}

}  // namespace
}  // namespace weft::srd
