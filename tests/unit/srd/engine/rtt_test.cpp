// Owns the tests of the round-trip estimate.
#include "srd/engine/rtt.hpp"

#include <gtest/gtest.h>

namespace weft::srd {
namespace {

using namespace std::chrono_literals;

// After a hundred equal round trips.
RttEstimator settled_at(Duration rtt) {
  RttEstimator estimate{rtt};
  for (int i = 0; i < 100; ++i) {
    estimate.add(time_at(i * rtt), rtt);
  }
  return estimate;
}

// A machine that slept for two seconds, and the one packet that was in flight meanwhile.
TEST(Rtt, OneSampleOfAnyLengthIsForgotten) {
  RttEstimator estimate = settled_at(20us);
  estimate.add(time_at(3s), 2s);
  // Twenty times the mean: a sample of two seconds, taken at its word, would have made it seconds.
  EXPECT_LE(estimate.timeout(), 400us);
  for (int i = 0; i < 20; ++i) {
    estimate.add(time_at(4s), 20us);
  }
  EXPECT_LE(estimate.mean(), 30us);
}

TEST(Rtt, ARoundTripThatStaysLongIsLearnt) {
  RttEstimator estimate = settled_at(20us);
  for (int i = 0; i < 40; ++i) {
    estimate.add(time_at(1s + i * 2ms), 2ms);
  }
  EXPECT_GE(estimate.mean(), 1800us);
  EXPECT_GE(estimate.timeout(), 2ms);
}

}  // namespace
}  // namespace weft::srd
