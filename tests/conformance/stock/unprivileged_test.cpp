// Owns the tests that stock programs need no privilege: all of them run as uid nobody, without
// capabilities, and without a way to get any back.
#include <filesystem>

#include "tests/conformance/run_weft.hpp"

namespace weft::testing {
namespace {

// One program, and how it must end. Those that are refused are here as well: a refusal must not
// depend on privilege, either.
struct Unprivileged {
  const char* name;
  const char* program;    // or other file that has to be there; empty: it could not be built
  const char* arguments;  // of weft run; PORT stands for a free port
  int code = 0;
  const char* says = "";
};
class Nobody : public ::testing::TestWithParam<Unprivileged> {};

TEST_P(Nobody, RunsIt) {
  const Unprivileged& test = GetParam();
  if (*test.program == '\0') {
    GTEST_SKIP()
        << "this tree was configured without libfabric-dev; install it and configure again";
  }
  if (!has(test.program) && !std::filesystem::exists(test.program)) {
    GTEST_SKIP() << "this machine has no " << test.program << "; install it to run this test";
  }
  WEFT_NEEDS("setpriv");
  if (geteuid() != 0) {
    GTEST_SKIP() << "only root can become somebody else; the other tests run unprivileged already";
  }
  if (std::string(test.name).starts_with("Mpi")) {
    WEFT_NEEDS_BUILT(WEFT_COLLECTIVES, "libopenmpi-dev")
  }
  std::string arguments = test.arguments;
  const std::string port = own_port();
  for (std::size_t at; (at = arguments.find("PORT")) != std::string::npos;) {
    arguments.replace(at, 4, port);
  }
  const Outcome outcome = run_shell(
      // With no runtime directory and no home of the user's, as services and containers often have
      // none. The working directory is the only place to write, beside /tmp.
      "dir=$(mktemp -d) && chmod 777 $dir && cd $dir && TMPDIR=/tmp XDG_RUNTIME_DIR= HOME=$dir "
      "WEFT_CASE_DIR=$dir OMPI_MCA_orte_tmpdir_base=$dir "
      "timeout 150 setpriv --reuid 65534 --regid 65534 --clear-groups --bounding-set -all "
      "--no-new-privs " WEFT_PROGRAM " run " +
      arguments + "; code=$?; cd /; rm -r $dir; exit $code");
  EXPECT_EQ(outcome.code, test.code) << outcome.output;
  EXPECT_TRUE(outcome.says(test.says)) << outcome.output;
}

// How each family of programs is called: the first is the server, and the second is told where that
// is.
#define SRD(options) "-c SRD -x 0 -p PORT -n 1000 " options
#define PERFTEST(program, options) \
  "-- " program " -d {h1.dev} " options " : " program " -d {h2.dev} " options " {h1.ip}"
#define PINGPONG(options)                                  \
  "-- fi_pingpong -p efa -c -S all -I 10 -B PORT " options \
  " : fi_pingpong -p efa -c -S all -I 10 -P PORT " options " {h1.ip}"

INSTANTIATE_TEST_SUITE_P(
    All, Nobody,
    ::testing::Values(
        Unprivileged{"Devices", "ibv_devices", "-- ibv_devices", 0, "efa_0"},
        Unprivileged{"Devinfo", "ibv_devinfo", "-- ibv_devinfo -v", 0, "PORT_ACTIVE"},
        Unprivileged{"SendLatency", "ib_send_lat", PERFTEST("ib_send_lat", SRD(""))},
        Unprivileged{"SendLatencyUd", "ib_send_lat",
                     PERFTEST("ib_send_lat", "-c UD -x 0 -p PORT -n 1000")},
        Unprivileged{"SendBandwidth", "ib_send_bw", PERFTEST("ib_send_bw", SRD("-s 8192"))},
        Unprivileged{"SendBandwidthUd", "ib_send_bw",
                     PERFTEST("ib_send_bw", "-c UD -x 0 -p PORT -n 1000 -Q 1")},
        Unprivileged{"SendBothWays", "ib_send_bw", PERFTEST("ib_send_bw", SRD("-s 4096 -b"))},
        Unprivileged{"SendManyQueuePairs", "ib_send_bw", PERFTEST("ib_send_bw", SRD("-q 16"))},
        Unprivileged{"ReadLatency", "ib_read_lat",
                     "--device efa:read " PERFTEST("ib_read_lat", SRD(""))},
        Unprivileged{"ReadBandwidth", "ib_read_bw",
                     "--device efa:read " PERFTEST("ib_read_bw", SRD("-s 1048576"))},
        Unprivileged{"DatagramPingpong", "ibv_ud_pingpong",
                     "-- ibv_ud_pingpong -d {h1.dev} -g 0 -p PORT : ibv_ud_pingpong -d {h2.dev} "
                     "-g 0 -p PORT {h1.ip}"},
        Unprivileged{"Info", "fi_info", "-- fi_info -p efa", 0, "FI_PROTO_EFA"},
        Unprivileged{"Rdm", "fi_pingpong", PINGPONG("-e rdm")},
        Unprivileged{"Dgram", "fi_pingpong", PINGPONG("-e dgram")},
        Unprivileged{"Pyverbs", "/usr/share/doc/rdma-core/tests",
                     "-- sh -c 'cp -r /usr/share/doc/rdma-core/tests . && "
                     "gunzip -f tests/*.gz && cd tests && PYTHONDONTWRITEBYTECODE=1 "
                     "/usr/bin/python3 run_tests.py -v tests.test_efa_srd 2>&1 | tee said; "
                     // Newer ones have 14.
                     "grep -q \"Ran 1[14] tests\" said && grep -q ^OK$ said && echo ran'",
                     0, "] ran"},
        Unprivileged{"Libfabric", WEFT_PEER, "-n 2 -- " WEFT_PEER " message"},
        Unprivileged{"MpiAllReduce", "mpirun.openmpi",
                     "--json -- env FI_PROVIDER=efa mpirun.openmpi --oversubscribe -n 4 --mca pml "
                     "cm --mca mtl ofi " WEFT_COLLECTIVES " -c all_reduce -e 262144 -n 2 --json",
                     0, "\"bytes\":262144"},
        // The same over soft-RoCE devices.
        Unprivileged{"RxeDevinfo", "ibv_devinfo", "--device rxe -- ibv_devinfo -v", 0,
                     "PORT_ACTIVE"},
        Unprivileged{"RxePingpong", "ibv_rc_pingpong",
                     "--device rxe -- ibv_rc_pingpong -g 1 -c -p PORT : ibv_rc_pingpong -g 1 -c "
                     "-p PORT {h1.ip}"},
        Unprivileged{"RxeWriteManyQueuePairs", "ib_write_bw",
                     "--device rxe " PERFTEST("ib_write_bw", "-x 1 -F -q 64 -n 100 -p PORT")},
        Unprivileged{"RxeConnections", "rping",
                     "--device rxe -- rping -s -C 5 -V -p PORT : rping -c -C 5 -V -p PORT -a "
                     "{h1.ip}"},
        // What no EFA device has is refused, as the real one refuses it.
        Unprivileged{"NoReliableConnections", "ibv_rc_pingpong",
                     "-- ibv_rc_pingpong -d {h1.dev} -g 0 -p PORT", 1, "Couldn't create QP"},
        Unprivileged{"NoUnreliableConnections", "ibv_uc_pingpong",
                     "-- ibv_uc_pingpong -d {h1.dev} -g 0 -p PORT", 1, "Couldn't create QP"},
        Unprivileged{"NoSharedReceiveQueues", "ibv_srq_pingpong",
                     "-- ibv_srq_pingpong -d {h1.dev} -g 0 -p PORT", 1, "Couldn't create SRQ"}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace weft::testing
