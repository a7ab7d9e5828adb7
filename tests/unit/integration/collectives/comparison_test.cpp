// Owns the proof that plugins are compared by the medians of rounds in alternating order: whoever
// always came first would always meet the machine in the same state.
#include "integration/collectives/comparison.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace weft::collectives {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

SessionOptions two_sizes() {
  SessionOptions options;
  options.smallest = 8;
  options.largest = 1024;
  options.factor = 128;
  return options;
}

// Out of place and in place for each of the two sizes; the last one was not measured.
std::vector<Measured> round_of(double microseconds, std::uint64_t wrong = 0) {
  return {{microseconds, wrong, true}, {2 * microseconds, 0, true}, {microseconds, 0, true}, {}};
}

TEST(Comparison, TurnsBackEachRound) {
  const SessionOptions options = two_sizes();
  const Comparison comparison(options, {{"a", "a"}, {"b", "b"}, {"c", "c"}});
  EXPECT_THAT(comparison.order(0), ElementsAre(0, 1, 2));
  EXPECT_THAT(comparison.order(1), ElementsAre(2, 1, 0));
  EXPECT_THAT(comparison.order(2), ElementsAre(0, 1, 2));
}

TEST(Comparison, HasRatiosOfMedians) {
  const SessionOptions options = two_sizes();
  Comparison comparison(options, {{"ours", "ours"}, {"their own", "their_own"}});
  for (const double time : {10.0, 1000.0, 12.0, 8.0}) {  // median 11
    comparison.add(0, round_of(time));
  }
  for (const double time : {1.0, 33.0, 100.0}) {
    comparison.add(1, round_of(time, 2));
  }
  EXPECT_THAT(comparison.json(),
              HasSubstr("\"size\": 8, \"in_place\": false, \"rounds\": 4, \"time_us\": {\"ours\": "
                        "11.000, \"their_own\": 33.000}, \"ratio\": {\"their_own\": 3.0000}, "
                        "\"wrong\": 6}\n"));
  EXPECT_THAT(comparison.json(), HasSubstr("\"size\": 8, \"in_place\": true, \"rounds\": 4, "
                                           "\"time_us\": {\"ours\": 22.000"));
  EXPECT_THAT(comparison.json(), HasSubstr("\"size\": 1024, \"in_place\": false"));
  EXPECT_THAT(comparison.json(), Not(HasSubstr("\"size\": 1024, \"in_place\": true")))
      << "there is no such thing";
  EXPECT_THAT(comparison.table(),
              HasSubstr("           8    out       11.00       33.00  |      3.00       6\n"));
}

}  // namespace
}  // namespace weft::collectives
