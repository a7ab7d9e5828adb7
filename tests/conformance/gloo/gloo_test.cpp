// Owns Gloo's collectives over weft, on emulated networks: every element, disturbed and killed.
#include <array>

#include "tests/conformance/run_weft.hpp"
#include "tests/support/temporary_folder.hpp"

namespace weft::testing {
namespace {

Outcome run_ranks(int ranks, const std::string& options, const std::string& rest,
                  const std::string& environment = "") {
  const TemporaryFolder folder;
  std::string words;
  for (int i = 0; i < ranks; ++i) {
    words += std::string(i == 0 ? " -- env " : " : env ") + environment + " " WEFT_GLOO_RANK " " +
             folder.path() + " " + std::to_string(i) + " " + std::to_string(ranks) + " " + rest;
  }
  return run_weft("--device none " + options + words, 120);
}

int count_of(const std::string& text, const std::string& part) {
  int count = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) {
    ++count;
  }
  return count;
}

constexpr const char* kTrouble =
    "--fault \"link: 'h*->*', loss: 0.01, reordering: 0.1, reorder_delay: 50us\" "
    "--fault \"link: 'h1->*', duplication: 0.02\"";

class Gloo : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Gloo, ::testing::Values(2, 3, 4, 8));

TEST_P(Gloo, EveryElementIsRight) {
  WEFT_NEEDS_BUILT(WEFT_GLOO_RANK, "a libgloo-dev that integration/gloo fits");
  const Outcome outcome = run_ranks(GetParam(), "", GetParam() > 4 ? "1048576" : "16777216");
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_EQ(count_of(outcome.output, "all right"), GetParam()) << outcome.output;
}

TEST_P(Gloo, EveryElementIsRightUnderLossAndDisorder) {
  WEFT_NEEDS_BUILT(WEFT_GLOO_RANK, "a libgloo-dev that integration/gloo fits");
  const Outcome outcome = run_ranks(GetParam(), kTrouble, "1048576");
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_EQ(count_of(outcome.output, "all right"), GetParam()) << outcome.output;
}

TEST_P(Gloo, KilledRankIsToldToAllOthers) {
  WEFT_NEEDS_BUILT(WEFT_GLOO_RANK, "a libgloo-dev that integration/gloo fits");
  const Outcome outcome = run_ranks(GetParam(), "--grace 60", "65540 dies", "WEFT_NCCL_TIMEOUT=1");
  EXPECT_NE(outcome.code, 0);
  EXPECT_EQ(count_of(outcome.output, "it is gone, or has closed"), GetParam() - 1)
      << outcome.output;
}

TEST(GlooWaits, EndAfterTheirTime) {
  WEFT_NEEDS_BUILT(WEFT_GLOO_RANK, "a libgloo-dev that integration/gloo fits");
  const Outcome outcome = run_ranks(2, "--grace 60", "4096 slow");
  EXPECT_NE(outcome.code, 0);
  EXPECT_TRUE(outcome.says("timed out after 2000 ms")) << outcome.output;
}

TEST(GlooWaits, MisuseIsRefused) {
  WEFT_NEEDS_BUILT(WEFT_GLOO_RANK, "a libgloo-dev that integration/gloo fits");
  for (const char* const what : {"0 misuse", "0 shorter", "0 goes"}) {
    const Outcome outcome = run_ranks(2, "", what);
    EXPECT_EQ(outcome.code, 0) << outcome.output;
    EXPECT_EQ(count_of(outcome.output, "all right"), 2) << outcome.output;
  }
}

// Debian's PyTorch, as it is. It needs some packages of its own, so few machines have it.
Outcome run_torch(int ranks, const std::string& options, const std::string& environment) {
  const TemporaryFolder folder;
  std::string words;
  for (int i = 0; i < ranks; ++i) {
    words += std::string(i == 0 ? " -- env " : " : env ") + environment +
             " OMP_NUM_THREADS=1 /usr/bin/python3 " WEFT_TORCH_RANK " " + std::to_string(i) + " " +
             std::to_string(ranks) + " " + folder.path() + "/meeting";
  }
  return run_weft("--device none " + options + words, 120);
}

bool has_torch() {
  return run_shell("/usr/bin/python3 -c 'import torch.distributed as d; d.Backend.GLOO'").code == 0;
}
#define WEFT_NEEDS_TORCH()                                                            \
  if (!has_torch()) {                                                                 \
    GTEST_SKIP() << "this machine has no python3-torch; install it to run this test"; \
  }

TEST(GlooTorch, RunsOverWeftWithoutKnowingIt) {
  WEFT_NEEDS_BUILT(WEFT_GLOO_PRELOAD, "a libgloo-dev that integration/gloo fits");
  WEFT_NEEDS_TORCH();
  for (const int ranks : {2, 4}) {
    const Outcome outcome = run_torch(ranks, kTrouble, "LD_PRELOAD=" WEFT_GLOO_PRELOAD);
    EXPECT_EQ(outcome.code, 0) << outcome.output;
    EXPECT_EQ(count_of(outcome.output, "all right"), ranks) << outcome.output;
  }
}

TEST(GlooTorch, RunsOverTcpOnTheTapsOfTheHosts) {
  WEFT_NEEDS_TORCH();
  if (run_weft("--netns --device none -- true").code != 0) {
    GTEST_SKIP() << "no network namespaces here";
  }
  const Outcome outcome = run_torch(2, "--netns", "GLOO_SOCKET_IFNAME=weft0");
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_EQ(count_of(outcome.output, "all right"), 2) << outcome.output;
}

// Without weftd: processes over UDP, each at a loopback address of its own.
TEST(GlooUdp, EveryElementIsRight) {
  WEFT_NEEDS_BUILT(WEFT_GLOO_RANK, "a libgloo-dev that integration/gloo fits");
  const TemporaryFolder folder;
  const std::string rank = " timeout 60 " WEFT_GLOO_RANK " " + folder.path();
  const Outcome outcome = run_shell(rank + " 1 2 1048576 &" + rank + " 0 2 1048576; wait $!");
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_EQ(count_of(outcome.output, "all right"), 2) << outcome.output;
}

// One address is enough for all groups of a process.
TEST(GlooUdp, AddressOfTheEnvironmentIsThatOfAllDevices) {
  WEFT_NEEDS_BUILT(WEFT_GLOO_RANK, "a libgloo-dev that integration/gloo fits");
  const TemporaryFolder folder;
  const std::string rank = " timeout 60 " WEFT_GLOO_RANK " " + folder.path();
  const Outcome outcome =
      run_shell("WEFT_NCCL_ADDRESS=127.51.7.1" + rank + " 1 2 4096 & WEFT_NCCL_ADDRESS=127.51.7.2" +
                rank + " 0 2 4096; wait $!");
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_EQ(count_of(outcome.output, "all right"), 2) << outcome.output;
}

}  // namespace
}  // namespace weft::testing
