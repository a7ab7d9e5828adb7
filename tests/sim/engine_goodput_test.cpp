// Owns the measure of what loss costs: virtual time for the same bytes, with and without it.
//
// Virtual time makes the measure exact: it does not depend on the machine. Three seeds, so that no
// lucky draw decides.
#include <gtest/gtest.h>

#include "tests/support/lab.hpp"

namespace weft::testing {
namespace {

// Virtual time for 64 MB in writes of 1 MB over 16 paths of a 100 Gb/s network.
Duration transfer(double loss, std::uint64_t seed) {
  LabConfig config = lab_config();
  config.seed = seed;
  config.engine.mtu_payload = 4096;
  config.engine.checksum = false;
  config.link.rate = Rate::gbps(100);
  config.link.loss = loss;
  Pair pair(config);
  constexpr int kWrites = 64;
  for (int i = 0; i < kWrites; ++i) {
    pair.a.write_phantom(pair.b, 1'000'000);
  }
  EXPECT_TRUE(pair.run_until([&] { return pair.a.outstanding() == 0; }));
  return pair.elapsed();
}

// The share of its own speed without loss that a transfer keeps, as a mean of three seeds.
double goodput(double loss) {
  double sum = 0;
  constexpr int kSeeds = 3;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    sum += static_cast<double>(transfer(0, seed).count()) /
           static_cast<double>(transfer(loss, seed).count());
  }
  return sum / kSeeds;
}

// The ideal counts the header of each packet. What is missing is the beginning and the last
// acknowledgement.
TEST(EngineGoodput, FillsAnIdleNetwork) {
  const double ideal = 64e6 * (4096.0 + 64) / 4096 * 8 / 100e9;
  const double taken = static_cast<double>(transfer(0, 1).count()) * 1e-9;
  EXPECT_GT(ideal / taken, 0.95);
}

TEST(EngineGoodput, OneLossInAThousandCostsLessThanThreePercent) {
  const double share = goodput(0.001);
  RecordProperty("goodput_percent", static_cast<int>(share * 100));
  EXPECT_GE(share, 0.97);
}

TEST(EngineGoodput, OneLossInAHundredCostsLessThanTenPercent) {
  const double share = goodput(0.01);
  RecordProperty("goodput_percent", static_cast<int>(share * 100));
  EXPECT_GE(share, 0.90);
}

}  // namespace
}  // namespace weft::testing
