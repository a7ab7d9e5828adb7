// Tests of hosts with several NICs: all of them carry traffic, and one that goes down takes nobody
// with it.
#include "tests/conformance/run_weft.hpp"

namespace weft::testing {
namespace {

// A bandwidth test on each of four rails at once, of so many messages, and on rail 1 of so many.
// What each client's exit code was is printed.
Outcome run_rails(const std::string& options, const std::string& messages,
                  const std::string& on_rail_1) {
  const std::string port = std::to_string(std::stoi(own_port()) / 4 * 4);
  const std::string each =
      "for i in 0 1 2 3; do n=" + messages + "; test $i = 1 && n=" + on_rail_1 +
      "; (timeout 30 ib_send_bw -c SRD -x 0 -s 4096 -n $n -d efa_$i -p $((" + port + " + i)) ";
  return run_weft("--json --no-prefix --grace 30 --rails 4 " + options + " -- sh -c '" + each +
                      ">/dev/null 2>&1) & done; wait; true' : sh -c 'sleep 0.5; " + each +
                      "{h1.ip} >/dev/null 2>&1; echo rail $i: $?) & done; wait'",
                  60);
}

double delivered(const Outcome& outcome, const std::string& nic) {
  const std::size_t line = outcome.output.find("{\"device\":\"" + nic + "\",\"host\":\"h1\"");
  const std::string key = "\"delivered_pkts\":";
  const std::size_t at = outcome.output.find(key, line);
  return line == std::string::npos || at == std::string::npos
             ? -1
             : std::atof(outcome.output.c_str() + at + key.size());
}

TEST(Rails, AllCarryTraffic) {
  WEFT_NEEDS("ib_send_bw");
  const Outcome outcome = run_rails("", "2000", "2000");
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  for (const char* const nic : {"efa_0", "efa_1", "efa_2", "efa_3"}) {
    EXPECT_GE(delivered(outcome, nic), 2000) << nic << "\n" << outcome.output;
  }
  for (const char* const rail : {"rail 0: 0", "rail 1: 0", "rail 2: 0", "rail 3: 0"}) {
    EXPECT_TRUE(outcome.says(rail)) << outcome.output;
  }
}

TEST(Rails, OneThatGoesDownTakesNobodyWithIt) {
  WEFT_NEEDS("ib_send_bw");
  const Outcome outcome =
      run_rails("--fault 'link: h2-fabric#1, down: true, at: 1500ms'", "20000", "5000000");
  for (const char* const rail : {"rail 0: 0", "rail 2: 0", "rail 3: 0"}) {
    EXPECT_TRUE(outcome.says(rail)) << outcome.output;
  }
  EXPECT_TRUE(outcome.says("rail 1: ")) << outcome.output;
  EXPECT_FALSE(outcome.says("rail 1: 0")) << outcome.output;
}

}  // namespace
}  // namespace weft::testing
