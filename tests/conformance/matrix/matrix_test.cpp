// Owns the proof that `weft matrix` finds what it is for: programs with one classic mistake each
// are green on the ideal network and red under the condition made for it, and one without is green
// everywhere.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "tests/conformance/run_weft.hpp"
#include "tests/support/temporary_folder.hpp"

namespace weft::testing {
namespace {

using nlohmann::json;

// What it keeps without being told where goes with the call.
Outcome run_matrix(const std::string& arguments, int seconds) {
  const TemporaryFolder temporary;
  return run_shell("TMPDIR=" + temporary.path() + " timeout " + std::to_string(seconds) +
                   " " WEFT_PROGRAM " matrix " + arguments);
}

// Both ends with the same options.
std::string talkers(const std::string& options) {
  return " -- " WEFT_TALKER " " + options + " --listen {h1.ip} : " WEFT_TALKER " " + options +
         " {h1.ip}";
}

// By condition.
std::map<std::string, json> cells_of(const Outcome& outcome) {
  std::map<std::string, json> cells;
  std::istringstream text(outcome.output);
  for (std::string line; std::getline(text, line);) {
    if (line.starts_with("{\"matrix\"")) {
      const json cell = json::parse(line);
      cells.emplace(cell["condition"], cell);
    }
  }
  return cells;
}

struct Planted {
  const char* mistake;
  const char* device;
  const char* condition;
};

class PlantedMistake : public ::testing::TestWithParam<Planted> {};

TEST_P(PlantedMistake, IsFoundUnderItsConditionAndNotWithoutTrouble) {
  WEFT_NEEDS_BUILT(WEFT_TALKER, "libibverbs-dev");
  const Planted& planted = GetParam();
  const TemporaryFolder folder;
  const Outcome outcome =
      run_matrix("--json --timeout 15 --keep " + folder.path() + " --device " + planted.device +
                     " --conditions ideal," + planted.condition +
                     talkers(std::string("--seconds 1.5 --mistake ") + planted.mistake),
                 120);
  auto cells = cells_of(outcome);
  EXPECT_EQ(cells["ideal"]["verdict"], "green") << outcome.output;
  EXPECT_EQ(cells[planted.condition]["verdict"], "red") << outcome.output;
  EXPECT_EQ(outcome.code, 1) << outcome.output;
  EXPECT_TRUE(std::filesystem::exists(cells[planted.condition]["log"].get<std::string>()));
}

INSTANTIATE_TEST_SUITE_P(
    Matrix, PlantedMistake,
    ::testing::Values(
        Planted{"ordering", "efa", "reorder"}, Planted{"last-byte", "efa", "reorder"},
        Planted{"forgets-receives", "efa", "reorder"}, Planted{"reuse", "efa", "loss"},
        Planted{"reuse", "rxe", "loss"}, Planted{"no-retries", "rxe", "loss"},
        Planted{"ignores-rnr", "efa", "receiver-not-ready"},
        Planted{"ignores-rnr", "rxe", "receiver-not-ready"},
        Planted{"leaks", "efa", "receiver-not-ready"}, Planted{"one-rail", "efa", "rail-down"},
        Planted{"one-rail", "rxe", "rail-down"}, Planted{"deadlock", "efa", "peer-dies"},
        Planted{"deadlock", "rxe", "peer-dies"}),
    [](const auto& one) {
      std::string name = std::string(one.param.mistake) + "_" + one.param.device;
      std::ranges::replace(name, '-', '_');
      return name;
    });

constexpr const char* kConditions[] = {
    "ideal",      "reorder",   "loss",      "duplication",        "corruption",
    "dying-path", "rail-down", "slow-peer", "receiver-not-ready", "peer-dies"};

class CorrectProgram : public ::testing::TestWithParam<const char*> {};

// Twice on each device, or a hundred times with WEFT_LONG_TESTS.
TEST_P(CorrectProgram, IsGreen) {
  WEFT_NEEDS_BUILT(WEFT_TALKER, "libibverbs-dev");
  const int rounds = std::getenv("WEFT_LONG_TESTS") != nullptr ? 100 : 2;
  const TemporaryFolder folder;
  const std::string junit = folder.path() + "/matrix.xml";
  const Outcome outcome =
      run_matrix("--device efa,rxe --seeds " + std::to_string(rounds) + " --conditions " +
                     GetParam() + " --junit " + junit + talkers("--seconds 1.2"),
                 rounds * 120);
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_TRUE(outcome.says(std::to_string(2 * rounds) + " green, 0 red")) << outcome.output;
  EXPECT_FALSE(outcome.says("had ended before")) << outcome.output;
  const std::string parse = "import sys, xml.dom.minidom as m; m.parse(sys.argv[1])";
  EXPECT_EQ(run_shell("python3 -c '" + parse + "' " + junit).code, 0);
}

std::string test_name(std::string name) {
  std::ranges::replace(name, '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Matrix, CorrectProgram, ::testing::ValuesIn(kConditions),
                         [](const auto& one) { return test_name(one.param); });

TEST(Matrix, ListsTheConditionsThatAreTried) {
  const Outcome outcome = run_matrix("--list", 20);
  EXPECT_EQ(outcome.code, 0);
  for (const char* condition : kConditions) {
    EXPECT_TRUE(outcome.says(std::string(condition) + "\n    ")) << condition;
  }
  const auto lines = std::ranges::count(outcome.output, '\n');
  EXPECT_EQ(lines, 3 * std::ssize(kConditions)) << "a condition is not tried here";
}

// What is wrong with the question is said before anything runs.
TEST(Matrix, RefusesWhatItCannotRun) {
  for (const char* arguments :
       {"", "-- true : ", "--conditions nowhere -- true", "--device nothing -- true",
        "-n 2 -- true : true", "--timeout 0 -- true", "--seeds 0 -- true", "--no-such -- true",
        "-n 1024 -- true", "--device efa,efa -- true", "--conditions ideal,ideal -- true",
        "--first-seed 18446744073709551615 --seeds 2 -- true", "/no/such.yaml -- true"}) {
    EXPECT_EQ(run_matrix(arguments, 20).code, 2) << arguments;
  }
  EXPECT_EQ(run_matrix("--device none --conditions ideal --junit /no/such -- true", 20).code, 1);
}

TEST(Matrix, SaysWhatFailedAndHowToRepeatIt) {
  const Outcome outcome = run_matrix(
      "--device none --conditions ideal -n 2 -- sh -c 'echo said by $WEFT_HOST; test $WEFT_HOST != "
      "h2 || exit 7'",
      30);
  EXPECT_EQ(outcome.code, 1);
  EXPECT_TRUE(outcome.says("FAILED h2: exit 7")) << outcome.output;
  EXPECT_TRUE(outcome.says("| [h2] said by h2")) << outcome.output;
  EXPECT_TRUE(
      outcome.says("repeat: weft run --device none -n 2 --through-weftd --seed 1 -- sh -c "
                   "'echo said by $WEFT_HOST; test $WEFT_HOST != h2 || exit 7'"))
      << outcome.output;
}

// On a busy machine a program may not have begun yet when the time of its cell is over.
TEST(Matrix, SaysWhereAHangWaits) {
  Outcome outcome;
  const TemporaryFolder folder;
  for (int timeout = 1; timeout <= 64 && !outcome.says("h1: sleep (process "); timeout *= 2) {
    outcome = run_matrix("--device none --conditions ideal --timeout " + std::to_string(timeout) +
                             " --keep " + folder.path() + " -- sleep 600 : true",
                         120);
    EXPECT_EQ(outcome.code, 1);
    EXPECT_TRUE(outcome.says("hang: not over after ")) << outcome.output;
  }
  EXPECT_TRUE(outcome.says("h1: sleep (process ")) << outcome.output;
  EXPECT_TRUE(outcome.says(" waits")) << outcome.output;
  if (!has("gdb") && !has("eu-stack")) {
    GTEST_SKIP() << "neither gdb nor eu-stack; install one to see the stacks, too";
  }
  const std::string stacks = run_shell("cat " + folder.path() + "/*/stacks").output;
  EXPECT_NE(stacks.find("== h1: sleep (process "), std::string::npos) << stacks;
  if (stacks.find("not permitted") != std::string::npos) {
    GTEST_SKIP() << "a debugger may not look at programs here";
  }
  EXPECT_TRUE(outcome.says("  #0 ")) << outcome.output;
}

// A program of the last host that says where it is, and what its peer waits for: that it is dead.
std::string dying(const std::string& mark, const std::string& then) {
  return "-- sh -c 'until test -s " + mark + "; do sleep 0.1; done; while kill -0 $(cat " + mark +
         ") 2>/dev/null; do sleep 0.1; done; " + then + "' : sh -c 'echo $$ > " + mark +
         "; exec sleep 600'";
}

// Survivors may fail, but not crash; with one host there is no survivor.
TEST(Matrix, JudgesSurvivorsByHowTheyEnd) {
  const TemporaryFolder folder;
  const std::string mark = folder.path() + "/mark";
  const std::string dies = "--device none --conditions peer-dies ";
  for (const auto& [then, code] : {std::pair{"exit 3", 0}, {"exit 255", 0}, {"kill -SEGV $$", 1}}) {
    const Outcome outcome = run_matrix(dies + dying(mark, then), 90);
    EXPECT_EQ(outcome.code, code) << then << ": " << outcome.output;
    EXPECT_TRUE(outcome.says(code == 0 ? "1 green, 0 red" : "signal 11")) << outcome.output;
    std::filesystem::remove(mark);
  }
  const Outcome alone = run_matrix(dies + "-- true", 90);
  EXPECT_EQ(alone.code, 0);
  EXPECT_TRUE(alone.says("1 skipped")) << alone.output;
}

// A condition that did not happen is neither green nor red.
TEST(Matrix, SkipsWhatDidNotHappen) {
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/my.yaml";
  std::ofstream(file) << "devices: [none]\nconditions:\n  - {name: late-death, kill: [h2@1000s]}\n"
                         "  - {name: late-pause, stop: [h1@1000s+1s]}\n";
  const Outcome late = run_matrix(file + " -- true : true", 90);
  EXPECT_EQ(late.code, 0) << late.output;
  EXPECT_TRUE(late.says("0 green, 0 red, 2 skipped")) << late.output;
  EXPECT_TRUE(late.says("nobody was killed: all had ended before")) << late.output;
  EXPECT_TRUE(late.says("nobody was stopped: all had ended before")) << late.output;
}

TEST(Matrix, RunsAMatrixOfOnesOwn) {
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/my.yaml";
  std::ofstream(file)
      << "devices: [none]\nseeds: [3, 9]\nconditions:\n  - ideal\n"
         "  - name: far\n    topology: {generator: leaf-spine, hosts_per_leaf: 1, delay: 1ms}\n"
         "    faults:\n      - {link: \"tor*->spine*\", loss: 0.5}\n";
  const Outcome outcome = run_matrix(file + " -- true : sh -c 'exit 5'", 90);
  EXPECT_EQ(outcome.code, 1) << outcome.output;
  EXPECT_TRUE(outcome.says("0 green, 4 red")) << outcome.output;
  EXPECT_TRUE(outcome.says("far, none, seed 9: h2: exit 5")) << outcome.output;
  EXPECT_TRUE(outcome.says("--fault 'link: tor*->spine*, loss: 0.5' --seed 9")) << outcome.output;
  std::ofstream(file) << "conditions:\n  - {name: far, fault: []}\n";
  const Outcome wrong = run_matrix(file + " -- true", 90);
  EXPECT_EQ(wrong.code, 2);
  EXPECT_TRUE(wrong.says("my.yaml:2: conditions[0]: unknown key 'fault'")) << wrong.output;
}

TEST(Matrix, EndsItsChildrenWhenItIsInterrupted) {
  const TemporaryFolder folder;
  const std::string mark = "73" + std::to_string(::getpid());  // an odd number of seconds
  const std::string runs = "pgrep -xf 'sleep " + mark + "' > /dev/null";
  const Outcome outcome = run_shell(
      "TMPDIR=" + folder.path() + " timeout 90 " WEFT_PROGRAM " matrix --device none -- sleep " +
      mark + " & until " + runs + " || ! kill -0 $!; do sleep 0.1; done; kill -TERM $!; wait $!");
  EXPECT_EQ(outcome.code, 143) << outcome.output;
  EXPECT_TRUE(outcome.says("not run")) << outcome.output;
  EXPECT_NE(run_shell(runs).code, 0);
  EXPECT_FALSE(run_shell("ls " + folder.path()).says("weft-matrix")) << "something is left";
}

// Also out of a session of their own, as daemons have it.
TEST(Matrix, EndsWhatOutlivesItsCell) {
  const TemporaryFolder folder;
  const std::string mark = "74" + std::to_string(::getpid());
  const Outcome outcome = run_matrix("--device none --conditions ideal --keep " + folder.path() +
                                         " -- sh -c 'setsid sleep " + mark + " & until pgrep -xf " +
                                         "\"sleep " + mark + "\"; do sleep 0.1; done'",
                                     90);
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_NE(run_shell("pgrep -xf 'sleep " + mark + "'").code, 0);
  EXPECT_TRUE(run_shell("cat " + folder.path() + "/*/log").says("ended sleep (process "));
}

TEST(Matrix, KeepsCapturesOnRequest) {
  const TemporaryFolder folder;
  const Outcome outcome = run_matrix(
      "--device none --capture --conditions ideal --keep " + folder.path() + " -- sh -c 'exit 3'",
      90);
  EXPECT_EQ(outcome.code, 1) << outcome.output;
  EXPECT_TRUE(run_shell("ls " + folder.path() + "/*/run").says("capture.pcapng"));
}

// What it leaves behind when it is killed, the next one removes.
TEST(Matrix, RemovesWhatAKilledOneLeft) {
  const TemporaryFolder folder;
  const std::string mark = "75" + std::to_string(::getpid());
  const std::string runs = "pgrep -xf 'sleep " + mark + "' > /dev/null";
  const std::string matrix = "TMPDIR=" + folder.path() + " " WEFT_PROGRAM " matrix --device none ";
  run_shell(matrix + "-- sleep " + mark + " & until " + runs +
            " || ! kill -0 $!; do sleep 0.1; done; kill -KILL $!; while " + runs +
            "; do sleep 0.1; done");
  EXPECT_TRUE(run_shell("ls " + folder.path()).says("weft-matrix"));
  // The processes of the killed one hold its folder until they have ended.
  for (int i = 0; i < 100 && run_shell("ls " + folder.path()).says("weft-matrix"); ++i) {
    EXPECT_EQ(run_shell(matrix + "--conditions ideal -- sleep 0.1").code, 0);
  }
  EXPECT_FALSE(run_shell("ls " + folder.path()).says("weft-matrix"));
}

TEST(Matrix, EndsACellThatPrintsWithoutEnd) {
  const TemporaryFolder folder;
  const Outcome outcome =
      run_matrix("--device none --conditions ideal --keep " + folder.path() + " -- yes", 90);
  EXPECT_EQ(outcome.code, 1);
  EXPECT_TRUE(outcome.says("output: more than 64 MiB")) << outcome.output;
  EXPECT_EQ(run_shell("cat " + folder.path() + "/*/log | wc -c").output, "67108864\n");
}

// A report that cannot be written costs neither the table nor the other report.
TEST(Matrix, TellsItsResultsWhateverReportFails) {
  const TemporaryFolder folder;
  const std::string page = folder.path() + "/matrix.md";
  const Outcome outcome = run_matrix(
      "--device none --conditions ideal --junit /dev/full --markdown " + page + " -- true", 90);
  EXPECT_EQ(outcome.code, 1);
  EXPECT_TRUE(outcome.says("1 green, 0 red")) << outcome.output;
  EXPECT_TRUE(outcome.says("cannot write '/dev/full': No space left")) << outcome.output;
  EXPECT_TRUE(run_shell("cat " + page).says("1 green, 0 red"));
  const Outcome unheard = run_matrix(
      "--device none --conditions ideal --markdown " + page + " -- true > /dev/full", 90);
  EXPECT_EQ(unheard.code, 1) << unheard.output;
  EXPECT_TRUE(run_shell("cat " + page).says("1 green, 0 red"));
}

// The options of `weft run` that conditions are made of.
TEST(Matrix, ProgramsAreKilledAndStoppedOnTime) {
  const TemporaryFolder folder;
  const std::string mark = folder.path() + "/mark";
  const Outcome killed = run_weft("--device none --kill h2@300ms " + dying(mark, "exit 0"), 90);
  EXPECT_EQ(killed.code, 0) << killed.output;
  EXPECT_TRUE(killed.says("137")) << killed.output;
  // It ends when it is continued, and not before.
  const Outcome stopped = run_weft("--device none --stop h1@100ms+1500ms --out " + folder.path() +
                                       "/run -- sh -c 'trap \"exit 0\" CONT; while :; do sleep "
                                       "0.1; done'",
                                   90);
  EXPECT_EQ(stopped.code, 0) << stopped.output;
  EXPECT_TRUE(run_shell("cat " + folder.path() + "/run/events.jsonl").says("\"stopped\":true"));
  for (const char* wrong : {"--kill h3@1s", "--kill h1", "--kill @1s", "--stop h1@1s",
                            "--stop h1@1s+0s", "--late-receives soon", "--late-receives ''"}) {
    EXPECT_EQ(run_weft("--device none " + std::string(wrong) + " -- true : true", 20).code, 2)
        << wrong;
  }
}

}  // namespace
}  // namespace weft::testing
