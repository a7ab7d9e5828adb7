// Owns the tests of the rows that `weft perf` and `weft sim` print, and of the cores that they
// take.
#include <gtest/gtest.h>

#include <set>

#include "emu/cli/perf/options.hpp"
#include "emu/cli/perf/report.hpp"
#include "emu/cli/sim/table.hpp"

namespace weft::cli {
namespace {

using Json = nlohmann::ordered_json;

// What one pair has measured. Most figures are the same for all, so that a sum or a median of them
// is easily said.
PerfResult result(std::optional<double> latency, std::uint64_t reordered, std::uint32_t paths) {
  PerfResult one;
  one.p50_latency_us = one.p99_latency_us = latency;
  one.messages_per_s = 1000;
  one.out_of_order_packets = reordered;
  one.retransmitted = 1;
  one.paths_used = paths;
  return one;
}

// Packets and rates add up. Paths are those of one pair, and the slowest pair's latency is the one
// to know.
TEST(PerfFigures, OfPairsAreThoseOfAllPairs) {
  const std::vector pairs{result(2, 10, 3), result(5, 20, 16), result({}, 30, 8)};
  const PerfResult sum = sum_of(pairs);
  EXPECT_EQ(sum.out_of_order_packets, 60U);
  EXPECT_EQ(sum.retransmitted, 3U);
  EXPECT_EQ(sum.paths_used, 16U);
  EXPECT_DOUBLE_EQ(sum.messages_per_s, 3000);
  EXPECT_EQ(sum.p50_latency_us, 5);
}

// A round may be too short for one. Counted as 0 it would drag the median down.
TEST(PerfFigures, RoundsWithoutALatencyAreNotCounted) {
  EXPECT_EQ(median(std::vector{result({}, 0, 1), result(7, 0, 1), result({}, 0, 1)}).p50_latency_us,
            7);
  EXPECT_FALSE(median(std::vector{result({}, 0, 1), result({}, 0, 1)}).p99_latency_us);
}

TEST(PerfFigures, WhatWasNotMeasuredIsNullAndADash) {
  for (const bool json : {true, false}) {
    PerfOptions options;
    options.json = json;
    ::testing::internal::CaptureStdout();
    print_row(options, {}, result({}, 0, 1));
    const std::string said = ::testing::internal::GetCapturedStdout();
    if (json) {
      EXPECT_TRUE(Json::parse(said)["latency_us_p50"].is_null()) << said;
    } else {
      EXPECT_NE(said.find(" - "), std::string::npos) << said;
    }
  }
}

// Both ends of a pair poll. On one core they would wait for each other's time slices, so they have
// two, and all cores are used. With weftd between them one core is weftd's, and the ends share
// another one: what they wait for is weftd.
TEST(PerfCores, PairsGoRoundTheCores) {
  for (const std::size_t cores : {2U, 3U, 4U, 16U}) {
    std::set<std::size_t> used;
    std::set<std::size_t> beside_weftd;
    for (std::size_t pair = 0; pair < 100; ++pair) {
      for (const std::size_t side : {0U, 1U}) {
        used.insert(core_of_side(pair, side, false, cores));
        beside_weftd.insert(core_of_side(pair, side, true, cores));
      }
      EXPECT_EQ(core_of_side(pair, 0, true, cores), core_of_side(pair, 1, true, cores));
      EXPECT_NE(core_of_side(pair, 0, false, cores), core_of_side(pair, 1, false, cores));
    }
    EXPECT_EQ(used.size(), cores);
    EXPECT_EQ(*used.rbegin(), cores - 1);
    EXPECT_EQ(beside_weftd.size(), cores - 1);
    EXPECT_FALSE(beside_weftd.contains(kCoreOfWeftd));
  }
}

// The lines are those that `weft sim --json` prints. A value of -1 means that it has never
// happened.
TEST(SimVerdicts, SayOnWhichSideOfTheLimitAFigureIs) {
  const auto check = [](const char* what, double value, double limit, bool at_least, bool met) {
    return Json{
        {"what", what}, {"value", value}, {"limit", limit}, {"at_least", at_least}, {"met", met}};
  };
  const auto of = [](const Json& one) { return verdict_on(Json{{"checks", Json::array({one})}}); };
  EXPECT_EQ(of(check("Jain index", 0.9082, 1, true, false)), "FAIL Jain index 0.9082 < 1");
  EXPECT_EQ(of(check("makespan (us)", 12, 10, false, false)), "FAIL makespan (us) 12 > 10");
  EXPECT_EQ(of(check("path abandoned (us)", -1, 10, false, false)),
            "FAIL path abandoned (us) never > 10");
  EXPECT_EQ(of(check("makespan (us)", 9, 10, false, true)), "ok");
  EXPECT_EQ(verdict_on(Json{{"checks", Json::array()}}), "-");
}

TEST(SimVerdicts, LostFramesAreAFailure) {
  EXPECT_EQ(verdict_on(Json{{"checks", Json::array()}, {"conservation", "conservation of frames"}}),
            "FAIL conservation of frames");
}

}  // namespace
}  // namespace weft::cli
