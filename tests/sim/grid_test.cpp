// Owns the tests of grid files, and of the built-in grid.
#include "emu/sim/grid.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "emu/scenarios/scenarios.hpp"

namespace weft::sim {
namespace {

// The grid that ships with weft, as `weft sim` reads it.
Grid built_in() {
  auto grid = read_grid("grid.yaml", std::string(scenarios::built_in_grid()));
  EXPECT_TRUE(grid) << (grid ? "" : grid.error().message);
  return grid ? *grid : Grid{};
}

// One cell and one gap: the second condition asks for a word that the topology does not define.
const char* const kSmall = R"(
policies: [{name: a}, {name: b, set: {transport.path_selector: ecmp}}]
workloads:
- {name: w, points: {p: {bytes: 5000}}, metrics: [tail], traffic: {kind: tornado, bytes: $bytes}}
topologies:
- name: t
  topology: {generator: leaf-spine, hosts: 4, hosts_per_leaf: 2}
  words: {some: "tor0-spine0"}
conditions: [{name: c, faults: [{link: $some, loss: 0.1}]}, {name: d, faults: $none}]
must: [{what: near, measure: of_best, at_most: 1.05, in_share: 0.9}]
)";

std::string error(const std::string& text) {
  const auto grid = read_grid("g.yaml", text);
  return grid ? "accepted" : grid.error().message;
}

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  const auto at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return text.replace(at, what.size(), by);
}

TEST(Grid, CellsAreAllCombinationsAndGapsSayWhy) {
  const auto grid = read_grid("g.yaml", kSmall);
  ASSERT_TRUE(grid) << grid.error().message;
  ASSERT_EQ(grid->cells.size(), 1U);
  EXPECT_EQ(grid->cells[0].name, "w/p/t/c");
  EXPECT_NE(grid->cells[0].text.find("bytes: 5000"), std::string::npos) << grid->cells[0].text;
  EXPECT_NE(grid->cells[0].text.find("tor0-spine0"), std::string::npos) << grid->cells[0].text;
  ASSERT_EQ(grid->gaps.size(), 1U);
  EXPECT_EQ(grid->gaps[0].name, "w/p/t/d");
  EXPECT_EQ(grid->gaps[0].reason, "the topology t has no none");
}

TEST(Grid, EveryKindOfCellOfTheBuiltInOneCanBeRead) {
  const Grid grid = built_in();
  EXPECT_GT(grid.cells.size(), 4000U);
  EXPECT_EQ(grid.policies.front().name, "default");
  std::set<std::string> names;
  std::set<std::string> kinds;  // of workload, network and condition: sizes differ in numbers only
  for (const GridCell& cell : grid.cells) {
    EXPECT_TRUE(names.insert(cell.name).second) << cell.name;
    if (!kinds.insert(cell.workload + cell.topology + cell.condition).second) {
      continue;
    }
    const auto scenario = read_scenario(cell.name, cell.text, cell.set, "");
    ASSERT_TRUE(scenario) << scenario.error().message << "\n" << cell.text;
    EXPECT_GT(scenario->ideal.all_us, 0) << cell.name;
  }
  for (const GridPolicy& policy : grid.policies) {
    const auto scenario = read_scenario(policy.name, grid.cells.front().text, policy.set, "");
    EXPECT_TRUE(scenario) << policy.name << ": " << scenario.error().message;
  }
  for (const GridGap& gap : grid.gaps) {
    EXPECT_FALSE(gap.reason.empty()) << gap.name;
  }
}

// By the hash of the name, so that nobody chooses.
TEST(Grid, HalvesAreDrawnByTheNames) {
  // The published values of FNV-1a: another hash would move cells between the halves.
  EXPECT_EQ(fnv1a(""), 0xCBF29CE484222325ULL);
  EXPECT_EQ(fnv1a("foobar"), 0x85944171F73967E8ULL);
  const Grid grid = built_in();
  std::size_t tune = 0;
  for (const GridCell& cell : grid.cells) {
    EXPECT_EQ(cell.half, fnv1a(cell.name) % 2 == 0 ? "tune" : "held-out") << cell.name;
    tune += cell.half == "tune" ? 1 : 0;
  }
  EXPECT_NEAR(static_cast<double>(tune) / static_cast<double>(grid.cells.size()), 0.5, 0.05);
}

TEST(Grid, SizesGoFromOnePacketToSixteenWindowsOfTheNetwork) {
  const Grid grid = built_in();
  const auto count = [&](const std::string& topology) {
    return std::count_if(grid.cells.begin(), grid.cells.end(), [&](const GridCell& cell) {
      return cell.workload == "permutation" && cell.topology == topology &&
             cell.condition == "healthy";
    });
  };
  // 29 packets are a window of two tiers at 100G, 105 at 400G: 1, 2, 4 ... 256, and ... 1024.
  EXPECT_EQ(count("2-tier"), 9);
  EXPECT_EQ(count("2-tier-400G"), 11);
}

TEST(Grid, SamplesAreDrawnBySeedAndKeepTheOrder) {
  const Grid grid = built_in();
  const auto names = [&](std::uint64_t seed) {
    std::vector<std::string> list;
    for (const GridCell& cell : sample(grid.cells, 20, seed)) {
      list.push_back(cell.name);
    }
    return list;
  };
  EXPECT_EQ(names(1).size(), 20U);
  EXPECT_EQ(names(1), names(1));
  EXPECT_NE(names(1), names(2));
  EXPECT_EQ(sample(grid.cells, 1'000'000, 1).size(), grid.cells.size());
}

TEST(Grid, SaysWhatIsWrongWithAFile) {
  EXPECT_EQ(error(kSmall), "accepted");
  struct Row {
    const char* what;
    const char* by;
    const char* expected;
  };
  for (const Row& row : {
           Row{"metrics: [tail]", "metrics: [speed]", "expected one of tail, p50"},
           Row{"metrics: [tail]", "metrics: []", "at least one metric"},
           Row{"{name: b,", "{name: a,", "there is another one called 'a'"},
           Row{"{name: w,", "{name: w/x,", "without '/'"},
           Row{"hosts: 4,", "hosts: 5,", "5 hosts do not fill leaves of 2"},
           Row{"measure: of_best", "measure: luck", "expected one of of_best"},
           Row{"conditions: [{name: c", "weather: 1\nconditions: [{name: c",
               "unknown key 'weather'"},
           Row{"{name: a},", "{name: a, sets: 1},", "unknown key 'sets'"},
       }) {
    const std::string message = error(replaced(kSmall, row.what, row.by));
    EXPECT_NE(message.find(row.expected), std::string::npos) << message;
    EXPECT_EQ(message.find("g.yaml"), 0U) << message;
  }
  EXPECT_NE(error("[]").find("expected a grid"), std::string::npos);
  EXPECT_NE(error("policies: [{name: a}]\n"), "accepted");
  EXPECT_NE(error(""), "accepted");
}

}  // namespace
}  // namespace weft::sim
