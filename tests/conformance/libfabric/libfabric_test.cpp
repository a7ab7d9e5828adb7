// Tests that the stock efa provider keeps libfabric's promises on our devices, by profile.
#include <tuple>

#include "tests/conformance/run_weft.hpp"

namespace weft::testing {
namespace {

struct Network {
  const char* name;
  const char* arguments;  // of weft run
};
constexpr Network kIdeal{"Ideal", "--device efa"};
// Eight paths, and the device itself disturbs the order.
constexpr Network kDisorder{"LeafSpine", "--device efa:reorder --topology " WEFT_LEAF_SPINE};
constexpr Network kLoss{"OnePercentLoss",
                        "--topology " WEFT_LEAF_SPINE " --fault 'link: tor0-*, loss: 0.01'"};
// One link goes for good while the case runs; another comes and goes.
constexpr Network kDying{
    "DyingPath", "--topology " WEFT_LEAF_SPINE
                 " --fault 'link: tor0-spine3, down: true, at: 700ms' --fault 'link: "
                 "tor1-spine6, down: true, at: 400ms, lasts: 60ms, every: 150ms, times: 40'"};
constexpr Network kBase{"Base", "--device efa:base"};

class Libfabric : public ::testing::TestWithParam<std::tuple<Network, const char*>> {};

TEST_P(Libfabric, KeepsItsPromises) {
  WEFT_NEEDS_BUILT(WEFT_PEER, "libfabric-dev")
  const auto& [network, name] = GetParam();
  const Outcome outcome =
      run_shell("dir=$(mktemp -d) && WEFT_CASE_DIR=$dir timeout 90 " WEFT_PROGRAM " run -n 2 " +
                std::string(network.arguments) + " -- " WEFT_PEER " " + name +
                "; code=$?; rm -r $dir; exit $code");
  EXPECT_EQ(outcome.code, 0) << outcome.output;
}

TEST(LibfabricPeerDeath, EndsItsWorkInErrorAndNothingElse) {
  WEFT_NEEDS_BUILT(WEFT_PEER, "libfabric-dev")
  const Outcome outcome = run_shell(
      "dir=$(mktemp -d) && WEFT_CASE_DIR=$dir timeout 90 " WEFT_PROGRAM
      " run -n 2 --grace 40 -- " WEFT_PEER " peer_death; code=$?; rm -r $dir; exit $code");
  EXPECT_EQ(outcome.code, 128 + 9) << outcome.output;
  EXPECT_TRUE(outcome.says("the survivor was told: ")) << outcome.output;
}

std::string name_of(const ::testing::TestParamInfo<Libfabric::ParamType>& test) {
  return std::string(std::get<0>(test.param).name) + "_" + std::get<1>(test.param);
}

INSTANTIATE_TEST_SUITE_P(All, Libfabric,
                         ::testing::Combine(::testing::Values(kIdeal, kDisorder, kLoss, kDying),
                                            ::testing::Values("message", "tagged", "unexpected",
                                                              "multi_receive", "cancel", "rma",
                                                              "write_data", "atomics", "inject",
                                                              "cq_data", "counters", "endpoints",
                                                              "address_vectors", "restart")),
                         name_of);
// Without any RDMA in the device the provider emulates what it can.
INSTANTIATE_TEST_SUITE_P(NoRdma, Libfabric,
                         ::testing::Combine(::testing::Values(kBase),
                                            ::testing::Values("message", "rma", "write_data",
                                                              "atomics")),
                         name_of);

}  // namespace
}  // namespace weft::testing
