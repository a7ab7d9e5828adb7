// Owns the tests of programs that go around the device's hooks (bypass.cpp): they are served, with
// the doorbell trap and without.
#include "tests/conformance/run_weft.hpp"

namespace weft::testing {
namespace {

// Two ranks on one host, which find each other by files of WEFT_CASE_DIR. `environment` is that of
// the emulated device.
Outcome bypass(const std::string& environment, const std::string& program) {
  return run_shell("dir=$(mktemp -d) && chmod 777 $dir && WEFT_CASE_DIR=$dir " + environment +
                   " timeout 100 " WEFT_PROGRAM " run --per-host 2 -n 2 -- " + program +
                   "; code=$?; rm -r $dir; exit $code");
}

// Without the trap a doorbell is found by the background thread, which looks every millisecond:
// hence few turns.
TEST(Bypass, IsServedWithoutTheTrap) {
  WEFT_NEEDS_BUILT(WEFT_BYPASS, "libibverbs-dev with EFA")
  const Outcome outcome = bypass("", WEFT_BYPASS " 20");
  EXPECT_EQ(outcome.code, 0) << outcome.output;
}

// With the trap each store to a doorbell raises a signal, whose handler makes the store and sends.
// Two thousand turns are as many signals: none may get lost, or do its work twice. How fast they
// are is not asked; the program itself demands that the doorbell is watched.
TEST(Bypass, IsServedWithTheTrap) {
  WEFT_NEEDS_BUILT(WEFT_BYPASS, "libibverbs-dev with EFA")
  const Outcome outcome = bypass("WEFT_DOORBELL_TRAP=1", WEFT_BYPASS " 2000");
  EXPECT_EQ(outcome.code, 0) << outcome.output;
}

// Behind a hook the library rings its doorbell as before, so these stores are trapped, too.
TEST(Bypass, TheTrapDoesNotDisturbWhoUsesTheLibrary) {
  WEFT_NEEDS("ib_send_bw");
  const std::string command = "ib_send_bw -c SRD -x 0 -n 3000 -s 4096 -p " + own_port();
  const Outcome outcome = run_shell("WEFT_DOORBELL_TRAP=1 timeout 100 " WEFT_PROGRAM " run -- " +
                                    command + " -d {h1.dev} : " + command + " -d {h2.dev} {h1.ip}");
  EXPECT_EQ(outcome.code, 0) << outcome.output;
}

}  // namespace
}  // namespace weft::testing
