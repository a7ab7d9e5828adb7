// Tests that the stock efa provider keeps libfabric's promises on our devices, by profile.
#include <tuple>

#include "tests/conformance/run_weft.hpp"

namespace weft::testing {
namespace {

class Libfabric : public ::testing::TestWithParam<std::tuple<const char*, const char*>> {};

TEST_P(Libfabric, KeepsItsPromises) {
  const auto [device, name] = GetParam();
  const Outcome outcome = run_shell(
      "dir=$(mktemp -d) && WEFT_CASE_DIR=$dir timeout 90 " WEFT_PROGRAM " run -n 2 --device " +
      std::string(device) + " -- " WEFT_PEER " " + name + "; code=$?; rm -r $dir; exit $code");
  EXPECT_EQ(outcome.code, 0) << outcome.output;
}

TEST(LibfabricPeerDeath, EndsItsWorkInErrorAndNothingElse) {
  const Outcome outcome = run_shell(
      "dir=$(mktemp -d) && WEFT_CASE_DIR=$dir timeout 90 " WEFT_PROGRAM
      " run -n 2 --grace 40 -- " WEFT_PEER " peer_death; code=$?; rm -r $dir; exit $code");
  EXPECT_EQ(outcome.code, 128 + 9) << outcome.output;
  EXPECT_TRUE(outcome.says("the survivor was told: ")) << outcome.output;
}

INSTANTIATE_TEST_SUITE_P(All, Libfabric,
                         ::testing::Combine(::testing::Values("efa", "efa:base", "efa:reorder"),
                                            ::testing::Values("message", "tagged", "unexpected",
                                                              "multi_receive", "cancel", "rma",
                                                              "write_data", "atomics", "inject",
                                                              "cq_data", "counters", "endpoints")),
                         [](const auto& test) {
                           const std::string device = std::get<0>(test.param);
                           return (device == "efa" ? "full" : device.substr(4)) + "_" +
                                  std::get<1>(test.param);
                         });

}  // namespace
}  // namespace weft::testing
