// Tests of hosts with several NICs: all of them carry traffic, and one that goes down takes no
// other with it.
#include "tests/conformance/json_lines.hpp"
#include "tests/conformance/run_weft.hpp"

namespace weft::testing {
namespace {

// A bandwidth test on each of four rails at once, of so many messages, and on rail 1 of so many.
// What each client said, and its exit code, is printed. The clients end with the code of rail 1.
Outcome run_rails(const std::string& options, const std::string& messages,
                  const std::string& on_rail_1) {
  const std::string port = std::to_string(std::stoi(own_port()) / 4 * 4);
  const std::string each =
      "for i in 0 1 2 3; do n=" + messages + "; test $i = 1 && n=" + on_rail_1 +
      "; (timeout --foreground 60 ib_send_bw -c SRD -x 0 -s 4096 -n $n -d efa_$i -p $((" + port +
      " + i)) ";
  return run_weft("--json --no-prefix --grace 1 --rails 4 " + options + " -- sh -c '" + each +
                      ">/dev/null 2>&1) & done; wait; true' : sh -c 'sleep 0.5; " + each +
                      "{h1.ip} 2>&1; code=$?; echo rail $i: $code; exit $code) & test $i = 1 && "
                      "one=$!; done; wait $one; code=$?; wait; exit $code'",
                  90);
}

std::uint64_t delivered(const Outcome& outcome, const std::string& nic) {
  for (const auto& device : json_lines(outcome.output, "device")) {
    if (device.at("device") == nic && device.at("host") == "h1") {
      return device.at("counters").at("delivered_pkts");
    }
  }
  return 0;
}

TEST(Rails, AllCarryTraffic) {
  WEFT_NEEDS("ib_send_bw");
  const Outcome outcome = run_rails("", "2000", "2000");
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  for (const char* const nic : {"efa_0", "efa_1", "efa_2", "efa_3"}) {
    EXPECT_GE(delivered(outcome, nic), 2000U) << nic << "\n" << outcome.output;
  }
  for (const char* const rail : {"rail 0: 0", "rail 1: 0", "rail 2: 0", "rail 3: 0"}) {
    EXPECT_TRUE(outcome.says(rail)) << outcome.output;
  }
}

TEST(Rails, OneThatGoesDownTakesNobodyWithIt) {
  WEFT_NEEDS("ib_send_bw");
  const Outcome outcome =
      run_rails("--fault 'link: h2-fabric#1, down: true, at: 2500ms'", "20000", "50000000");
  for (const char* const rail : {"rail 0: 0", "rail 2: 0", "rail 3: 0"}) {
    EXPECT_TRUE(outcome.says(rail)) << outcome.output;
  }
  // Its client was told that the peer is unresponsive (13) or unreachable (15), and ended by
  // itself.
  EXPECT_TRUE(outcome.says("syndrom 0xd") || outcome.says("syndrom 0xf")) << outcome.output;
  EXPECT_TRUE(outcome.says("rail 1: ")) << outcome.output;
  EXPECT_NE(outcome.code, 0) << outcome.output;
  EXPECT_NE(outcome.code, 124) << "a hang\n" << outcome.output;
  EXPECT_LT(outcome.code, 128) << "a crash\n" << outcome.output;
  EXPECT_GT(dropped(outcome.output, "link_down"), 0U) << outcome.output;
}

}  // namespace
}  // namespace weft::testing
