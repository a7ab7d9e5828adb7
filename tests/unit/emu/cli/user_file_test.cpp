// Owns the tests of files in which users describe a matrix of their own.
//
// What users write here becomes words of `weft run`, whose errors would speak of words that they
// have never seen: so every mistake must be found here, with its line.
#include "emu/cli/matrix/user_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "emu/fabric/fault.hpp"
#include "emu/fabric/topology_yaml.hpp"
#include "tests/support/temporary_folder.hpp"

namespace weft::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// As if it stood in my.yaml, for programs on that many hosts.
Result<UserMatrix> read(const std::string& text, std::size_t hosts = 2) {
  return read_user_matrix("my.yaml", text, "", hosts);
}

// One condition by the name of a built-in one, one with a network and faults of its own, one with a
// death.
TEST(UserMatrix, HasWhatTheFileSays) {
  const auto matrix = read(R"(
devices: [rxe, efa]
seeds: [7, 18446744073709551615]
conditions:
  - loss
  - name: bursts
    about: losses in a row
    topology:
      generator: leaf-spine
      hosts_per_leaf: 1
    faults:
      - {link: "tor*->spine*", burst_loss: {enter: 0.01, leave: 0.5}}
    late_receives: 5ms
    stop: ["{last}@100ms+50ms"]
  - name: gone
    kill: [h1@1s]
)",
                           3);
  ASSERT_TRUE(matrix) << matrix.error().message;
  EXPECT_THAT(matrix->devices, ElementsAre("rxe", "efa"));
  EXPECT_THAT(matrix->seeds, ElementsAre(7U, 18446744073709551615U));
  ASSERT_EQ(matrix->conditions.size(), 3U);
  EXPECT_EQ(matrix->conditions[0].faults, find_condition("loss")->faults);
  const Condition& bursts = matrix->conditions[1];
  EXPECT_EQ(bursts.about, "losses in a row");
  // As many hosts as the programs take.
  const auto network = fabric::read_topology("t", topology_text(bursts, 3), ".");
  ASSERT_TRUE(network) << network.error().message;
  EXPECT_EQ(network->ports().size(), 3U);
  EXPECT_THAT(run_options(bursts, 3),
              ElementsAre("--fault", "link: tor*->spine*, burst_loss: {enter: 0.01, leave: 0.5}",
                          "--stop", "h3@100ms+50ms", "--late-receives", "5ms"));
  EXPECT_TRUE(bursts.needs_peer());
  EXPECT_THAT(run_options(matrix->conditions[2], 3), ElementsAre("--kill", "h1@1s"));
}

// What `weft run` is told must be read there as it was meant here.
TEST(UserMatrix, PassesFaultsOnAsTheyWereMeant) {
  const auto matrix = read(R"(
conditions:
  - name: late
    faults:
      - link: "h1->fabric"
        name: "a: b, {c}"   # a comment
        extra_delay: 1ms
)");
  ASSERT_TRUE(matrix) << matrix.error().message;
  fabric::YamlFile file("fault");
  const fabric::Fault fault =
      fabric::read_fault(file, file.load("{" + matrix->conditions[0].faults[0] + "}"), "fault");
  ASSERT_FALSE(file.failed()) << file.error().message;
  EXPECT_EQ(fault.name, "a: b, {c}");
  EXPECT_EQ(fault.where, "h1->fabric");
  EXPECT_EQ(fault.impairment.extra_delay, std::chrono::milliseconds{1});
}

// Not in the folder that the command is run in.
TEST(UserMatrix, FindsItsFilesBesideIt) {
  const testing::TemporaryFolder folder;
  std::ofstream(folder.path() + "/net.yaml")
      << "topology:\n  nodes:\n    h1: {kind: host}\n    h2: {kind: host}\n"
         "    s: {}\n  links:\n    - {endpoints: [h1, s], rate: 10Gbps}\n"
         "    - {endpoints: [h2, s], rate: 10Gbps}\n";
  std::ofstream(folder.path() + "/my.yaml")
      << "conditions:\n  - {name: mine, topology: net.yaml, faults: [{link: h1->s, loss: 0.1}]}\n";
  const auto matrix = read_user_matrix(folder.path() + "/my.yaml", 2);
  ASSERT_TRUE(matrix) << matrix.error().message;
  EXPECT_EQ(matrix->conditions[0].topology_file, folder.path() + "/net.yaml");
  const auto too_many = read_user_matrix(folder.path() + "/my.yaml", 3);
  ASSERT_FALSE(too_many);
  EXPECT_THAT(too_many.error().message, HasSubstr("my.yaml:2: conditions[0].topology: "));
  EXPECT_THAT(too_many.error().message, HasSubstr("take 3 hosts, and this network has 2"));
  EXPECT_FALSE(read_user_matrix(folder.path() + "/none.yaml", 2));
}

struct Wrong {
  const char* text;
  const char* says;
};

// Every error has its line.
TEST(UserMatrix, SaysWhatIsWrongAndWhere) {
  const Wrong wrongs[] = {
      {"conditions: [", "my.yaml:"},
      {"- loss", "my.yaml:1:"},
      {"\ncondition: [loss]", "my.yaml:2: unknown key 'condition'"},
      {"conditions:\n  - nowhere", "my.yaml:2: conditions[0]: there is no condition 'nowhere'"},
      {"conditions:\n  - loss\n  - loss", "my.yaml:3: conditions[1]: condition 'loss' was already"},
      {"conditions:\n  - {about: x}", "my.yaml:2: conditions[0].name: expected"},
      {"conditions:\n  - name: a/b", "my.yaml:2: conditions[0].name: expected"},
      {"conditions:\n  - name: loss", "my.yaml:2: conditions[0].name: 'loss' is one of"},
      {"conditions:\n  - name: a\n    fault: []", "my.yaml:3: conditions[0]: unknown key 'fault'"},
      {"conditions:\n  - name: a\n    faults:\n      - {link: h1->fabric, loss: 2}",
       "my.yaml:4: conditions[0].faults[0].loss"},
      {"conditions:\n  - name: a\n    faults:\n      - {link: no->such, loss: 0.1}",
       "my.yaml:4: conditions[0].faults[0]: "},
      {"conditions:\n  - name: a\n    topology: none.yaml", "my.yaml:3: conditions[0].topology: "},
      {"conditions:\n  - name: a\n    topology: {generator: none}",
       "my.yaml:3: conditions[0].topology.generator: "},
      {"conditions:\n  - name: a\n    topology: []", "my.yaml:3: conditions[0].topology: "},
      {"conditions:\n  - name: a\n    kill: [h3@1s]", "my.yaml:3: conditions[0].kill[0]: there is"},
      {"conditions:\n  - name: a\n    kill: [h1]", "my.yaml:3: conditions[0].kill[0]: "},
      {"conditions:\n  - name: a\n    stop: h1@1s", "my.yaml:3: conditions[0].stop: expected"},
      {"conditions:\n  - name: a\n    late_receives: soon",
       "my.yaml:3: conditions[0].late_receives: "},
      {"devices: [efa, nothing]", "my.yaml:1: devices[1]: "},
      {"devices: [efa, efa]", "my.yaml:1: devices[1]: 'efa' was already given"},
      {"devices: [[]]", "my.yaml:1: devices[0]: "},
      {"seeds: [-1]", "my.yaml:1: seeds[0]: "},
      {"seeds: [18446744073709551616]", "my.yaml:1: seeds[0]: "},
      {"seeds: [1, 1]", "my.yaml:1: seeds[1]: seed 1 was already given"},
      {"seeds: 1\nseeds: 2", "my.yaml:2: "},
  };
  for (const Wrong& wrong : wrongs) {
    const auto matrix = read(wrong.text);
    ASSERT_FALSE(matrix) << wrong.text;
    EXPECT_THAT(matrix.error().message, HasSubstr(wrong.says)) << wrong.text;
  }
}

}  // namespace
}  // namespace weft::cli
