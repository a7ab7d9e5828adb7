// Owns the tests of the matrix' conditions, of its verdicts, of how its results are told, and of
// how command lines name what happens to programs.
//
// `weft matrix` runs one command under many conditions (loss, a peer that dies, ...), devices and
// seeds. A cell is one such run. No program runs here: a CellEnd says how the run ended, and the
// tests judge the judge.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "emu/cli/matrix/report.hpp"
#include "emu/cli/matrix/shelf.hpp"
#include "emu/cli/programs.hpp"
#include "emu/fabric/fabric.hpp"
#include "emu/fabric/topology_yaml.hpp"
#include "tests/support/temporary_folder.hpp"

namespace weft::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// Users choose conditions by name, and read what they show when one has failed.
TEST(Conditions, HaveNamesAndSayWhatTheyAre) {
  std::set<std::string> names;
  for (const Condition& condition : all_conditions()) {
    EXPECT_TRUE(names.insert(condition.name).second) << condition.name;
    EXPECT_FALSE(condition.about.empty() || condition.shows.empty()) << condition.name;
    EXPECT_EQ(find_condition(condition.name), &condition);
  }
  EXPECT_EQ(find_condition("none of these"), nullptr);
}

// For any number of hosts the network is one, and all that is to happen to it can.
TEST(Conditions, AreNetworksWithFaults) {
  for (const Condition& condition : all_conditions()) {
    for (const std::size_t hosts : {1U, 2U, 3U, 16U}) {
      SCOPED_TRACE(std::string(condition.name) + " with " + std::to_string(hosts));
      if (condition.topology.empty()) {
        EXPECT_TRUE(condition.faults.empty());
        continue;
      }
      const auto net = fabric::read_topology("topology.yaml", topology_text(condition, hosts), ".");
      ASSERT_TRUE(net) << net.error().message;
      EXPECT_GE(net->ports().size(), hosts);
      fabric::Fabric fabric(*net, {});
      for (const std::string& text : condition.faults) {
        fabric::YamlFile file("fault");
        const fabric::Fault fault = fabric::read_fault(file, file.load("{" + text + "}"), "fault");
        ASSERT_FALSE(file.failed()) << file.error().message;
        const auto applied = fabric.apply(0, fault);
        EXPECT_TRUE(applied) << text << ": " << applied.error().message;
      }
    }
  }
}

// So the programs of all other hosts are left, and it is them that the verdict is about.
TEST(Conditions, BefallTheLastHost) {
  EXPECT_THAT(run_options(*find_condition("peer-dies"), 3), ElementsAre("--kill", "h3@500ms"));
}

// --- Verdicts.

// The timeout stands in what is said about a hang.
Judgement judged(const char* condition, CellEnd end) {
  end.timeout = std::chrono::seconds{60};
  return judge(*find_condition(condition), end);
}

// A program that a signal has ended is told by the signal, and `weft run` itself only where no
// program has failed.
TEST(Verdicts, AreGreenWhereEverythingSucceeds) {
  EXPECT_EQ(judged("ideal", {.programs = {{"h1"}, {"h2"}}}).verdict, Verdict::green);
  const Judgement failed = judged("ideal", {.programs = {{"h1"}, {"h2", 7}}, .code = 7});
  EXPECT_EQ(failed.verdict, Verdict::red);
  EXPECT_EQ(failed.reason, "h2: exit 7");
  EXPECT_EQ(judged("loss", {.programs = {{"h1", 139, SIGSEGV}}, .code = 139}).reason,
            "h1: signal 11");
  EXPECT_EQ(judged("ideal", {.code = 1}).reason, "weft run: exit 1");
}

// What was to happen and did not says nothing about the program.
TEST(Verdicts, AreNoneWhereTheConditionDidNotHappen) {
  const CellEnd quick{.programs = {{"h1"}, {"h2"}}};
  for (const char* condition : {"peer-dies", "slow-peer"}) {
    const Judgement judgement = judged(condition, quick);
    EXPECT_EQ(judgement.verdict, Verdict::skipped) << condition;
    EXPECT_THAT(judgement.reason, HasSubstr("all had ended before")) << condition;
  }
  const Judgement stopped =
      judged("slow-peer", {.programs = {{"h1"}, {.name = "h2", .stopped = true}}});
  EXPECT_EQ(stopped.verdict, Verdict::green);
  // It fails without the condition.
  EXPECT_EQ(judged("peer-dies", {.programs = {{"h1", 3}, {"h2"}}, .code = 3}).reason, "h1: exit 3");
}

// When its peer dies, a program may give up with any exit code. What it may not do is crash.
TEST(Verdicts, AllowSurvivorsToFailButNotToCrash) {
  const NotedEnd dead{.name = "h2", .code = 137, .signal = SIGKILL, .killed = true};
  const auto survives = [&](const NotedEnd& survivor, int code) {
    return judged("peer-dies", {.programs = {survivor, dead}, .code = code});
  };
  EXPECT_EQ(survives({"h1", 0}, 0).verdict, Verdict::green);
  EXPECT_EQ(survives({"h1", 3}, 3).verdict, Verdict::green);
  // exit(-1), or any other number that a program chooses.
  EXPECT_EQ(survives({"h1", 255}, 255).verdict, Verdict::green);
  EXPECT_EQ(survives({"h1", 200}, 200).verdict, Verdict::green);
  // A shell's code for SIGINT, which a program may choose for itself.
  EXPECT_EQ(survives({"h1", 130}, 130).verdict, Verdict::green);
  EXPECT_EQ(survives({"h1", 139, SIGSEGV}, 139).reason, "h1: signal 11");
  EXPECT_EQ(survives({"h1", 141, SIGPIPE}, 141).reason, "h1: signal 13");
  // A shell that says so of what it ran.
  EXPECT_EQ(survives({"h1", 134}, 134).reason, "h1: exit 134");
  // `weft run` failed, and no program did.
  EXPECT_EQ(survives({"h1", 0}, 1).reason, "weft run: exit 1");
}

// 143 is SIGTERM, here the matrix' own, which must not be taken for a crash.
TEST(Verdicts, NameWhatTheMatrixEnded) {
  EXPECT_EQ(judged("ideal", {.code = 143, .timed_out = true}).reason, "hang: not over after 60 s");
  EXPECT_EQ(judged("peer-dies", {.code = 143, .said_too_much = true}).reason,
            "output: more than 64 MiB");
  const Judgement interrupted = judged("ideal", {.code = 143, .interrupted = true});
  EXPECT_EQ(interrupted.verdict, Verdict::not_run);
}

// --- Folders of cells.

void write_file(const std::string& path, const std::string& text = "text") {
  std::ofstream(path) << text;
}

// The devices differ only in signs that a file name cannot have, and one name is longer than a
// file's may be.
TEST(Shelves, GiveEachCellAFolderOfItsOwn) {
  const testing::TemporaryFolder folder;
  const Shelf shelf(folder.path());
  std::set<std::string> paths;
  std::size_t number = 0;
  for (const char* device : {"efa:a/b.yaml", "efa:a_b.yaml", "efa:a:b.yaml"}) {
    const std::string path =
        shelf.make_place_for({find_condition("loss"), device, 1}, ++number, 12);
    EXPECT_TRUE(paths.insert(path).second) << path;
    EXPECT_TRUE(std::filesystem::is_directory(path));
    EXPECT_EQ(std::filesystem::path(path).parent_path(), folder.path());
  }
  EXPECT_THAT(*paths.begin(), HasSubstr("/01-loss-efa_a_b.yaml-1"));
  const std::string deep(1000, 'd');
  EXPECT_NO_THROW((void)shelf.make_place_for({find_condition("loss"), deep, 1}, 4, 12));
}

// An earlier cell's words must not pass for those of this one, and what is the user's stays.
TEST(Shelves, ReplaceWhatAnEarlierMatrixLeftAndNothingElse) {
  const testing::TemporaryFolder folder;
  const Cell cell{find_condition("loss"), "efa", 1};
  std::string path;
  {
    const Shelf shelf(folder.path());
    path = shelf.make_place_for(cell, 1, 1);
    std::filesystem::create_directory(path + "/run");
    write_file(path + "/log");
    write_file(path + "/run/events.jsonl");
    write_file(path + "/run/.weft-run", "events.jsonl\n");
  }
  {
    const Shelf shelf(folder.path());
    EXPECT_EQ(shelf.make_place_for(cell, 1, 1), path);
    EXPECT_FALSE(std::filesystem::exists(path + "/log"));
    EXPECT_FALSE(std::filesystem::exists(path + "/run"));
    write_file(path + "/log");
    write_file(path + "/notes");
  }
  const Shelf shelf(folder.path());
  EXPECT_THROW((void)shelf.make_place_for(cell, 1, 1), std::runtime_error);
  EXPECT_TRUE(std::filesystem::exists(path + "/notes"));
  std::filesystem::remove_all(path);
  std::filesystem::create_directory(path);
  write_file(path + "/log", "the user's");
  EXPECT_THROW((void)shelf.make_place_for(cell, 1, 1), std::runtime_error);
  EXPECT_TRUE(std::filesystem::exists(path + "/log"));
}

// Two in one folder would each remove what the other has written.
TEST(Shelves, BelongToOneMatrixAtATime) {
  const testing::TemporaryFolder folder;
  const Shelf shelf(folder.path());
  EXPECT_THROW(const Shelf other(folder.path()), std::runtime_error);
}

// One cell of each verdict: green, skipped, red with all that is known of a hang, and not run. Its
// texts hold what each format would trip over: signs of XML and Markdown, a control character,
// bytes that are no UTF-8.
std::vector<CellResult> results() {
  const Condition* const ideal = find_condition("ideal");
  const Condition* const loss = find_condition("loss");
  CellResult hang{.cell = {loss, "efa", 1}, .verdict = Verdict::red, .seconds = 60};
  hang.reason = "hang: not over after 60 s";
  hang.waits = {"h1: a|b (process 7) waits in read()"};
  hang.stacks = {"#0  0x1 in read ()"};
  hang.command = "weft run -- 'a & b'";
  hang.log = "/tmp/log";
  hang.tail = {"said <\"it\"> & \x01\xFF]]> \xC3\xA9", "```"};
  return {{.cell = {ideal, "efa", 1}, .verdict = Verdict::green, .seconds = 1.25},
          {.cell = {ideal, "rxe", 1}, .verdict = Verdict::skipped, .reason = "needs two hosts"},
          hang,
          {.cell = {loss, "rxe", 1}}};
}

// Seeds are told apart only where there are several.
TEST(MatrixReport, IsATableWithDevicesSideBySide) {
  EXPECT_EQ(matrix_table(results()),
            "condition  efa          rxe\n"
            "ideal      1.2 s        skipped\n"
            "loss       FAILED hang  not run\n"
            "1 green, 1 red, 1 skipped, 1 not run\n");
  auto seeds = results();
  seeds[1].cell.seed = 2;
  EXPECT_THAT(matrix_table(seeds), HasSubstr("efa #1"));
}

// All that somebody needs who was not there; of the green ones nothing.
TEST(MatrixReport, SaysOfRedCellsHowToRepeatThem) {
  const std::string text = matrix_failures(results());
  EXPECT_THAT(text, HasSubstr("loss, efa, seed 1: hang: not over after 60 s\n"));
  EXPECT_THAT(text, HasSubstr("  h1: a|b (process 7) waits in read()\n"));
  EXPECT_THAT(text, HasSubstr("  #0  0x1 in read ()\n"));
  EXPECT_THAT(text, HasSubstr("  repeat: weft run -- 'a & b'\n  log: /tmp/log\n"));
  EXPECT_THAT(text, Not(HasSubstr("ideal")));
}

// Whatever bytes a program prints.
TEST(MatrixReport, IsXmlWithoutWhatXmlForbids) {
  const std::string text = matrix_junit(results());
  EXPECT_THAT(text, HasSubstr("<testsuites tests=\"4\" failures=\"1\" errors=\"0\" skipped=\"2\" "
                              "time=\"61.250\">"));
  EXPECT_THAT(text, HasSubstr("<testcase classname=\"weft.matrix.efa\" name=\"ideal seed 1\" "
                              "time=\"1.250\"/>"));
  EXPECT_THAT(text, HasSubstr("said &lt;&quot;it&quot;&gt; &amp; ??]]&gt; \xC3\xA9&#10;"));
  EXPECT_THAT(text, HasSubstr("<skipped message=\"needs two hosts\"/>"));
}

// Indented by four, text is code whatever it holds; a fence would end at the program's own fence.
TEST(MatrixReport, IsMarkdownInWhichNothingOfAProgramIsAMark) {
  const std::string text = matrix_markdown(results());
  EXPECT_THAT(text, HasSubstr("| condition | efa | rxe |\n|---|---|---|\n| ideal | 1.2 s | "
                              "skipped |\n| loss | **FAILED hang** | not run |\n"));
  EXPECT_THAT(text, HasSubstr("\n    | ```\n"));
  EXPECT_THAT(text, HasSubstr("\n    h1: a|b (process 7) waits in read()\n"));
}

// A line of a report that has a line end of its own stays code to its end.
TEST(MatrixReport, KeepsCommandsOfSeveralLinesInTheirBlock) {
  std::vector<CellResult> red = results();
  for (CellResult& result : red) {
    result.command = "weft run -- sh -c 'false\n\n# a title\n<script>'";
  }
  EXPECT_THAT(matrix_markdown(red),
              HasSubstr("\n    repeat: weft run -- sh -c 'false\n    \n    # a title\n"
                        "    <script>'\n"));
}

TEST(MatrixReport, IsJson) {
  const std::string text = matrix_json(results());
  EXPECT_THAT(text,
              HasSubstr("{\"matrix\":true,\"condition\":\"loss\",\"device\":\"efa\",\"seed\":1,"
                        "\"verdict\":\"red\",\"seconds\":60.0"));
  EXPECT_THAT(text, HasSubstr("{\"cells\":{\"not_run\":1,\"skipped\":1,\"green\":1,\"red\":1}}\n"));
}

TEST(MatrixReport, QuotesCommandsForAShell) {
  EXPECT_EQ(shell_line({"weft", "it's", "", "{h1.ip}", "a=b"}), "weft 'it'\\''s' '' '{h1.ip}' a=b");
}

// As `weft run` and `weft matrix` have them behind `--`: one command for each host.
TEST(Commands, AreDividedByColons) {
  const auto split = split_commands({"a", "b", ":", "c"}, {});
  ASSERT_TRUE(split);
  EXPECT_THAT(*split, ElementsAre(ElementsAre("a", "b"), ElementsAre("c")));
  EXPECT_FALSE(split_commands({}, {}));
  EXPECT_FALSE(split_commands({"a", ":"}, {}));
}

// `h2.1` is one program of a host that has several, `h2` all of them; neither may mean h20 or
// h2.10.
TEST(Mishaps, AreReadFromCommandLines) {
  const auto kill = parse_kill("h2.1@1s");
  ASSERT_TRUE(kill);
  EXPECT_EQ(kill->at.count(), 1000);
  EXPECT_TRUE(kill->befalls("h2.1"));
  EXPECT_FALSE(kill->befalls("h2.10"));
  const auto stop = parse_stop("h2@100ms+50ms");
  ASSERT_TRUE(stop);
  EXPECT_EQ(stop->lasts.count(), 50);
  EXPECT_TRUE(stop->befalls("h2.1"));
  EXPECT_FALSE(stop->befalls("h20"));
  for (const char* wrong : {"", "h2", "@1s", "h2@", "h2@soon", "h2@100h"}) {
    EXPECT_FALSE(parse_kill(wrong)) << wrong;
    EXPECT_FALSE(parse_stop(wrong)) << wrong;
  }
  EXPECT_FALSE(parse_stop("h2@1s+0s"));
  EXPECT_FALSE(parse_time("2h"));
  EXPECT_FALSE(parse_time(""));
  EXPECT_EQ(parse_time("20ms")->count(), 20000);
}

}  // namespace
}  // namespace weft::cli
