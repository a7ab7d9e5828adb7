// Owns what is left of the short messages of an NCCL rank whose process has ended.
#include "tests/conformance/run_weft.hpp"
#include "tests/support/temporary_folder.hpp"

namespace weft::testing {
namespace {

// Some of the last messages, or their acknowledgements, are lost the first time.
TEST(NcclLeaving, WhatWasSentIsReceivedAfterItsProcessHasEnded) {
  for (int seed = 1; seed <= 8; ++seed) {
    const TemporaryFolder folder;
    const std::string rank = " " WEFT_NCCL_LEAVER " " WEFT_NCCL_PLUGIN " " + folder.path() + " ";
    const Outcome outcome = run_weft("--device none --seed " + std::to_string(seed) +
                                         " --fault \"link: 'h*->*', loss: 0.1\" --" + rank +
                                         "sends :" + rank + "receives",
                                     100);
    EXPECT_EQ(outcome.code, 0) << "seed " << seed << ": " << outcome.output;
  }
}

}  // namespace
}  // namespace weft::testing
