// Owns the tests of convergence: every control shares one queue fully and fairly.
#include "tests/unit/srd/engine/cc/bottleneck.hpp"

#include <gtest/gtest.h>

#include <string>

namespace weft::srd {
namespace {

using namespace std::chrono_literals;
using testing::Bottleneck;
using testing::BottleneckConfig;

// Least goodput and fairness (0..1) of a control with so many senders. With 43 packets of room 127
// senders cannot have even one packet each in flight, so trimming of some share is unavoidable
// there.
struct Expectation {
  std::string_view control;
  int senders;
  double goodput;
  double fairness;
  double trimmed;  // share of the packets, after it has settled
};

void PrintTo(const Expectation& e, std::ostream* out) { *out << e.control << " x " << e.senders; }

class Converges : public ::testing::TestWithParam<Expectation> {};

TEST_P(Converges, SharesOneQueueFullyAndFairly) {
  const Expectation& e = GetParam();
  Bottleneck network(BottleneckConfig{}, e.control, e.senders);
  network.run(10ms);
  network.reset_counts();
  network.run(10ms);
  EXPECT_GE(network.goodput(10ms), e.goodput);
  EXPECT_GE(network.fairness(), e.fairness);
  EXPECT_LE(network.trimmed_share(), e.trimmed);
}

INSTANTIATE_TEST_SUITE_P(Controls, Converges,
                         ::testing::Values(Expectation{"srd", 1, 0.99, 1, 0},
                                           Expectation{"srd", 8, 0.99, 0.98, 0.001},
                                           Expectation{"srd", 32, 0.99, 0.98, 0.05},
                                           Expectation{"srd", 127, 0.99, 0.97, 0.30},
                                           Expectation{"nscc", 1, 0.99, 1, 0},
                                           Expectation{"nscc", 8, 0.99, 0.97, 0.001},
                                           Expectation{"nscc", 32, 0.99, 0.95, 0.05},
                                           Expectation{"swift", 8, 0.95, 0.95, 0.001},
                                           Expectation{"swift", 32, 0.95, 0.95, 0.10},
                                           Expectation{"dctcp", 8, 0.95, 0.95, 0.001},
                                           Expectation{"mprdma", 8, 0.95, 0.95, 0.001}));

class Returns : public ::testing::TestWithParam<std::string_view> {};

// Three of four senders stop: within 5 ms the last one has to take their share of the queue. A
// control that only ever yields would fail here.
TEST_P(Returns, TheRateThatOthersLeaveIsTaken) {
  Bottleneck network(BottleneckConfig{}, GetParam(), 4);
  network.run(5ms);
  for (const std::size_t leaver : {0, 1, 2}) {
    network.stop(leaver);
  }
  network.run(5ms);
  network.reset_counts();
  network.run(2ms);
  EXPECT_GE(network.goodput(2ms), 0.95);
}

INSTANTIATE_TEST_SUITE_P(Controls, Returns,
                         ::testing::Values("srd", "nscc", "swift", "dctcp", "mprdma"),
                         [](const auto& each) { return std::string(each.param); });

// Losses that no queue causes (a bad cable): 1 % is gone, and hardly 2 % more may be lost to
// caution.
TEST(Srd, RandomLossOfOnePercentCostsLittleMoreThanTheLostBytes) {
  BottleneckConfig config;
  config.random_loss = 0.01;
  Bottleneck network(config, "srd", 1);
  network.run(5ms);
  network.reset_counts();
  network.run(20ms);
  EXPECT_GE(network.goodput(20ms), 0.97);
}

// No marks and no trimming reports before the queue is full: losses alone have to hold the window
// back.
TEST(Srd, WithoutMarksItStillSharesAndDoesNotFloodTheQueue) {
  BottleneckConfig config;
  config.mark_low = config.limit * 2;
  config.mark_high = config.limit * 3;
  Bottleneck network(config, "srd", 16);
  network.run(20ms);
  network.reset_counts();
  network.run(20ms);
  EXPECT_GE(network.goodput(20ms), 0.95);
  EXPECT_LE(network.trimmed_share(), 0.25);
}

}  // namespace
}  // namespace weft::srd
