// Owns the tests with stock verbs programs on the EFA device: rdma-core's utilities and its own
// tests, and perftest.
#include <algorithm>
#include <iterator>
#include <regex>

#include "tests/conformance/run_weft.hpp"

namespace weft::testing {
namespace {

TEST(Verbs, DevicesAreListed) {
  WEFT_NEEDS("ibv_devices");
  const Outcome outcome = run_weft("--nics 2 -- ibv_devices");
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_TRUE(outcome.says("efa_0") && outcome.says("efa_1")) << outcome.output;
}

TEST(Verbs, DevinfoSaysEmulated) {
  WEFT_NEEDS("ibv_devinfo");
  const Outcome outcome = run_weft("--device efa:read -- ibv_devinfo -v");
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_TRUE(outcome.says("EMULATED by weft, profile read")) << outcome.output;
  EXPECT_TRUE(outcome.says("PORT_ACTIVE")) << outcome.output;
}

// unprivileged_test.cpp does the same with all programs; this one also has a working directory in
// which it cannot write.
TEST(Verbs, UnprivilegedUsersNeedNothing) {
  WEFT_NEEDS("ibv_devinfo");
  WEFT_NEEDS("setpriv");
  if (geteuid() != 0) {
    GTEST_SKIP() << "only root can become somebody else; the other tests run unprivileged already";
  }
  const Outcome outcome = run_shell(
      "cd / && TMPDIR=/tmp XDG_RUNTIME_DIR= timeout 30 setpriv --reuid 65534 --regid 65534 "
      "--clear-groups --bounding-set -all --no-new-privs " WEFT_PROGRAM " run -- ibv_devinfo");
  EXPECT_EQ(outcome.code, 0) << outcome.output;
}

struct Perftest {
  const char* name;
  const char* device;
  const char* program;
  const char* arguments;
};
class Perf : public ::testing::TestWithParam<Perftest> {};

TEST_P(Perf, BothEndsSucceed) {
  if (!has(GetParam().program)) {
    GTEST_SKIP() << "this machine has no perftest; install it to run this test";
  }
  const std::string command = std::string(GetParam().program) + " -d {h1.dev} -x 0 -p " +
                              own_port() + " " + GetParam().arguments;
  std::string other = command;
  other.replace(other.find("{h1.dev}"), 8, "{h2.dev}");
  const Outcome outcome = run_weft(std::string("--device ") + GetParam().device + " -- " + command +
                                   " : " + other + " {h1.ip}");
  EXPECT_EQ(outcome.code, 0) << outcome.output;
}

INSTANTIATE_TEST_SUITE_P(
    All, Perf,
    ::testing::Values(
        Perftest{"SendLatencySrd", "efa", "ib_send_lat", "-c SRD -n 1000 -s 64"},
        Perftest{"SendLatencyUd", "efa", "ib_send_lat", "-c UD -n 1000 -s 64"},
        Perftest{"SendBandwidthSrd", "efa", "ib_send_bw", "-c SRD -n 2000 -s 8192"},
        // Every work request of an EFA device has to ask for its completion.
        Perftest{"SendBandwidthUd", "efa", "ib_send_bw", "-c UD -n 1000 -s 4096 -Q 1"},
        Perftest{"ReadLatencySrd", "efa:read", "ib_read_lat", "-c SRD -n 500 -s 64"},
        Perftest{"ReadBandwidthSrd", "efa:read", "ib_read_bw", "-c SRD -n 200 -s 1048576"}),
    [](const auto& test) { return std::string(test.param.name); });

// As by a real EFA device, which has SRD and UD only.
TEST(Verbs, ReliableConnectionsAreRefused) {
  WEFT_NEEDS("ibv_rc_pingpong");
  const Outcome outcome = run_weft("-- ibv_rc_pingpong -d {h1.dev} -g 0 -p " + own_port(), 10);
  EXPECT_EQ(outcome.code, 1) << outcome.output;
  EXPECT_TRUE(outcome.says("Couldn't create QP")) << outcome.output;
}

// rdma-core's own tests, as Debian ships them: compressed and without write permission.
Outcome run_pyverbs(const std::string& modules) {
  return run_weft(
      "-- sh -c 'dir=$(mktemp -d) && cp -r /usr/share/doc/rdma-core/tests $dir && "
      "gunzip -f $dir/tests/*.gz && cd $dir/tests && "
      "PYTHONDONTWRITEBYTECODE=1 /usr/bin/python3 run_tests.py -v " +
      modules + "; code=$?; rm -r $dir; exit $code'");
}

// How many tests a module has, and how many of them skip themselves on an EFA device, as counted
// with rdma-core 44. Later versions may have more of both. A test that is skipped counts as passed
// in the suite's own verdict, so every skip has to have a reason that is known.
struct Module {
  const char* name;
  int tests;
  int skipped;
};
class Pyverbs : public ::testing::TestWithParam<Module> {};

// No EFA device has what these ask for, or no machine without a GPU. docs/kernel.md lists them.
constexpr const char* kGoodReasons[] = {
    "Create QP type 2 is not supported",  // RC
    "Create (RC|UC) QP with(out)? (extended )?attrs is not supported",
    "Extended QP is not supported on this device",  // of RC, UC, XRC
    "Create XRCD is not supported",
    "To Create RAW QP must be done by root on Ethernet link layer",
    "Link layer of port=1 is Unspecified , skip RoCE test",
    "All gid indices populated, cannot check bad flow",  // there is one
    "Resize CQ is not supported",
    "Device memory is not supported",
    "Reg MR with MW access is not supported",
    "Create memory window of type 3 is not supported",
    "Create custom mr with additional access flags (18|258) is not supported",  // remote atomics
    "Reg MR with access \\(9\\) is not supported",                              // and so here
    "Device /dev/dri/renderD128 is not present",
    "Allocating dmabuf is not supported by .*",
};

// The suite draws the flags of a queue pair by lot, and the EFA library refuses some of them. Such
// a skip comes and goes from run to run, so it is not counted.
constexpr const char* kByChance = "Create UD QP with(out)? extended attrs is not supported";

bool is_good_reason(const std::string& reason) {
  return std::any_of(std::begin(kGoodReasons), std::end(kGoodReasons),
                     [&](const char* good) { return std::regex_match(reason, std::regex(good)); });
}

// The number in what the suite prints at its end, which `pattern` captures; 0 if it is not there.
int number(const std::string& text, const std::string& pattern) {
  std::smatch found;
  return std::regex_search(text, found, std::regex(pattern)) ? std::stoi(found[1]) : 0;
}

TEST_P(Pyverbs, PassesOrSkipsWhereEfaDoes) {
  if (run_shell("/usr/bin/python3 -c 'import pyverbs.device'").code != 0 ||
      run_shell("test -d /usr/share/doc/rdma-core/tests").code != 0) {
    GTEST_SKIP() << "this machine has no python3-pyverbs, or not rdma-core's tests";
  }
  const auto& [name, tests, skipped] = GetParam();
  const Outcome outcome = run_pyverbs(std::string("tests.test_") + name);
  ASSERT_EQ(outcome.code, 0) << outcome.output;
  const int did_run = number(outcome.output, "Ran ([0-9]+) tests? in");
  int did_skip = number(outcome.output, "OK \\(skipped=([0-9]+)\\)");
  // Before it there may be lines of another kind.
  const std::regex reason("(?:\\.\\.\\.|\\[h1\\]) skipped ['\"](.*)['\"]");
  int reasons = 0;
  for (std::sregex_iterator i(outcome.output.begin(), outcome.output.end(), reason), end; i != end;
       ++i) {
    if (std::regex_match((*i)[1].str(), std::regex(kByChance))) {
      --did_skip;
    } else {
      EXPECT_TRUE(is_good_reason((*i)[1])) << (*i)[1];
      ++reasons;
    }
  }
  // The suite counts its skips itself: a line that the pattern above does not know would be
  // missing.
  EXPECT_EQ(reasons, did_skip) << outcome.output;
  if (run_shell("dpkg-query -W -f '${Version}' python3-pyverbs").output.starts_with("44.")) {
    EXPECT_EQ(did_run, tests) << outcome.output;
    EXPECT_EQ(did_skip, skipped) << outcome.output;
  } else {
    EXPECT_GE(did_run, tests) << outcome.output;
    EXPECT_TRUE(skipped > 0 || did_skip == 0) << outcome.output;
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, Pyverbs,
    ::testing::Values(Module{"efadv", 5, 0}, Module{"efa_srd", 11, 0}, Module{"addr", 3, 1},
                      Module{"cq", 4, 1}, Module{"cq_events", 2, 1}, Module{"cqex", 5, 2},
                      Module{"device", 22, 10}, Module{"fork", 1, 0}, Module{"mr", 27, 26},
                      Module{"pd", 4, 0}, Module{"qp", 26, 15}, Module{"qpex", 20, 13},
                      Module{"relaxed_ordering", 3, 2}, Module{"shared_pd", 1, 1}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace weft::testing
