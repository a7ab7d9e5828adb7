// Owns the tests with stock Open MPI and with programs that stand on it, over the stock efa
// provider.
#include <regex>
#include <string>

#include "tests/conformance/json_lines.hpp"
#include "tests/conformance/run_weft.hpp"

namespace weft::testing {
namespace {

#define MPIRUN "mpirun.openmpi --allow-run-as-root --oversubscribe "
// Messages are matched by libfabric's tagged calls, not by Open MPI on top of plain ones.
#define MATCHING "--mca pml cm --mca mtl ofi "

// Runs `weft run` in a new folder, into which `prepare` puts the program and its input. The folder
// is gone afterwards, with what Open MPI keeps there.
Outcome in_folder(const std::string& prepare, const std::string& arguments, int seconds) {
  return run_shell("dir=$(mktemp -d) && chmod 755 $dir && cd $dir && " + prepare +
                   " && export OMPI_MCA_orte_tmpdir_base=$dir && FI_PROVIDER=efa timeout " +
                   std::to_string(seconds) + " " WEFT_PROGRAM " run " + arguments +
                   "; code=$?; cd /; rm -r $dir; exit $code");
}

// Sets the fault in the network `$name`; nothing, if there is none to set.
std::string fault_command(const std::string& fault) {
  return fault.empty() ? "" : WEFT_PROGRAM " fault $name '" + fault + "' >/dev/null && ";
}

// Every rank puts a block of its own numbers into every rank's window, compares what it finds in
// its own, and gets its blocks back from all of them. Then all count in one word of rank 0, by
// fetch-and-add. Ends with 0 if every element was right, and the count.
constexpr const char* kOneSided =
    "#include <mpi.h>\\n#include <stdlib.h>\\nenum { K = 1 << 15 };\\n"
    "int main(int c, char** v) { int r, n, bad = 0, all; MPI_Win w; int* a; MPI_Init(&c, &v);"
    "MPI_Comm_rank(MPI_COMM_WORLD, &r); MPI_Comm_size(MPI_COMM_WORLD, &n);"
    "MPI_Win_allocate(4 * K * n, 4, MPI_INFO_NULL, MPI_COMM_WORLD, &a, &w);"
    "int* mine = malloc(4 * K); int* got = malloc(4 * K);"
    "for (int i = 0; i < K * n; i++) a[i] = -1;"
    "for (int i = 0; i < K; i++) mine[i] = r * 1000003 + i;"
    "MPI_Barrier(MPI_COMM_WORLD); MPI_Win_lock_all(0, w);"
    "for (int t = 0; t < n; t++) MPI_Put(mine, K, MPI_INT, t, r * K, K, MPI_INT, w);"
    "MPI_Win_flush_all(w); MPI_Barrier(MPI_COMM_WORLD);"
    "for (int s = 0; s < n; s++) for (int i = 0; i < K; i++) bad += a[s * K + i] != s * 1000003 + "
    "i;"
    "for (int t = 0; t < n; t++) { MPI_Get(got, K, MPI_INT, t, r * K, K, MPI_INT, w);"
    "MPI_Win_flush(t, w); for (int i = 0; i < K; i++) bad += got[i] != r * 1000003 + i; }"
    "MPI_Barrier(MPI_COMM_WORLD); MPI_Win_unlock_all(w); MPI_Win_free(&w);"
    "long one = 1, old, *sum; MPI_Win_allocate(8, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &sum, &w);"
    "*sum = 0; MPI_Barrier(MPI_COMM_WORLD); MPI_Win_lock_all(0, w);"
    "for (int i = 0; i < 16; i++) {"
    "MPI_Fetch_and_op(&one, &old, MPI_LONG, 0, 0, MPI_SUM, w); MPI_Win_flush(0, w); }"
    "MPI_Barrier(MPI_COMM_WORLD); bad += r == 0 && *sum != 16 * n;"
    "MPI_Win_unlock_all(w); MPI_Win_free(&w);"
    "MPI_Allreduce(&bad, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD); MPI_Finalize();"
    "return all != 0; }";

// Open MPI's one-sided calls by the device's reads and writes, instead of by messages. From version
// 5 on it cannot have them beside libfabric's matching: it says MPI_ERR_WIN then.
std::string one_sided() {
  const bool is_old =
      std::regex_search(run_shell("mpirun.openmpi --version").output, std::regex("\\) 4\\."));
  return std::string(is_old ? MATCHING : "--mca pml ob1 --mca btl_ofi_mode 2 ") +
         "--mca osc rdma --mca btl ofi,self";
}

struct OneSided {
  const char* name;
  int ranks;
  const char* network;              // options of weft run
  const char* arguments = nullptr;  // one_sided()
};
class MpiOneSided : public ::testing::TestWithParam<OneSided> {};

TEST_P(MpiOneSided, EveryElementIsRight) {
  WEFT_NEEDS("mpirun.openmpi");
  WEFT_NEEDS("mpicc.openmpi");
  const Outcome outcome = in_folder(
      std::string("printf '") + kOneSided + "' > a.c && mpicc.openmpi -o a a.c",
      std::string(GetParam().network) + " -- " MPIRUN "-n " + std::to_string(GetParam().ranks) +
          " " + (GetParam().arguments == nullptr ? one_sided() : GetParam().arguments) + " ./a",
      120);
  EXPECT_EQ(outcome.code, 0) << outcome.output;
}

INSTANTIATE_TEST_SUITE_P(
    All, MpiOneSided,
    ::testing::Values(OneSided{"Two", 2, ""}, OneSided{"Four", 4, ""}, OneSided{"Eight", 8, ""},
                      OneSided{"OutOfOrder", 4, "--device efa:reorder"},
                      // Messages as well go by the device's reads and writes (mode 2 of btl_ofi).
                      OneSided{"TwoSidedToo", 2, "",
                               "--mca pml ob1 --mca btl ofi,self --mca btl_ofi_mode 2 "
                               "--mca osc rdma"}),
    [](const auto& test) { return std::string(test.param.name); });

struct Launched {
  const char* name;
  const char* network;  // options of weft up
  const char* fault;
  int ranks;
};
class MpiLauncher : public ::testing::TestWithParam<Launched> {};

// mpirun runs outside of the network and starts each rank by `weft exec` on a host of its own. All
// of them attach at the same moment, and find each other by mpirun only.
TEST_P(MpiLauncher, CanStandOutsideToo) {
  WEFT_NEEDS("mpirun.openmpi");
  WEFT_NEEDS("mpicc.openmpi");
  const auto& [name, network, fault, ranks] = GetParam();
  const Outcome outcome = run_shell(
      std::string("dir=$(mktemp -d) && cd $dir && printf '") + kOneSided +
      "' > a.c && mpicc.openmpi -o a a.c; name=mpi$$; " WEFT_PROGRAM " up $name " + network +
      " >/dev/null && " + fault_command(fault) +
      "export OMPI_MCA_orte_tmpdir_base=$dir && FI_PROVIDER=efa timeout 200 " MPIRUN "-n " +
      std::to_string(ranks) + " " + one_sided() +
      " sh -c '" WEFT_PROGRAM
      " exec \"$0\" h$((OMPI_COMM_WORLD_RANK + 1)) -- ./a' $name; code=$?; " WEFT_PROGRAM
      " status $name --json; " WEFT_PROGRAM " down $name >/dev/null; cd /; rm -r $dir; exit $code");
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  // A network in which nothing was lost would have shown nothing.
  if (*fault != '\0') {
    const auto states = json_lines(outcome.output, "counters");
    ASSERT_FALSE(states.empty()) << outcome.output;
    EXPECT_GT(states.back().at("counters").at("dropped").at("loss").get<std::uint64_t>(), 0U);
  }
}

INSTANTIATE_TEST_SUITE_P(All, MpiLauncher,
                         ::testing::Values(Launched{"Ideal", "--hosts 2", "", 2},
                                           Launched{"OnePercentLoss",
                                                    "--topology " WEFT_FOUR_LEAVES,
                                                    "link: tor*-spine*, loss: 0.01", 4}),
                         [](const auto& test) { return std::string(test.param.name); });

// One rank of four kills itself after 500 rounds, in which all have talked and wait for each other.
// The other ranks must end, and mpirun say why, instead of waiting for ever.
TEST(Mpi, TellsThatARankWasKilled) {
  WEFT_NEEDS("mpirun.openmpi");
  WEFT_NEEDS("mpicc.openmpi");
  const std::string source =
      "#include <mpi.h>\\n#include <signal.h>\\n"
      "int main(int c, char** v) { int r, x, y; MPI_Init(&c, &v);"
      "MPI_Comm_rank(MPI_COMM_WORLD, &r);"
      "for (int i = 0; ; i++) { x = i; MPI_Allreduce(&x, &y, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);"
      "if (r == 2 && i == 500) raise(SIGKILL); } }";
  const Outcome outcome = in_folder("printf '" + source + "' > a.c && mpicc.openmpi -o a a.c",
                                    "-- " MPIRUN "-n 4 " MATCHING "./a", 60);
  EXPECT_EQ(outcome.code, 128 + 9) << outcome.output;
  EXPECT_TRUE(outcome.says("signal 9 (Killed)")) << outcome.output;
}

// Its benchmarks check their own results: Success=1. The input is the sample that comes with it, a
// system of 1000 unknowns.
TEST(Mpi, HpcChallengeRunsToTheEnd) {
  WEFT_NEEDS("mpirun.openmpi");
  WEFT_NEEDS("hpcc");
  const Outcome outcome =
      in_folder("cp /usr/share/doc/hpcc/examples/_hpccinf.txt hpccinf.txt",
                "-- sh -c '" MPIRUN "-n 4 " MATCHING "hpcc && cat hpccoutf.txt'", 300);
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_TRUE(outcome.says("Success=1")) << outcome.output;
  EXPECT_TRUE(outcome.says("End of HPC Challenge tests")) << outcome.output;
}

// Sizes up to 64 MiB; -i compares what has arrived. The line looked for is of one of the largest,
// so the run has come that far.
TEST(Mpi, NetpipeRunsToTheEnd) {
  WEFT_NEEDS("mpirun.openmpi");
  WEFT_NEEDS("NPopenmpi");
  const Outcome outcome =
      in_folder("true", "-- " MPIRUN "-n 2 " MATCHING "NPopenmpi -u 67108864 -n 5 -i", 200);
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_TRUE(outcome.says("50331649 bytes      5 times -->  Integrity check passed"))
      << outcome.output;
  EXPECT_FALSE(outcome.says("check failed")) << outcome.output;
}

}  // namespace
}  // namespace weft::testing
