// Owns the tests of hosts with several NICs, each on a network of its own (rails): all of them
// carry traffic, and one that goes down takes no other with it.
#include "tests/conformance/json_lines.hpp"
#include "tests/conformance/run_weft.hpp"

namespace weft::testing {
namespace {

// Runs a bandwidth test on each of four rails at once, with `messages` messages, but `on_rail_1` on
// rail 1. Prints what each client said, and its exit code; the run ends with the code of rail 1's
// client. A server that fails does not count (`true`), or `weft run` would end the clients as well.
// The clients start when one server listens; the half second is for the three others.
Outcome run_rails(const std::string& options, const std::string& messages,
                  const std::string& on_rail_1) {
  // Of four ports in a row.
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

// Packets that the NIC of h1, where the servers run, has received.
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

// Rail 1 has far more messages than it can send until its link goes down after 2.5 s.
TEST(Rails, OneThatGoesDownTakesNobodyWithIt) {
  WEFT_NEEDS("ib_send_bw");
  const Outcome outcome =
      run_rails("--fault 'link: h2-fabric#1, down: true, at: 2500ms'", "20000", "50000000");
  for (const char* const rail : {"rail 0: 0", "rail 2: 0", "rail 3: 0"}) {
    EXPECT_TRUE(outcome.says(rail)) << outcome.output;
  }
  // The client of rail 1 was told that its peer is unresponsive (13) or unreachable (15), and ended
  // by itself.
  EXPECT_TRUE(outcome.says("syndrom 0xd") || outcome.says("syndrom 0xf")) << outcome.output;
  EXPECT_TRUE(outcome.says("rail 1: ")) << outcome.output;
  EXPECT_NE(outcome.code, 0) << outcome.output;
  EXPECT_NE(outcome.code, 124) << "a hang\n" << outcome.output;
  EXPECT_LT(outcome.code, 128) << "a crash\n" << outcome.output;
  EXPECT_GT(dropped(outcome.output, "link_down"), 0U) << outcome.output;
}

}  // namespace
}  // namespace weft::testing
