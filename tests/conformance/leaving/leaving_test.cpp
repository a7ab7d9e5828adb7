// Owns what is left of the messages of an NCCL rank whose process has ended.
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

}  // namespace
}  // namespace weft::testing
