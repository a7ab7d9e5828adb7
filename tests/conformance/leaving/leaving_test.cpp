// Owns what is left of the messages of an NCCL rank whose process has ended.
#include <algorithm>

#include "tests/conformance/run_weft.hpp"
#include "tests/support/temporary_folder.hpp"

namespace weft::testing {
namespace {

// Some of the last messages, or their acknowledgements, are lost the first time.
void run_ranks(const std::string& length) {
  for (int seed = 1; seed <= 24; ++seed) {
    const TemporaryFolder folder;
    const std::string rank =
        " " WEFT_NCCL_LEAVER " " WEFT_NCCL_PLUGIN " " + folder.path() + " " + length + " ";
    const Outcome outcome = run_weft("--device none --seed " + std::to_string(seed) +
                                         " --fault \"link: 'h*->*', loss: 0.2\" --" + rank +
                                         "sends :" + rank + "receives",
                                     100);
    EXPECT_EQ(outcome.code, 0) << "seed " << seed << ": " << outcome.output;
  }
}

TEST(NcclLeaving, WhatWasSentIsReceivedAfterItsProcessHasEnded) { run_ranks("short"); }

TEST(NcclLeaving, WhatWasReceivedIsAcknowledgedThoughItsProcessHasEnded) { run_ranks("long"); }

Outcome run_closers(const std::string& first, const std::string& network) {
  const TemporaryFolder folder;
  const std::string rank = " " WEFT_NCCL_CLOSER " " WEFT_NCCL_PLUGIN " " + folder.path() + " ";
  return run_weft("--device none " + network + " --" + rank + first + " :" + rank +
                      "sends :" + rank + "receives",
                  100);
}

// A process of which nobody hears any more has sent something to the one that closes.
TEST(NcclLeaving, WhatWasSentLastIsReceivedThoughManyConnectionsWereClosedBefore) {
  for (int seed = 1; seed <= 6; ++seed) {
    const Outcome outcome =
        run_closers("dies", "--fault \"link: 'h*->*', loss: 0.2\" --seed " + std::to_string(seed));
    EXPECT_EQ(outcome.code, 0) << "seed " << seed << ": " << outcome.output;
  }
}

// Each is the last one, and all peers have closed their ends, or answer. The shortest of five runs
// counts, because the machine may be busy.
TEST(NcclLeaving, ClosingTakesNoLongTimeWherePeersHaveClosedAsWell) {
  constexpr int kRuns = 5;
  constexpr long kLimit = 500;  // ms; half of what a process waits in all for peers that are silent
  const std::string before = "closing took ";
  long shortest = 2 * kLimit;
  for (int run = 0; run < kRuns && shortest >= kLimit; ++run) {
    const Outcome outcome = run_closers("closes", "");
    ASSERT_EQ(outcome.code, 0) << outcome.output;
    const std::size_t at = outcome.output.find(before);
    ASSERT_NE(at, std::string::npos) << outcome.output;
    shortest = std::min(shortest, std::stol(outcome.output.substr(at + before.size())));
  }
  EXPECT_LT(shortest, kLimit);
}

}  // namespace
}  // namespace weft::testing
