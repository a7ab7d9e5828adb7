// Tests with stock verbs programs: rdma-core's utilities and suites, perftest.
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

class Pyverbs : public ::testing::TestWithParam<const char*> {};

TEST_P(Pyverbs, Passes) {
  if (run_shell("/usr/bin/python3 -c 'import pyverbs.device'").code != 0 ||
      run_shell("test -d /usr/share/doc/rdma-core/tests").code != 0) {
    GTEST_SKIP() << "this machine has no python3-pyverbs, or not rdma-core's tests";
  }
  const Outcome outcome = run_pyverbs(GetParam());
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_TRUE(outcome.says("OK")) << outcome.output;
}

INSTANTIATE_TEST_SUITE_P(All, Pyverbs,
                         ::testing::Values("tests.test_efadv", "tests.test_efa_srd",
                                           "tests.test_addr", "tests.test_cq",
                                           "tests.test_cq_events", "tests.test_cqex",
                                           "tests.test_device", "tests.test_fork", "tests.test_mr",
                                           "tests.test_pd", "tests.test_qp", "tests.test_qpex",
                                           "tests.test_relaxed_ordering", "tests.test_shared_pd"),
                         [](const auto& test) { return std::string(test.param).substr(11); });

}  // namespace
}  // namespace weft::testing
