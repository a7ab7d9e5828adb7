// Owns what the weft program promises about its figures: output that is lost, text that is not
// UTF-8, processes that measure, and what is refused before. A figure that was not measured or not
// written must never look like a good one.
#include "tests/e2e/program_fixture.hpp"

namespace weft::testing {
namespace {

// Ends in a blink: for tests of what is done with a result, whatever it is.
constexpr const char* kTiny =
    "name: tiny\ntopology: {generator: leaf-spine, hosts: 4, hosts_per_leaf: 2}\n"
    "traffic: [{kind: incast, senders: 2, bytes: 20000}]\nbounds: {tail_fct_us: 100}\n";
// Takes minutes: for tests that must end before it does.
constexpr const char* kSlow =
    "name: slow\ntopology: {generator: leaf-spine, hosts: 16, hosts_per_leaf: 4}\n"
    "traffic: {kind: permutation, bytes: 10GB}\ntime_limit: 100s\n";
constexpr const char* kPerf = "perf --rounds 1 --seconds 0.02 --op write --size 64 --json";

TEST_F(ProgramTest, FiguresThatAreLostAreAFailure) {
  write("s.yaml", kTiny);
  for (const std::string arguments :
       {"sim s.yaml", "sim s.yaml --json", "sim s.yaml --json --repeat 3", kPerf, "swarm --seeds 1",
        "sim --list"}) {
    const Outcome outcome = weft(arguments + " >/dev/full");
    EXPECT_EQ(outcome.code, 1) << arguments << ": " << outcome.output;
    EXPECT_TRUE(outcome.says("standard output: No space left")) << outcome.output;
  }
}

TEST_F(ProgramTest, AReaderThatLeftEndsTheCommandAsTheSignalWould) {
  write("s.yaml", kTiny);
  for (const std::string arguments :
       {"sim s.yaml --json", "sim s.yaml --json --repeat 3", "sim s.yaml", kPerf}) {
    // It is gone for certain when writing has failed.
    run_shell(
        "cd " + directory_ +
        " && { trap '' PIPE; while echo there 2>/dev/null; do :; done; timeout 60 " WEFT_PROGRAM
        " " +
        arguments + "; echo $? >code; } | true");
    // 128 + SIGPIPE, which a shell takes for the quiet end of a pipeline.
    EXPECT_EQ(read("code"), "141\n") << arguments;
  }
}

// The result of the first one cannot be written: the second one's is not waited for.
TEST_F(ProgramTest, SimulationsEndWhenTheirResultsCannotBeWritten) {
  write("s.yaml", kTiny);
  write("slow.yaml", kSlow);
  // After 50 seconds `timeout` would end it, with another code.
  const Outcome outcome = weft("sim s.yaml slow.yaml --json --jobs 2 >/dev/full", 50);
  EXPECT_EQ(outcome.code, 1) << outcome.output;
}

TEST_F(ProgramTest, SimulationsDoNotOutliveTheirCommand) {
  write("slow.yaml", kSlow);
  const Outcome outcome = run_shell(
      "cd " + directory_ +
      "; timeout 200 " WEFT_PROGRAM
      " sim slow.yaml --repeat 2 --jobs 2 --json >/dev/null & "
      "for i in $(seq 400); do weft=$(pgrep -P $!) && children=$(pgrep -P $weft) && "
      "test $(echo $children | wc -w) = 2 && break; sleep 0.05; done; kill -KILL $weft; "
      "for i in $(seq 400); do left=0; for c in $children; do "
      "grep -qs '^State:.[^Z]' /proc/$c/status && left=1; done; test $left = 0 && break; "
      "sleep 0.05; done; echo children: $children left: $left; kill -KILL $children 2>/dev/null");
  EXPECT_TRUE(outcome.says("children: ") && outcome.says("left: 0")) << outcome.output;
  EXPECT_FALSE(outcome.says("children: left")) << outcome.output;
}

TEST_F(ProgramTest, TextThatIsNotUtf8IsNoCrash) {
  write("u.yaml", std::string(kTiny).replace(0, 10, "name: 't\xFFy'"));
  const Outcome one = weft("sim u.yaml --json");
  EXPECT_EQ(one.code, 0) << one.output;
  EXPECT_EQ(objects(one.output).size(), 1U) << one.output;
  EXPECT_EQ(objects(weft("sim u.yaml --json --repeat 2").output).size(), 2U);
  up();
  const Outcome capture = weft("capture " + name_ + " \"$(printf 'x\\377.pcapng')\"");
  EXPECT_EQ(capture.code, 1) << capture.output;
  EXPECT_TRUE(capture.says("UTF-8") && !capture.says("json.exception")) << capture.output;
  EXPECT_TRUE(weft("capture " + name_).says("no capture is running"));
}

TEST_F(ProgramTest, AMissedBoundSaysOnWhichSideOfTheLimitItIs) {
  write("s.yaml", kTiny);
  const Outcome outcome = weft("sim s.yaml --repeat 2 --set 'bounds={least_jain: 1}'");
  EXPECT_EQ(outcome.code, 1) << outcome.output;
  EXPECT_TRUE(outcome.says("FAIL Jain index ") && outcome.says(" < 1\n")) << outcome.output;
  EXPECT_TRUE(weft("sim s.yaml --repeat 2 --set bounds.tail_fct_us=1").says(" > 1\n"));
}

TEST_F(ProgramTest, WhatWasNotMeasuredIsNoZero) {
  // With its only link down nothing is ever received: there is no latency, and 0 us would be a
  // record.
  const std::string dead = " --fault 'link: h1-fabric, down: true'";
  const Outcome outcome = weft(kPerf + dead);
  EXPECT_EQ(outcome.code, 1) << outcome.output;
  const auto lines = objects(outcome.output);
  ASSERT_EQ(lines.size(), 1U) << outcome.output;
  EXPECT_TRUE(lines[0]["latency_us_p50"].is_null()) << lines[0];
  EXPECT_TRUE(lines[0]["latency_us_p99"].is_null()) << lines[0];
}

TEST_F(ProgramTest, FaultsThatMakeNoSenseAreRefused) {
  up();
  const auto refused = [&](const std::string& fault, const char* why) {
    const Outcome outcome = weft("fault " + name_ + " '" + fault + "'");
    EXPECT_EQ(outcome.code, 1) << fault << ": " << outcome.output;
    EXPECT_TRUE(outcome.says(why)) << fault << ": " << outcome.output;
  };
  refused("link: h1->fabric, loss: [1,2]", "loss: expected a number");
  refused("link: [h1->fabric], loss: 1", "link: expected");
  refused("link: h1-*", "nothing happens to the link: say one of down, loss,");
  // Text that refers to itself would be expanded for ever.
  refused("a: &x {b: *x}", "in one another");
  refused("a: &x [*x]", "in one another");
  refused("link: h1->fabric, loss: 0.1, loss: 0.5", "'loss' is here a second time");
  refused("link: h1->fabric, [loss]: 0.1", "a key must be a plain word");
}

TEST_F(ProgramTest, SocketsOfPortsAreWhereTheCommandIs) {
  up("--port dgram:a.sock,b.sock");
  EXPECT_TRUE(std::filesystem::is_socket(directory_ + "/a.sock"));
}

TEST_F(ProgramTest, ASwarmMakesDoWithTheThreadsThatItGets) {
  WEFT_NEEDS_A_PLAIN_BUILD("the sanitizer wants terabytes of addresses");
  // Of stacks of one gigabyte few have room.
  const std::string few = "ulimit -s 1000000 && ulimit -v 8000000 && timeout 60 " WEFT_PROGRAM " ";
  if (run_shell(few + "--version").code != 0) {
    GTEST_SKIP() << "this machine does not allow other limits of stacks and addresses";
  }
  const Outcome outcome = run_shell(few + "swarm --seeds 20 --threads 2000 --json");
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  // It would not have had a use for more than one for each seed.
  EXPECT_TRUE(outcome.says("threads instead of 20:")) << outcome.output;
  const auto lines = objects(outcome.output);
  ASSERT_EQ(lines.size(), 1U) << outcome.output;
  EXPECT_EQ(lines[0], objects(weft("swarm --seeds 20 --json").output).at(0));
}

}  // namespace
}  // namespace weft::testing
