// Owns the tests with stock programs of ordinary RDMA: reliable and unreliable connections,
// datagrams, reads and atomics, through rdma-core's own rxe provider.
#include <array>
#include <cstdint>
#include <fstream>
#include <initializer_list>
#include <string>
#include <utility>

#include "tests/conformance/run_weft.hpp"

namespace weft::testing {
namespace {

TEST(Rxe, DevinfoShowsASoftRoceDevice) {
  WEFT_NEEDS("ibv_devinfo");
  const Outcome outcome = run_weft("--device rxe --nics 2 -- ibv_devinfo -v");
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  for (const char* text : {"rxe_0", "rxe_1", "PORT_ACTIVE", "Ethernet", "::ffff:127."}) {
    EXPECT_TRUE(outcome.says(text)) << text << "\n" << outcome.output;
  }
}

// The second program looks before and after its traffic, at the files and through netlink: 100
// messages of 4096 bytes each way, whose words of four bytes port_xmit_data counts.
TEST(Rxe, CountersAreThoseOfTheDriver) {
  WEFT_NEEDS("ibv_rc_pingpong");
  WEFT_NEEDS("rdma");
  const std::string words = "ibv_rc_pingpong -g 0 -n 100 -s 4096 -p " + own_port();
  const Outcome outcome = run_weft(
      "--device rxe -- " + words +
          " : sh -c 'p=/sys/class/infiniband/rxe_0/ports/1; h=$p/hw_counters; "
          "test $(cat $h/sent_pkts) = 0 && " +
          words +
          " {h1.ip} && test $(cat $h/rdma_sends) = 100 && test $(cat $h/rdma_recvs) = 100 && "
          "test $(cat $h/rcvd_pkts) -ge 400 && test $(cat $p/counters/port_xmit_data) -gt 102400 "
          "&& rdma statistic show link rxe_0/1 | tr -s \"\\n \" \" \"'",
      100);
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_TRUE(outcome.says("rdma_sends 100 rdma_recvs 100")) << outcome.output;
}

struct Program {
  const char* name;
  const char* command;
};

constexpr const char* kPairs = "--device rxe -- ";
// The same between two leaves, where packets overtake each other and one in a hundred is lost.
constexpr const char* kLoss =
    "--device rxe --topology " WEFT_LEAF_SPINE " --fault 'link: tor0-*, loss: 0.01' -- ";

// The command on two hosts, as perftest and the pingpongs are called: as a client it is told where
// the server is.
Outcome run_pair(const char* network, const char* command) {
  const std::string words = std::string(command) + " -p " + own_port();
  return run_weft(network + words + " : " + words + " {h1.ip}", 100);
}

class RxeStock : public ::testing::TestWithParam<Program> {};

TEST_P(RxeStock, BothEndsSucceed) {
  const std::string command = GetParam().command;
  const std::string program = command.substr(0, command.find(' '));
  if (!has(program)) {
    GTEST_SKIP() << "this machine has no " << program
                 << "; install ibverbs-utils and perftest to run this test";
  }
  const Outcome outcome = run_pair(kPairs, GetParam().command);
  EXPECT_EQ(outcome.code, 0) << outcome.output;
}

// Of UC and UD nothing is sent again, and perftest's receiver waits for every message. So these
// runs are short enough for all their packets to fit into the receiver's ring, or a receiver that
// gets no core for long would lose some.
INSTANTIATE_TEST_SUITE_P(
    All, RxeStock,
    ::testing::Values(
        Program{"PingpongRc", "ibv_rc_pingpong -g 0 -c -n 200 -s 10000"},
        Program{"PingpongRcWithEvents", "ibv_rc_pingpong -g 0 -c -e -n 200"},
        Program{"PingpongRcByNewPosts", "ibv_rc_pingpong -g 0 -c -N -n 200"},
        Program{"PingpongUc", "ibv_uc_pingpong -g 0 -c -n 200"},
        Program{"PingpongUd", "ibv_ud_pingpong -g 0 -c -n 200"},
        Program{"PingpongUdWithEvents", "ibv_ud_pingpong -g 0 -c -e -n 100"},
        Program{"PingpongSharedReceives", "ibv_srq_pingpong -g 0 -c -n 200"},
        Program{"SendBandwidthOfAllSizes", "ib_send_bw -x 0 -F -a -n 300"},
        Program{"SendBandwidthBothWays", "ib_send_bw -x 0 -F -b -n 500"},
        Program{"SendBandwidthSharedReceives", "ib_send_bw -x 0 -F -b --use-srq -q 2 -n 300"},
        Program{"SendBandwidthUc", "ib_send_bw -x 0 -F -c UC -s 4096 -n 200"},
        Program{"SendBandwidthUd", "ib_send_bw -x 0 -F -c UD -s 2048 -n 200"},
        Program{"SendLatency", "ib_send_lat -x 0 -F -n 500"},
        Program{"SendLatencyWithEvents", "ib_send_lat -x 0 -F -e -n 200"},
        Program{"SendLatencyUc", "ib_send_lat -x 0 -F -c UC -n 500"},
        Program{"SendLatencyUd", "ib_send_lat -x 0 -F -c UD -n 500"},
        Program{"WriteBandwidthOfFourQueuePairs", "ib_write_bw -x 0 -F -b -q 4 -n 300"},
        Program{"WriteBandwidthUc", "ib_write_bw -x 0 -F -c UC -n 300"},
        Program{"WriteBandwidthOfADeepQueue", "ib_write_bw -x 1 -F -t 8192 -Q 1 -s 64 -n 20000"},
        Program{"WriteLatency", "ib_write_lat -x 0 -F -n 500"},
        Program{"WriteLatencyUc", "ib_write_lat -x 0 -F -c UC -n 500"},
        Program{"ReadBandwidth", "ib_read_bw -x 0 -F -n 200"},
        Program{"ReadLatency", "ib_read_lat -x 0 -F -n 200"},
        Program{"AtomicBandwidth", "ib_atomic_bw -x 0 -F -n 200"},
        Program{"AtomicLatency", "ib_atomic_lat -x 0 -F -A CMP_AND_SWAP -n 200"}),
    [](const auto& test) { return std::string(test.param.name); });

// GID 0 is of the link-local address, 1 of the IPv4 address, 2 of the IPv6 address.
class RxeGids : public ::testing::TestWithParam<int> {};

TEST_P(RxeGids, ProgramsTakeAnyOfThem) {
  WEFT_NEEDS("ibv_rc_pingpong");
  WEFT_NEEDS("ib_write_bw");
  const std::string index = std::to_string(GetParam());
  // With loss no pingpong: it ends without waiting for its peer, which then repeats its last
  // message in vain if the acknowledgement was lost. Perftest's programs agree by TCP when to end.
  const std::array<std::pair<const char*, std::string>, 2> networks{
      {{kPairs, "ibv_rc_pingpong -c -n 100 -g " + index},
       {kLoss, "ib_send_lat -F -n 100 -x " + index}}};
  for (const auto& [network, first] : networks) {
    for (const std::string& command :
         {first, "ib_write_bw -F -n 100 -x " + index, "ib_read_bw -F -n 50 -x " + index}) {
      const Outcome outcome = run_pair(network, command.c_str());
      EXPECT_EQ(outcome.code, 0) << command << "\n" << outcome.output;
    }
  }
  for (const std::string& command :
       {"ibv_uc_pingpong -c -n 100 -g " + index, "ibv_ud_pingpong -c -n 100 -g " + index,
        "ib_send_lat -c UD -F -n 100 -x " + index}) {
    const Outcome outcome = run_pair(kPairs, command.c_str());
    EXPECT_EQ(outcome.code, 0) << command << "\n" << outcome.output;
  }
}

INSTANTIATE_TEST_SUITE_P(All, RxeGids, ::testing::Values(0, 1, 2));

// sysfs has them, and `ibv_devinfo -v` asks for them by ioctl.
TEST(Rxe, GidsAreThoseOfEveryAddress) {
  WEFT_NEEDS("ibv_devinfo");
  const Outcome outcome = run_weft(
      "--device rxe -- sh -c 'p=/sys/class/infiniband/rxe_0/ports/1; cat $p/gids/*; "
      "cat $p/gid_attrs/types/* $p/gid_attrs/ndevs/*; ibv_devinfo -v; echo ip6 {h1.ip6}'");
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  for (const char* text :
       {"GID[  0]:\t\tfe80::", "GID[  1]:\t\t::ffff:127.",
        "GID[  2]:\t\tfd77:6566:7400:", "RoCE v2", "weft0", "ip6 fd77:6566:7400:"}) {
    EXPECT_TRUE(outcome.says(text)) << text << "\n" << outcome.output;
  }
}

// Scripts find the network interface of a device, and the device's GUID, by sysfs or by `rdma`:
// both must say the same.
TEST(Rxe, LookUpsAgree) {
  WEFT_NEEDS("rdma");
  const Outcome outcome = run_weft(
      "--device rxe --nics 2 -- sh -c '"
      "for d in rxe_0 rxe_1; do p=/sys/class/infiniband/$d; "
      "echo \"$d $(cat $p/ports/1/gid_attrs/ndevs/1)\"; "
      "rdma dev show $d | grep -q \"node_guid $(cat $p/node_guid) \" || exit 9; done; rdma link'");
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  for (const char* text : {"rxe_0 weft0", "rxe_1 weft1",
                           "link rxe_0/1 state ACTIVE physical_state LINK_UP netdev weft0",
                           "link rxe_1/1 state ACTIVE physical_state LINK_UP netdev weft1"}) {
    EXPECT_TRUE(outcome.says(text)) << text << "\n" << outcome.output;
  }
}

// The command lines of tutorials, as they stand there. libibverbs finds its library for soft-RoCE
// by the number of the driver, which it asks the kernel for by netlink.
TEST(Rxe, CommandLinesOfTutorialsRun) {
  WEFT_NEEDS("ibv_devinfo");
  WEFT_NEEDS("ib_write_bw");
  WEFT_NEEDS("rdma");
  const Outcome shown = run_weft(
      "--device rxe --nics 2 --names mlx5_{n} -- sh -c 'ibv_devinfo -d mlx5_0; ibv_devices; "
      "rdma link; ls /sys/class/infiniband; cat /sys/class/infiniband_verbs/uverbs1/ibdev; "
      "echo {h1.dev}'");
  EXPECT_EQ(shown.code, 0) << shown.output;
  for (const char* text : {"hca_id:\tmlx5_0", "PORT_ACTIVE", "link mlx5_1/1 state ACTIVE",
                           "mlx5_0\n[h1] mlx5_1\n[h1] mlx5_1\n[h1] mlx5_0\n"}) {
    EXPECT_TRUE(shown.says(text)) << text << "\n" << shown.output;
  }
  EXPECT_FALSE(shown.says("rxe_")) << shown.output;
  const std::string words = "ib_write_bw -d mlx5_16 -a --report_gbits -n 100 -p " + own_port();
  const Outcome written =
      run_weft("--device rxe --names mlx5_{n+16} -- " + words + " : " + words + " {h1.ip}", 100);
  EXPECT_EQ(written.code, 0) << written.output;
  EXPECT_TRUE(written.says("8388608")) << written.output;
}

// A NIC of each kind on each host, used one after the other. `weft run` waits for the first server
// only; the second one may be late, so its client tries until it listens.
TEST(Rxe, BesideEfaOnOneHost) {
  WEFT_NEEDS("ibv_devices");
  WEFT_NEEDS("ib_send_lat");
  const std::string lat = "ib_send_lat -F -n 200 -p ";
  const std::string rc = lat + own_port() + " -d rxe_0 -x 1";
  const std::string srd = lat + own_port() + " -d efa_0 -x 0 -c SRD";
  const Outcome outcome = run_weft("--device rxe,efa -- sh -c 'ibv_devices; rdma dev; " + rc +
                                       " && " + srd + "' : sh -c '" + rc + " {h1.ip} && until " +
                                       srd + " {h1.ip}; do sleep 0.1; done'",
                                   100);
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_TRUE(outcome.says("rxe_0") && outcome.says("efa_0")) << outcome.output;
}

// With loss, only programs that agree by TCP when to end: see ProgramsTakeAnyOfThem. These do not
// look at the bytes; verbs_data compares them, with loss as well.
class RxeLoss : public ::testing::TestWithParam<Program> {};

TEST_P(RxeLoss, ReliableConnectionsGetThroughOnePercent) {
  const std::string command = GetParam().command;
  const std::string program = command.substr(0, command.find(' '));
  if (!has(program)) {
    GTEST_SKIP() << "this machine has no " << program
                 << "; install ibverbs-utils and perftest to run this test";
  }
  const Outcome outcome = run_pair(kLoss, GetParam().command);
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_TRUE(outcome.says("(loss ")) << "nothing was lost\n" << outcome.output;
}

INSTANTIATE_TEST_SUITE_P(All, RxeLoss,
                         ::testing::Values(Program{"Send", "ib_send_lat -x 0 -F -n 200 -s 20000"},
                                           Program{"Write", "ib_write_bw -x 0 -F -n 200"},
                                           Program{"Read", "ib_read_bw -x 0 -F -n 100"},
                                           Program{"Atomic", "ib_atomic_bw -x 0 -F -n 200"}),
                         [](const auto& test) { return std::string(test.param.name); });

// A batch file of ucx_perftest: operations of UCX that are run one after the other.
class UcxOperations {
 public:
  UcxOperations(std::initializer_list<std::uint32_t> sizes, int times) {
    std::ofstream file(path_);
    for (const char* const operation : {"tag_lat", "tag_bw", "ucp_put_lat", "ucp_put_bw", "ucp_get",
                                        "ucp_am_lat", "ucp_am_bw", "stream_lat", "stream_bw"}) {
      for (const std::uint32_t size : sizes) {
        file << operation << size << " -t " << operation << " -s " << size << " -n " << times
             << " -w 10\n";
      }
    }
    for (const char* const operation : {"ucp_fadd", "ucp_cswap"}) {
      file << operation << " -t " << operation << " -s 8 -n " << times << " -w 10\n";
    }
  }

  // Some wait for mpirun if they are not told. UCX's own time-out of a connection, a second, is
  // long for networks that lose.
  [[nodiscard]] Outcome run(const char* network, const std::string& transports) const {
    const std::string command =
        "env UCX_NET_DEVICES=rxe_0:1 UCX_RC_VERBS_TIMEOUT=50ms UCX_TLS=" + transports +
        ",self sh -c 'ucx_perftest $(ucx_perftest -h | grep -qF -e \"-P <0|1>\" && echo \"-P 0\") "
        "-b " +
        path_ + " \"$@\"' sh";
    return run_pair(network, command.c_str());
  }
  ~UcxOperations() { unlink(path_.c_str()); }
  UcxOperations(const UcxOperations&) = delete;
  UcxOperations& operator=(const UcxOperations&) = delete;

 private:
  std::string path_ = ::testing::TempDir() + "weft-ucx-" + std::to_string(getpid());
};

// What UCX travels by. It makes its connections by datagrams, its auxiliary transport.
struct UcxTransport {
  const char* name;
  const char* transports;
};
class RxeUcx : public ::testing::TestWithParam<UcxTransport> {};

// UCX gathers its messages out of pieces, keeps many under way, and takes the network header's kind
// from the completions of datagrams.
TEST_P(RxeUcx, RunsEachOperation) {
  WEFT_NEEDS("ucx_perftest");
  const UcxOperations operations({1, 1000, 20'000, 300'000, 4U << 20}, 40);
  const Outcome outcome = operations.run(kPairs, GetParam().transports);
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  // The last operation of the file: the run has come that far.
  EXPECT_TRUE(outcome.says("ucp_cswap")) << outcome.output;
}

TEST_P(RxeUcx, GetsThroughOnePercent) {
  WEFT_NEEDS("ucx_perftest");
  const UcxOperations operations({1, 20'000}, 20);
  const Outcome outcome = operations.run(kLoss, GetParam().transports);
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_TRUE(outcome.says("(loss ")) << "nothing was lost\n" << outcome.output;
}

INSTANTIATE_TEST_SUITE_P(All, RxeUcx,
                         ::testing::Values(UcxTransport{"Connections", "rc_verbs,ud_verbs:aux"},
                                           UcxTransport{"Datagrams", "ud_verbs"}),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace weft::testing
