// Owns what is left of the messages of an NCCL rank whose process has ended.
#include "tests/conformance/json_lines.hpp"
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

// All peers have closed their ends, or answer. A process that is not told so asks seven times those
// that are gone, and each question meets nobody.
TEST(NcclLeaving, NobodyIsAskedWhoHasSaidThatItLeaves) {
  constexpr std::uint64_t kQuestions = 7;
  const Outcome outcome = run_closers("closes", "--json");
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  ASSERT_EQ(json_lines(outcome.output, "network").size(), 1U) << outcome.output;
  EXPECT_LT(dropped(outcome.output, "no_process"), kQuestions) << outcome.output;
}

}  // namespace
}  // namespace weft::testing
