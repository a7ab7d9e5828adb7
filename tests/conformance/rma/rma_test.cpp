// Owns remote memory access through the NCCL plugin, loaded as NCCL loads it, on emulated networks.
#include <filesystem>

#include "tests/conformance/run_weft.hpp"
#include "tests/support/temporary_folder.hpp"

namespace weft::testing {
namespace {

// One rank on each emulated host.
Outcome run_ranks(int ranks, int version, const std::string& options, const std::string& rest = "",
                  const std::string& environment = "") {
  const TemporaryFolder folder;
  std::string words;
  for (int i = 0; i < ranks; ++i) {
    words += std::string(i == 0 ? " -- env " : " : env ") + environment +
             " " WEFT_RMA_RANK " " WEFT_NCCL_PLUGIN " " + std::to_string(version) + " " +
             folder.path() + "/meeting " + std::to_string(i) + " " + std::to_string(ranks) + " " +
             rest;
  }
  return run_weft("--device none " + options + words, 100);
}

int count_of(const std::string& text, const std::string& part) {
  int count = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) {
    ++count;
  }
  return count;
}

TEST(NcclRma, EveryByteIsRightWhereNothingGoesWrong) {
  for (const int version : {13, 14}) {
    for (const int ranks : {1, 2, 3, 8}) {
      SCOPED_TRACE(std::to_string(ranks) + " ranks, v" + std::to_string(version));
      const Outcome outcome = run_ranks(ranks, version, "");
      EXPECT_EQ(outcome.code, 0) << outcome.output;
      EXPECT_EQ(count_of(outcome.output, "all right"), ranks) << outcome.output;
    }
  }
}

TEST(NcclRma, EveryByteIsRightUnderLossAndDisorder) {
  for (const int ranks : {2, 4}) {
    const Outcome outcome =
        run_ranks(ranks, 14,
                  "--fault \"link: 'h*->*', loss: 0.01, reordering: 0.1, reorder_delay: 50us\" "
                  "--fault \"link: 'h1->*', duplication: 0.02\"");
    EXPECT_EQ(outcome.code, 0) << outcome.output;
    EXPECT_EQ(count_of(outcome.output, "all right"), ranks) << outcome.output;
  }
}

TEST(NcclRma, KilledRankIsToldToAllOthers) {
  const Outcome outcome = run_ranks(3, 14, "--grace 60", "dies", "WEFT_NCCL_TIMEOUT=1");
  EXPECT_NE(outcome.code, 0);
  EXPECT_EQ(count_of(outcome.output, "a peer is gone"), 2) << outcome.output;
}

}  // namespace
}  // namespace weft::testing
