// Owns the tests of MPI's collectives: stock Open MPI, over the stock efa provider and over UCX on
// soft RoCE, must get every element right. Ours is only the program that compares the elements
// (integration/mpi).
#include <cstdint>
#include <set>

#include "tests/conformance/json_lines.hpp"
#include "tests/conformance/run_weft.hpp"

namespace weft::testing {
namespace {

#define NEEDS_COLLECTIVES       \
  WEFT_NEEDS("mpirun.openmpi"); \
  WEFT_NEEDS_BUILT(WEFT_COLLECTIVES, "libopenmpi-dev")

const std::set<std::string> kAll{"all_reduce", "all_gather", "reduce_scatter", "all_to_all",
                                 "broadcast",  "gather",     "scatter",        "barrier"};

// What MPI's messages travel by: the kind of device, variables for the library that uses it, and
// mpirun's options, which choose that library and keep Open MPI from opening the device otherwise.
struct Messages {
  const char* device;
  const char* environment;
  const char* options;
};
constexpr Messages kLibfabric{"efa", "FI_PROVIDER=efa", " --mca pml cm --mca mtl ofi "};
// UCX's own time-out of a connection, a second, is long for networks that lose: hence 50 ms.
#define BY_UCX " --mca pml ucx --mca btl ^openib,ofi --mca mtl ^ofi "
constexpr Messages kUcxConnections{
    "rxe", "UCX_NET_DEVICES=rxe_0:1 UCX_RC_VERBS_TIMEOUT=50ms UCX_TLS=rc_verbs,ud_verbs:aux,self",
    BY_UCX};
constexpr Messages kUcxDatagrams{"rxe", "UCX_NET_DEVICES=rxe_0:1 UCX_TLS=ud_verbs,self", BY_UCX};

// All ranks on one emulated host, launched there: the network between hosts has no part in it.
Outcome run_collectives(const std::string& network, int ranks, const std::string& options,
                        int seconds, const Messages& by = kLibfabric) {
  return run_shell("dir=$(mktemp -d) && export OMPI_MCA_orte_tmpdir_base=$dir " +
                   std::string(by.environment) + " && timeout " + std::to_string(seconds) +
                   " " WEFT_PROGRAM " run --json --no-prefix " + network +
                   " -- mpirun.openmpi --allow-run-as-root --oversubscribe -n " +
                   std::to_string(ranks) + by.options + WEFT_COLLECTIVES " --json " + options +
                   "; code=$?; rm -r $dir; exit $code");
}

// Rank i runs on host h(i modulo 4 + 1), and mpirun outside of the network. The network is up
// before the ranks, so that a fault can be set; its status is printed last, for lost().
Outcome run_on_hosts(const std::string& network, const std::string& fault, int ranks,
                     const std::string& options, int seconds, const Messages& by = kLibfabric) {
  return run_shell(
      "dir=$(mktemp -d); name=coll$$; " WEFT_PROGRAM " up $name " + network +
      " >/dev/null || exit 1; " +
      (fault.empty() ? ""
                     : WEFT_PROGRAM " fault $name '" + fault +
                           "' || { " WEFT_PROGRAM " down $name; exit 1; }; ") +
      "OMPI_MCA_orte_tmpdir_base=$dir " + by.environment + " timeout " + std::to_string(seconds) +
      " mpirun.openmpi --allow-run-as-root --oversubscribe -n " + std::to_string(ranks) +
      by.options + "sh -c 'exec " WEFT_PROGRAM " exec --device " + by.device +
      " \"$0\" h$((OMPI_COMM_WORLD_RANK % 4 + 1)) -- " WEFT_COLLECTIVES " --json " + options +
      "' $name; code=$?; " WEFT_PROGRAM " status $name --json; " WEFT_PROGRAM
      " down $name >/dev/null; rm -r $dir; exit $code");
}

// How many frames the network of run_on_hosts() lost for that reason; 0 if it printed no status.
std::uint64_t lost(const Outcome& outcome, const std::string& reason) {
  const auto states = json_lines(outcome.output, "counters");
  return states.empty() ? 0 : states.back().at("counters").at("dropped").value(reason, 0U);
}

// No row may count a wrong element, and there must be a row for each collective, type, size, in and
// out of place: a program that left some out would look right otherwise. Sizes grow by the factor
// 16, and are rounded up to whole elements: for each rank, where each has a part of its own.
void expect_right(const Outcome& outcome, int ranks, const std::set<std::string>& collectives,
                  std::size_t least, std::size_t most) {
  ASSERT_EQ(outcome.code, 0) << outcome.output;
  std::set<std::string> seen;
  std::set<std::string> variants;
  for (const auto& row : json_lines(outcome.output, "collective")) {
    const auto name = row.at("collective").get<std::string>();
    const auto bytes = row.at("bytes").get<std::size_t>();
    EXPECT_EQ(row.at("wrong").get<std::uint64_t>(), 0U) << row;
    EXPECT_EQ(row.at("ranks").get<int>(), ranks) << row;
    EXPECT_LE(row.at("best_us").get<double>(), row.at("time_us").get<double>() + 0.01) << row;
    seen.insert(name);
    variants.insert(name + row.at("type").get<std::string>() +
                    (row.at("in_place").get<bool>() ? "+" : "-") + std::to_string(bytes));
    if (name == "all_reduce" || name == "broadcast") {
      EXPECT_EQ(row.at("bytes_per_rank").get<std::size_t>(), bytes) << row;
    } else {
      EXPECT_EQ(row.at("bytes_per_rank").get<std::size_t>() * static_cast<std::size_t>(ranks),
                bytes)
          << row;
    }
  }
  EXPECT_EQ(seen, collectives);
  for (const std::string& name : collectives) {
    if (name == "barrier") {
      continue;  // it has no sizes
    }
    for (const char* const type : {"int", "float"}) {
      for (const char* const place : {"+", "-"}) {
        for (std::size_t bytes = least; bytes <= most; bytes *= 16) {
          const std::size_t unit =
              name == "all_reduce" || name == "broadcast" ? 4 : 4 * static_cast<std::size_t>(ranks);
          const std::size_t rounded = (bytes + unit - 1) / unit * unit;
          EXPECT_EQ(variants.count(name + type + place + std::to_string(rounded)), 1U)
              << name << " " << type << " " << place << " " << rounded << "\n"
              << outcome.output;
        }
      }
    }
  }
}

struct Collectives {
  const char* name;
  const char* network;  // options of weft run
  int ranks;
};
class MpiCollectives : public ::testing::TestWithParam<Collectives> {};

TEST_P(MpiCollectives, EveryElementIsRight) {
  NEEDS_COLLECTIVES
  const auto& [name, network, ranks] = GetParam();
  const Outcome outcome = run_collectives(network, ranks, "-b 4 -e 262144 -n 2", 120);
  expect_right(outcome, ranks, kAll, 4, 262144);
}

INSTANTIATE_TEST_SUITE_P(All, MpiCollectives,
                         ::testing::Values(Collectives{"Two", "", 2}, Collectives{"Four", "", 4},
                                           Collectives{"Eight", "", 8},
                                           Collectives{"OutOfOrder", "--device efa:reorder", 4}),
                         [](const auto& test) { return std::string(test.param.name); });

// Of the program alone, over shared memory: a script that was written for nccl-tests must not get
// other sizes here than it asked for.
TEST(MpiCollectivesSizes, AreSaidAsForNcclTests) {
  NEEDS_COLLECTIVES
  const auto run = [](const std::string& options) {
    return run_shell(
        "dir=$(mktemp -d); OMPI_MCA_orte_tmpdir_base=$dir mpirun.openmpi --allow-run-as-root "
        "--oversubscribe -n 2 --mca pml ob1 --mca btl self,vader " WEFT_COLLECTIVES
        " --json -n 1 -c broadcast " +
        options + "; code=$?; rm -r $dir; exit $code");
  };
  const Outcome outcome = run("-b 8 -e 0.5M -f 2");
  ASSERT_EQ(outcome.code, 0) << outcome.output;
  std::set<std::size_t> sizes;
  for (const auto& row : json_lines(outcome.output, "collective")) {
    sizes.insert(row.at("bytes").get<std::size_t>());
  }
  std::set<std::size_t> expected;
  for (std::size_t size = 8; size <= std::size_t{512} << 10; size *= 2) {
    expected.insert(size);
  }
  EXPECT_EQ(sizes, expected);
  for (const char* wrong : {"-e 64X", "-e 64KB", "-e K", "-e 2G", "-b 0"}) {
    EXPECT_NE(run(wrong).code, 0) << wrong;
  }
}

// Each rank on a host of its own, behind a leaf of its own: all messages cross the spines.
TEST(MpiCollectivesThroughSwitches, EveryElementIsRight) {
  NEEDS_COLLECTIVES
  const Outcome outcome = run_on_hosts("--topology " WEFT_FOUR_LEAVES, "", 4, "-e 16384 -n 2", 120);
  expect_right(outcome, 4, kAll, 4, 16384);
}

// Two ranks on each host. Packets overtake each other, on eight paths and in the devices, and some
// are lost and sent again. A run that lost nothing would show nothing: hence the last line.
TEST(MpiCollectivesThroughSwitches, EveryElementIsRightWhereOnePercentIsLost) {
  NEEDS_COLLECTIVES
  const Outcome outcome =
      run_on_hosts("--topology " WEFT_FOUR_LEAVES " --device efa:reorder",
                   "link: tor*-spine*, loss: 0.01", 8, "-e 16384 -n 1 -w 0", 120);
  expect_right(outcome, 8, kAll, 4, 16384);
  EXPECT_GT(lost(outcome, "loss"), 0U) << outcome.output;
}

// UCX sends its messages over reliable connections, or over datagrams and makes those reliable by
// itself.
struct OverUcx {
  const char* name;
  Messages by;
  int ranks;
};
class MpiCollectivesOverUcx : public ::testing::TestWithParam<OverUcx> {};

TEST_P(MpiCollectivesOverUcx, EveryElementIsRight) {
  NEEDS_COLLECTIVES
  WEFT_NEEDS("ucx_info");
  const auto& [name, by, ranks] = GetParam();
  const Outcome outcome = run_collectives("--device rxe", ranks, "-b 4 -e 262144 -n 2", 120, by);
  expect_right(outcome, ranks, kAll, 4, 262144);
}

TEST_P(MpiCollectivesOverUcx, EveryElementIsRightWhereOnePercentIsLost) {
  NEEDS_COLLECTIVES
  WEFT_NEEDS("ucx_info");
  const auto& [name, by, ranks] = GetParam();
  const Outcome outcome =
      run_on_hosts("--topology " WEFT_FOUR_LEAVES " --device rxe", "link: tor*-spine*, loss: 0.01",
                   ranks, "-e 16384 -n 1 -w 0", 120, by);
  expect_right(outcome, ranks, kAll, 4, 16384);
  EXPECT_GT(lost(outcome, "loss"), 0U) << outcome.output;
}

INSTANTIATE_TEST_SUITE_P(All, MpiCollectivesOverUcx,
                         ::testing::Values(OverUcx{"Connections", kUcxConnections, 4},
                                           OverUcx{"Datagrams", kUcxDatagrams, 4}),
                         [](const auto& test) { return std::string(test.param.name); });

// Up to the size with which users of nccl-tests often end. All collectives and eight ranks take
// minutes: that is for WEFT_LONG_TESTS; else two collectives of two ranks.
TEST(MpiCollectives, EveryElementIsRightUpTo64MiB) {
  NEEDS_COLLECTIVES
  const bool all = std::getenv("WEFT_LONG_TESTS") != nullptr;
  const int ranks = all ? 8 : 2;
  const Outcome outcome = run_collectives(
      "", ranks, all ? "-n 1 -w 0" : "-n 1 -w 0 -c all_reduce,all_to_all", all ? 550 : 150);
  expect_right(outcome, ranks, all ? kAll : std::set<std::string>{"all_reduce", "all_to_all"}, 4,
               std::size_t{64} << 20);
}

}  // namespace
}  // namespace weft::testing
