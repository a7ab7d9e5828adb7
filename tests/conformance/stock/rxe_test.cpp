// Tests with stock programs of ordinary RDMA: reliable and unreliable connections, datagrams, reads
// and atomics, through rdma-core's own rxe provider.
#include <string>

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

// The second program looks before and after its traffic, at the files and through netlink.
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
          "&& rdma statistic show link rxe_0/1'",
      100);
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_TRUE(outcome.says("rdma_sends 100 rdma_recvs 100")) << outcome.output;
}

struct Program {
  const char* name;
  const char* command;
};

constexpr const char* kPairs = "--device rxe -- ";
// The same between two leaves, and there packets overtake each other and are lost.
constexpr const char* kLoss =
    "--device rxe --topology " WEFT_LEAF_SPINE " --fault 'link: tor0-*, loss: 0.01' -- ";

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

// Where nothing is sent again all of a run fits into a ring: perftest's receiver waits for every
// message, and one that gets no core for long makes packets be dropped.
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
        Program{"WriteLatency", "ib_write_lat -x 0 -F -n 500"},
        Program{"WriteLatencyUc", "ib_write_lat -x 0 -F -c UC -n 500"},
        Program{"ReadBandwidth", "ib_read_bw -x 0 -F -n 200"},
        Program{"ReadLatency", "ib_read_lat -x 0 -F -n 200"},
        Program{"AtomicBandwidth", "ib_atomic_bw -x 0 -F -n 200"},
        Program{"AtomicLatency", "ib_atomic_lat -x 0 -F -A CMP_AND_SWAP -n 200"}),
    [](const auto& test) { return std::string(test.param.name); });

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
                         ::testing::Values(Program{"Pingpong",
                                                   "ibv_rc_pingpong -g 0 -c -n 200 -s 20000"},
                                           Program{"Write", "ib_write_bw -x 0 -F -n 200"},
                                           Program{"Read", "ib_read_bw -x 0 -F -n 100"},
                                           Program{"Atomic", "ib_atomic_bw -x 0 -F -n 200"}),
                         [](const auto& test) { return std::string(test.param.name); });

// UCX takes the network header's kind from the completions of datagrams.
TEST(Rxe, UcxTalksByDatagrams) {
  WEFT_NEEDS("ucx_perftest");
  const Outcome outcome = run_pair(kPairs,
                                   "env UCX_TLS=ud_verbs,self UCX_NET_DEVICES=rxe_0:1 ucx_perftest "
                                   "-t tag_bw -s 20000 -n 300");
  EXPECT_EQ(outcome.code, 0) << outcome.output;
}

}  // namespace
}  // namespace weft::testing
