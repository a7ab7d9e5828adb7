// Tests that programs which go around the verbs library are served, with the doorbell trap and
// without.
#include "tests/conformance/run_weft.hpp"

namespace weft::testing {
namespace {

Outcome bypass(const std::string& environment, const std::string& program) {
  return run_shell("dir=$(mktemp -d) && chmod 777 $dir && WEFT_CASE_DIR=$dir " + environment +
                   " timeout 100 " WEFT_PROGRAM " run --per-host 2 -n 2 -- " + program +
                   "; code=$?; rm -r $dir; exit $code");
}

// Without the trap a doorbell is found by the background thread, which looks every millisecond.
TEST(Bypass, IsServedSlowly) {
  WEFT_NEEDS_BUILT(WEFT_BYPASS, "libibverbs-dev with EFA")
  const Outcome outcome = bypass("", WEFT_BYPASS " 20");
  EXPECT_EQ(outcome.code, 0) << outcome.output;
}

TEST(Bypass, RingsAtOnceWithTheTrap) {
  WEFT_NEEDS_BUILT(WEFT_BYPASS, "libibverbs-dev with EFA")
  const Outcome outcome = bypass("WEFT_DOORBELL_TRAP=1", WEFT_BYPASS " 2000");
  EXPECT_EQ(outcome.code, 0) << outcome.output;
}

TEST(Bypass, TheTrapDoesNotDisturbWhoUsesTheLibrary) {
  WEFT_NEEDS("ib_send_bw");
  const std::string command = "ib_send_bw -c SRD -x 0 -n 3000 -s 4096 -p " + own_port();
  const Outcome outcome = run_shell("WEFT_DOORBELL_TRAP=1 timeout 100 " WEFT_PROGRAM " run -- " +
                                    command + " -d {h1.dev} : " + command + " -d {h2.dev} {h1.ip}");
  EXPECT_EQ(outcome.code, 0) << outcome.output;
}

}  // namespace
}  // namespace weft::testing
