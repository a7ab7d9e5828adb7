// Owns the tests with stock libfabric programs, over the providers efa and verbs, and with MPI over
// efa.
#include "tests/conformance/run_weft.hpp"

namespace weft::testing {
namespace {

TEST(Fabric, EfaIsOffered) {
  WEFT_NEEDS("fi_info");
  const Outcome outcome = run_weft("-- fi_info -p efa");
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_TRUE(outcome.says("efa_0-rdm") && outcome.says("efa_0-dgrm")) << outcome.output;
}

// The verbs provider looks for a network interface of the host whose address rdma_cm knows, and
// offers nothing if there is none. ofi_rxm makes reliable datagrams out of its connections.
TEST(Fabric, VerbsIsOffered) {
  WEFT_NEEDS("fi_info");
  const Outcome outcome = run_weft("--no-prefix -n 1 --device rxe -- fi_info -p verbs");
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_TRUE(outcome.says("domain: rxe_0\n") && outcome.says("FI_EP_MSG")) << outcome.output;
  const Outcome layered = run_weft("-n 1 --device rxe -- fi_info -p 'verbs;ofi_rxm' -t FI_EP_RDM");
  EXPECT_EQ(layered.code, 0) << layered.output;
  EXPECT_TRUE(layered.says("domain: rxe_0\n") && layered.says("FI_PROTO_RXM")) << layered.output;
}

struct Pingpong {
  const char* name;
  const char* device;
  const char* arguments;
  const char* provider = "efa";
};
class FabricPingpong : public ::testing::TestWithParam<Pingpong> {};

TEST_P(FabricPingpong, EveryByteArrives) {
  WEFT_NEEDS("fi_pingpong");
  const std::string command = std::string("fi_pingpong -p '") + GetParam().provider + "' -c -B " +
                              own_port() + " " + GetParam().arguments;
  std::string client = command;
  client.replace(client.find("-B "), 3, "-P ");  // the client's word for the server's port
  // For its default of 256 peers libfabric asks for more than soft RoCE has in a completion queue.
  const Outcome outcome =
      run_weft(std::string("--device ") + GetParam().device + " -- env FI_UNIVERSE_SIZE=16 " +
                   command + " : env FI_UNIVERSE_SIZE=16 " + client + " {h1.ip}",
               120);
  EXPECT_EQ(outcome.code, 0) << outcome.output;
}

INSTANTIATE_TEST_SUITE_P(
    All, FabricPingpong,
    ::testing::Values(Pingpong{"Rdm", "efa", "-e rdm -S all"},
                      Pingpong{"RdmTagged", "efa", "-e rdm -m tagged"},
                      Pingpong{"RdmWithoutRdma", "efa:base", "-e rdm -S all"},
                      Pingpong{"RdmOutOfOrder", "efa:reorder", "-e rdm -S all"},
                      Pingpong{"Dgram", "efa", "-e dgram"},
                      Pingpong{"VerbsMsg", "rxe", "-e msg -S all", "verbs"},
                      Pingpong{"VerbsRdm", "rxe", "-e rdm -S all", "verbs;ofi_rxm"},
                      Pingpong{"VerbsRdmTagged", "rxe", "-e rdm -m tagged", "verbs;ofi_rxm"}),
    [](const auto& test) { return std::string(test.param.name); });

// The number after `key` in the last line of JSON that is about the device of `host`; -1: there is
// none.
double reported(const Outcome& outcome, const std::string& host, const std::string& key) {
  const std::size_t line = outcome.output.rfind("\"host\":\"" + host + "\",\"kind\"");
  const std::size_t at = outcome.output.find("\"" + key + "\":", line);
  return line == std::string::npos || at == std::string::npos
             ? -1
             : std::atof(outcome.output.c_str() + at + key.size() + 3);
}

// The profile `reorder` holds up to 16 packets back and sends over 64 paths, so messages arrive in
// another order than they were sent in; no program may mind. The bounds are loose, as the exact
// shares depend on the machine.
TEST(Order, OfMessagesIsLostOnPurposeAndCounted) {
  WEFT_NEEDS("ib_send_bw");
  const std::string command = "ib_send_bw -c SRD -x 0 -b -n 3000 -s 1024 -p " + own_port();
  const Outcome outcome = run_weft("--json --device efa:reorder -- " + command +
                                   " -d {h1.dev} : " + command + " -d {h2.dev} {h1.ip}");
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  for (const char* const host : {"h1", "h2"}) {
    EXPECT_GE(reported(outcome, host, "messages_out_of_order_percent"), 50.0) << outcome.output;
    EXPECT_GE(reported(outcome, host, "paths_used"), 16.0) << outcome.output;
  }
}

// Messages of 1 MiB are many packets each, which libfabric and the device put together again; -c
// compares the bytes.
TEST(Order, OfPacketsIsLostOnPurposeAndCounted) {
  WEFT_NEEDS("fi_pingpong");
  // Newer ones have a second fabric, which carries single packets only.
  const std::string pingpong =
      "sh -c 'fi_info -p efa | grep -q efa-direct && set -- -f efa \"$@\"; "
      "exec fi_pingpong -p efa -e rdm -c -S 1048576 -I 20 \"$@\"' sh ";
  const std::string port = own_port();
  const Outcome outcome = run_weft("--json --device efa:reorder -- " + pingpong + "-B " + port +
                                   " : " + pingpong + "-P " + port + " {h1.ip}");
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  for (const char* const host : {"h1", "h2"}) {
    EXPECT_GE(reported(outcome, host, "packets_out_of_order_percent"), 20.0) << outcome.output;
  }
}

// Exporters of metrics read sysfs. The client's program reads there before and after 500 messages
// of 4096 bytes, which are 2 MB, over a link that loses some.
TEST(Counters, MoveWhereExportersLook) {
  WEFT_NEEDS("fi_pingpong");
  const std::string port = own_port();
  const Outcome outcome = run_weft(
      "--fault 'link: h1-fabric, loss: 0.05' -- fi_pingpong -p efa -e rdm -I 500 -S 4096 -B " +
      port +
      " : sh -c 'cd /; f=/sys/class/infiniband/{h2.dev}/ports/1/hw_counters; "
      "a=$(cat $f/tx_bytes); fi_pingpong -p efa -e rdm -I 500 -S 4096 -P " +
      port +
      " {h1.ip}; b=$(cat $f/tx_bytes); test $a = 0 && test $b -gt 2000000 && "
      "test $(cat $f/retrans_pkts) -gt 0 && test $(cat $f/retrans_bytes) -gt 4096 && "
      "test $(cat /sys/class/infiniband/{h2.dev}/hw_counters/completed_cmds) -gt 5'");
  EXPECT_EQ(outcome.code, 0) << outcome.output;
}

class Mpi : public ::testing::TestWithParam<int> {};

// Open MPI's launcher starts the ranks on one emulated host; each is a process on its NIC. From one
// element to a MiB, so that both messages of one packet and long ones are summed up.
TEST_P(Mpi, AllReduceIsRight) {
  WEFT_NEEDS("mpirun.openmpi");
  WEFT_NEEDS("mpicc.openmpi");
  const std::string source =
      "#include <mpi.h>\\n#include <stdlib.h>\\n"
      "int main(int c, char** v) { int r, n, bad = 0; MPI_Init(&c, &v);"
      "MPI_Comm_rank(MPI_COMM_WORLD, &r); MPI_Comm_size(MPI_COMM_WORLD, &n);"
      "for (int k = 1; k <= 1 << 18; k *= 8) {"
      "int* a = malloc(4 * k); int* b = malloc(4 * k);"
      "for (int i = 0; i < k; i++) a[i] = i + r;"
      "MPI_Allreduce(a, b, k, MPI_INT, MPI_SUM, MPI_COMM_WORLD);"
      "for (int i = 0; i < k; i++) bad += b[i] != n * i + n * (n - 1) / 2; }"
      "MPI_Finalize(); return bad != 0; }";
  const std::string ranks = std::to_string(GetParam());
  const Outcome outcome = run_shell(
      "dir=$(mktemp -d) && chmod 755 $dir && printf '" + source +
      "' > $dir/a.c && mpicc.openmpi -o $dir/a $dir/a.c && OMPI_MCA_orte_tmpdir_base=$dir "
      "FI_PROVIDER=efa timeout "
      "120 " WEFT_PROGRAM " run -- mpirun.openmpi --allow-run-as-root --oversubscribe -n " +
      ranks + " --mca pml cm --mca mtl ofi $dir/a; code=$?; rm -r $dir; exit $code");
  EXPECT_EQ(outcome.code, 0) << outcome.output;
}

INSTANTIATE_TEST_SUITE_P(Ranks, Mpi, ::testing::Values(2, 4, 8),
                         [](const auto& test) { return std::to_string(test.param); });

}  // namespace
}  // namespace weft::testing
