// Tests of what a library in somebody else's program must stand: exits, forks and cancelled threads
// at bad moments, programs that close everything, fault handlers, odd paths.
#include "tests/conformance/run_weft.hpp"

namespace weft::testing {
namespace {

Outcome alone(const std::string& guest_case, const std::string& environment = "") {
  return run_shell(environment + " timeout 60 " WEFT_PROGRAM " run -q --no-prefix -- " WEFT_GUEST +
                   " " + guest_case);
}

// One after the other, in one run.
Outcome repeated(const std::string& guest_case, int times) {
  return run_shell("timeout 100 " WEFT_PROGRAM " run -q --no-prefix -- sh -c 'for i in $(seq " +
                   std::to_string(times) + "); do timeout 10 " WEFT_GUEST " " + guest_case +
                   " || exit 1; done'");
}

// Two ranks on one host, which find each other by files.
Outcome pair(const std::string& command) {
  return run_shell(
      "dir=$(mktemp -d) && chmod 777 $dir && WEFT_CASE_DIR=$dir timeout 100 " WEFT_PROGRAM
      " run -q --no-prefix --per-host 2 -n 2 -- " +
      command + "; code=$?; rm -r $dir; exit $code");
}

TEST(Ends, ExitFromASignalHandlerInTheMidstOfProgress) {
  WEFT_NEEDS_BUILT(WEFT_GUEST, "libibverbs-dev with EFA")
  const Outcome outcome = repeated("exit_in_handler", 20);
  EXPECT_EQ(outcome.code, 0) << outcome.output;
}

TEST(Ends, WhoLeavesAtOnceHasAcknowledgedWhatItGot) {
  WEFT_NEEDS_BUILT(WEFT_GUEST, "libibverbs-dev with EFA")
  const Outcome outcome = pair(
      "sh -c 'for i in 1 2 3 4 5 6 7 8; do mkdir -p $WEFT_CASE_DIR/$i && "
      "WEFT_CASE_DIR=$WEFT_CASE_DIR/$i timeout 20 " WEFT_GUEST " exit_at_once || exit 1; done'");
  EXPECT_EQ(outcome.code, 0) << outcome.output;
}

class Alone : public ::testing::TestWithParam<const char*> {};

TEST_P(Alone, Succeeds) {
  WEFT_NEEDS_BUILT(WEFT_GUEST, "libibverbs-dev with EFA")
  if (std::string(GetParam()) == "relative_paths" && run_shell("test -d /sys/class").code != 0) {
    GTEST_SKIP() << "no /sys is mounted here, for the emulated files to stand beside";
  }
  const Outcome outcome = alone(GetParam());
  EXPECT_EQ(outcome.code, 0) << outcome.output;
}

INSTANTIATE_TEST_SUITE_P(Guest, Alone,
                         ::testing::Values("cancelled_poller", "forks", "first_use", "close_all",
                                           "failed_dup", "numbers", "channels",
                                           "open_without_malloc", "relative_paths"),
                         [](const auto& test) { return std::string(test.param); });

TEST(Trap, ForgetsAQueuePairThatIsGone) {
  WEFT_NEEDS_BUILT(WEFT_GUEST, "libibverbs-dev with EFA")
  const Outcome outcome = alone("trap_forgets", "WEFT_DOORBELL_TRAP=1");
  EXPECT_EQ(outcome.code, 0) << outcome.output;
}

TEST(Trap, StandsBeforeTheProgramsOwnHandler) {
  WEFT_NEEDS_BUILT(WEFT_GUEST, "libibverbs-dev with EFA")
  const Outcome outcome = alone("trap_with_handler", "WEFT_DOORBELL_TRAP=1");
  EXPECT_EQ(outcome.code, 0) << outcome.output;
}

TEST(Memory, WithTheHooksOfUcx) {
  WEFT_NEEDS_BUILT(WEFT_GUEST, "libibverbs-dev with EFA")
  const Outcome outcome = alone("hooked_memory");
  if (outcome.code == 77) {
    GTEST_SKIP() << "this machine has no libucx0; install it to run this test";
  }
  EXPECT_EQ(outcome.code, 0) << outcome.output;
}

TEST(Events, WhoSleepsOnAChannelIsWoken) {
  WEFT_NEEDS_BUILT(WEFT_GUEST, "libibverbs-dev with EFA")
  const Outcome outcome = pair(WEFT_GUEST " event_latency");
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_TRUE(outcome.says("median")) << outcome.output;
}

}  // namespace
}  // namespace weft::testing
