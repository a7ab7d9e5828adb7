// Tests with stock libfabric programs and MPI over the stock efa provider.
#include "tests/conformance/run_weft.hpp"

namespace weft::testing {
namespace {

TEST(Fabric, EfaIsOffered) {
  WEFT_NEEDS("fi_info");
  const Outcome outcome = run_weft("-- fi_info -p efa");
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_TRUE(outcome.says("efa_0-rdm") && outcome.says("efa_0-dgrm")) << outcome.output;
}

struct Pingpong {
  const char* name;
  const char* device;
  const char* arguments;
};
class FabricPingpong : public ::testing::TestWithParam<Pingpong> {};

TEST_P(FabricPingpong, EveryByteArrives) {
  WEFT_NEEDS("fi_pingpong");
  const std::string command =
      std::string("fi_pingpong -p efa -c -B ") + own_port() + " " + GetParam().arguments;
  const std::string port = command.substr(command.find("-B ") + 3, 5);
  std::string client = command;
  client.replace(client.find("-B "), 3, "-P ");
  const Outcome outcome = run_weft(
      std::string("--device ") + GetParam().device + " -- " + command + " : " + client + " {h1.ip}",
      120);
  EXPECT_EQ(outcome.code, 0) << outcome.output;
}

INSTANTIATE_TEST_SUITE_P(All, FabricPingpong,
                         ::testing::Values(Pingpong{"Rdm", "efa", "-e rdm -S all"},
                                           Pingpong{"RdmTagged", "efa", "-e rdm -m tagged"},
                                           Pingpong{"RdmWithoutRdma", "efa:base", "-e rdm -S all"},
                                           Pingpong{"RdmOutOfOrder", "efa:reorder",
                                                    "-e rdm -S all"},
                                           Pingpong{"Dgram", "efa", "-e dgram"}),
                         [](const auto& test) { return std::string(test.param.name); });

class Mpi : public ::testing::TestWithParam<int> {};

// Open MPI's launcher starts the ranks on one emulated host; each is a process on its NIC.
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
      "' > $dir/a.c && mpicc.openmpi -o $dir/a $dir/a.c && FI_PROVIDER=efa timeout "
      "120 " WEFT_PROGRAM " run -- mpirun.openmpi --allow-run-as-root --oversubscribe -n " +
      ranks + " --mca pml cm --mca mtl ofi $dir/a; code=$?; rm -r $dir; exit $code");
  EXPECT_EQ(outcome.code, 0) << outcome.output;
}

INSTANTIATE_TEST_SUITE_P(Ranks, Mpi, ::testing::Values(2, 4, 8),
                         [](const auto& test) { return std::to_string(test.param); });

}  // namespace
}  // namespace weft::testing
