// Owns the tests with programs that use management datagrams over the soft-RoCE device: those of
// infiniband-diags, which read files or ask by LIDs, and one of ours that asks by GIDs (umad.cpp).
#include <string>

#include "tests/conformance/run_weft.hpp"

namespace weft::testing {
namespace {

const std::string kUmad = WEFT_UMAD;
constexpr const char* kQuiet = "-q --no-prefix --device rxe -- ";

TEST(Umad, IbstatShowsTheDevice) {
  WEFT_NEEDS("ibstat");
  const Outcome outcome = run_weft("-q --no-prefix --device rxe --nics 2 -- ibstat");
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  for (const char* text : {"CA 'rxe_0'", "CA 'rxe_1'", "Number of ports: 1", "State: Active",
                           "Physical state: LinkUp", "Link layer: Ethernet"}) {
    EXPECT_TRUE(outcome.says(text)) << text << "\n" << outcome.output;
  }
}

TEST(Umad, IbstatusShowsThePort) {
  WEFT_NEEDS("ibstatus");
  const Outcome outcome = run_weft(std::string(kQuiet) + "ibstatus");
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  for (const char* text : {"'rxe_0' port 1", "4: ACTIVE", "5: LinkUp", "Ethernet"}) {
    EXPECT_TRUE(outcome.says(text)) << text << "\n" << outcome.output;
  }
}

// A RoCE port has no LIDs and no subnet manager: what asks by them is refused, as by Linux.
TEST(Umad, WhatAsksByLidsIsRefused) {
  WEFT_NEEDS("ibping");
  const Outcome ping = run_weft(std::string(kQuiet) + "ibping -c 1 -L 1");
  EXPECT_TRUE(ping.says("Invalid argument")) << ping.output;
  EXPECT_TRUE(ping.says("100% packet loss")) << ping.output;
  const Outcome manager = run_weft(std::string(kQuiet) + "sminfo");
  EXPECT_NE(manager.code, 0) << manager.output;
}

// The program was run on Linux, too (docs/roce.md): what it expects is what the kernel says.
TEST(Umad, RefusalsAreLinuxs) {
  const Outcome outcome = run_weft(kQuiet + kUmad + " refusals");
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_TRUE(outcome.says("0 wrong")) << outcome.output;
}

TEST(Umad, PingsAreAnswered) {
  const Outcome outcome =
      run_weft(kQuiet + kUmad + " serve 500 : " + kUmad + " ask 500 {h1.ip6}", 100);
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_TRUE(outcome.says("answered 500")) << outcome.output;
}

// As on Linux (docs/roce.md). The ping arrives and is served; the one that asks is ended while it
// still waits, or it would print how many were answered.
TEST(Umad, AnswersByIpv4AreNotHeard) {
  const Outcome outcome =
      run_weft(kQuiet + kUmad + " serve 1 : sh -c '! timeout 3 " + kUmad + " ask 1 {h1.ip}'", 100);
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_TRUE(outcome.says("served 1")) << outcome.output;
  EXPECT_FALSE(outcome.says("answered")) << outcome.output;
}

// Of pings and of answers: the device sends a ping again, and the program those that ran out of
// tries.
TEST(Umad, PingsAreAnsweredWhereSomeAreLost) {
  const Outcome outcome =
      run_weft("--device rxe --topology " WEFT_LEAF_SPINE " --fault 'link: tor0-*, loss: 0.1' -- " +
                   kUmad + " serve 100 : " + kUmad + " ask 100 {h1.ip6}",
               100);
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_TRUE(outcome.says("answered 100")) << outcome.output;
  EXPECT_TRUE(outcome.says("(loss ")) << "nothing was lost\n" << outcome.output;
}

// A method belongs to one process of a NIC. One that is killed, here with a ping of its own under
// way, must leave it to the next.
TEST(Umad, AServerThatDiesLeavesItsMethods) {
  const Outcome outcome = run_weft(kQuiet + std::string("sh -c '") + kUmad + " die {h2.ip}; " +
                                       kUmad + " serve 20' : " + kUmad + " ask 20 {h1.ip6}",
                                   100);
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_TRUE(outcome.says("answered 20")) << outcome.output;
}

// The first server has a second's start. The other one has to be refused, and the first to go on.
TEST(Umad, TwoServersOfOneHostExcludeEachOther) {
  const Outcome outcome = run_weft(
      kQuiet + std::string("sh -c '") + kUmad + " serve 20 & sleep 1; " + kUmad +
          " serve 1 && exit 9; wait $!' : sh -c 'sleep 1; exec " + kUmad + " ask 20 {h1.ip6}'",
      100);
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_TRUE(outcome.says("no agent for pings: Invalid argument")) << outcome.output;
}

// weft knows that no NIC has this address, so write() says so at once.
TEST(Umad, NobodyIsThere) {
  const Outcome outcome = run_weft(kQuiet + kUmad + " ask 1 127.66.66.66");
  EXPECT_NE(outcome.code, 0) << outcome.output;
  EXPECT_TRUE(outcome.says("asking: Connection timed out")) << outcome.output;
}

// EFA devices have no such datagrams.
TEST(Umad, OfEfaThereIsNone) {
  const Outcome outcome =
      run_weft("-q --no-prefix --device efa -- sh -c 'test ! -e /dev/infiniband/umad0'");
  EXPECT_EQ(outcome.code, 0) << outcome.output;
}

}  // namespace
}  // namespace weft::testing
