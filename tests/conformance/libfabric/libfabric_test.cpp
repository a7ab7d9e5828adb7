// Tests that the stock efa provider keeps libfabric's promises on our devices, by profile.
#include <tuple>

#include "tests/conformance/json_lines.hpp"
#include "tests/conformance/run_weft.hpp"

namespace weft::testing {
namespace {

struct Network {
  const char* name;
  const char* arguments;  // of weft run
  const char* patience;   // how long a case is repeated, for the network to do what it is for
};
constexpr Network kIdeal{"Ideal", "--device efa", ""};
// Eight paths, and the device itself disturbs the order.
constexpr Network kDisorder{"LeafSpine", "--device efa:reorder --topology " WEFT_LEAF_SPINE, ""};
constexpr Network kLoss{"OnePercentLoss",
                        "--topology " WEFT_LEAF_SPINE " --fault 'link: tor0-*, loss: 0.01'",
                        "WEFT_CASE_UNTIL=retrans_pkts"};
// One link goes for good while the case runs; another comes and goes.
constexpr Network kDying{
    "DyingPath",
    "--topology " WEFT_LEAF_SPINE
    " --fault 'link: tor0-spine3, down: true, at: 700ms' --fault 'link: "
    "tor1-spine6, down: true, at: 300ms, lasts: 60ms, every: 150ms, times: 400'",
    "WEFT_CASE_UNTIL=retrans_pkts WEFT_CASE_SECONDS=1"};
constexpr Network kBase{"Base", "--device efa:base", ""};

// One case on `ranks` hosts, which meet in a folder of their own.
Outcome run_with_seed(const Network& network, const std::string& name, int ranks, int seed) {
  return run_shell(
      "dir=$(mktemp -d) && WEFT_CASE_DIR=$dir WEFT_CASE_RANKS=" + std::to_string(ranks) + " " +
      network.patience + " timeout 180 " WEFT_PROGRAM " run --json -n " + std::to_string(ranks) +
      " --seed " + std::to_string(seed) + " " + network.arguments + " -- " WEFT_PEER " " + name +
      "; code=$?; rm -r $dir; exit $code");
}

// Retransmissions end a case that loses packets, but a busy machine has some without a loss: then
// another seed is tried.
Outcome run_case(const Network& network, const std::string& name, int ranks = 2) {
  constexpr int kSeeds = 5;
  Outcome outcome;
  for (int seed = 1; seed <= kSeeds; ++seed) {
    outcome = run_with_seed(network, name, ranks, seed);
    if (outcome.code != 0 || network.name != std::string(kLoss.name) ||
        dropped(outcome.output, "loss") != 0) {
      break;
    }
  }
  return outcome;
}

// The network did what it is there for.
void expect_trouble(const std::string& network, const std::string& output) {
  if (network == kDisorder.name) {
    EXPECT_GT(counted(output, "reordered_pkts") + counted(output, "reordered_msgs"), 0U) << output;
  } else if (network == kLoss.name) {
    EXPECT_GT(dropped(output, "loss"), 0U) << output;
  } else if (network == kDying.name) {
    EXPECT_GT(dropped(output, "link_down"), 0U) << output;
  }
}

class Libfabric : public ::testing::TestWithParam<std::tuple<Network, const char*>> {};

TEST_P(Libfabric, KeepsItsPromises) {
  WEFT_NEEDS_BUILT(WEFT_PEER, "libfabric-dev")
  const auto& [network, name] = GetParam();
  const Outcome outcome = run_case(network, name);
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  expect_trouble(network.name, outcome.output);
}

// More than two hosts.
TEST(LibfabricCrowd, KeepsItsPromises) {
  WEFT_NEEDS_BUILT(WEFT_PEER, "libfabric-dev")
  constexpr Network kNetworks[] = {
      {"Ideal", "", ""},
      {"LeafSpine", "--device efa:reorder --topology " WEFT_FOUR_LEAVES, ""},
      {"OnePercentLoss", "--topology " WEFT_FOUR_LEAVES " --fault 'link: tor*-spine*, loss: 0.01'",
       "WEFT_CASE_UNTIL=retrans_pkts"}};
  for (const Network& network : kNetworks) {
    const Outcome outcome = run_case(network, "crowd", 4);
    EXPECT_EQ(outcome.code, 0) << outcome.output;
    expect_trouble(network.name, outcome.output);
  }
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

INSTANTIATE_TEST_SUITE_P(
    All, Libfabric,
    ::testing::Combine(::testing::Values(kIdeal, kDisorder, kLoss, kDying),
                       ::testing::Values("message", "tagged", "unexpected", "multi_receive",
                                         "cancel", "rma", "write_data", "atomics", "inject",
                                         "cq_data", "counters", "endpoints", "address_vectors",
                                         "restart", "killed")),
    name_of);
// Without any RDMA in the device the provider emulates what it can.
INSTANTIATE_TEST_SUITE_P(NoRdma, Libfabric,
                         ::testing::Combine(::testing::Values(kBase),
                                            ::testing::Values("message", "rma", "write_data",
                                                              "atomics", "unexpected", "counters")),
                         name_of);

}  // namespace
}  // namespace weft::testing
