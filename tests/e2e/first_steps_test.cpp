// Owns what a newcomer tries first: the demo, and the doctor that says what the machine can do.
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/e2e/program_fixture.hpp"

namespace weft::testing {
namespace {

// The demo promises that a spine dies, that packets are lost and sent again, and that no byte is
// wrong; the report must need nothing from elsewhere (no src=, one script).
TEST_F(ProgramTest, TheDemoSurvivesTheDeathOfASpineAndTellsIt) {
  const Outcome outcome = weft("demo --seconds 4 --seed 3 --no-program --out out", 110);
  ASSERT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_TRUE(outcome.says("seed 3")) << outcome.output;
  EXPECT_TRUE(outcome.says("spine2 dies") && outcome.says("spine2 is back")) << outcome.output;
  EXPECT_EQ(outcome.output.find('\033'), std::string::npos);  // plain where there is no terminal
  const json result = json::parse(read("out/result.json"));
  EXPECT_EQ(result["passed"], true);
  EXPECT_EQ(result["wrong_blocks"], 0);
  EXPECT_GT(result["verified_bytes"], 0);
  // The story of the demo would otherwise be told about a network in which nothing happened.
  EXPECT_GT(result["lost_in_network"], 0);
  EXPECT_GT(result["retransmitted"], 0);
  EXPECT_GT(result["detected_ms"], 0);
  const std::string report = read("out/report.html");
  EXPECT_NE(report.find("\"spine2 dies"), std::string::npos);
  EXPECT_EQ(report.find("</script>"), report.rfind("</script>"));
  EXPECT_EQ(report.find("src="), std::string::npos);
  EXPECT_FALSE(objects(read("out/events.jsonl")).empty());
}

TEST_F(ProgramTest, TheDemoShowsAStockProgramOrSaysWhyNot) {
  WEFT_NEEDS_A_PLAIN_BUILD("a stock program cannot load a sanitized library");
  const Outcome outcome = weft("demo --seconds 1 --json --out out", 110);
  ASSERT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_EQ(objects(outcome.output).size(), 1U) << outcome.output;
  const Outcome without = run_shell(
      // Without a path there is no stock program, and the rest of the demo goes on.
      "env PATH=/nonexistent " WEFT_PROGRAM " demo --seconds 1 --out " + directory_ + "/out2");
  EXPECT_EQ(without.code, 0) << without.output;
  EXPECT_TRUE(without.says("skipped the unmodified RDMA program")) << without.output;
}

// And at once, not one after the other, nor after an image was made.
TEST_F(ProgramTest, SoftroceSaysWhichPackagesAreMissing) {
  const std::string vm = "env PATH=/nonexistent " WEFT_PROGRAM " softroce vm";
  const Outcome self_test = run_shell(vm);
  EXPECT_EQ(self_test.code, 1);
  EXPECT_TRUE(self_test.says("qemu-system-x86 rdmacm-utils")) << self_test.output;
  const Outcome job = run_shell(vm + " -- true");
  EXPECT_EQ(job.code, 1);
  EXPECT_TRUE(job.says("qemu-system-x86")) << job.output;
  EXPECT_FALSE(job.says("rdmacm-utils")) << "only the self-test needs it: " << job.output;
}

TEST_F(ProgramTest, TheDoctorExplainsEveryTopicAndChangesNothing) {
  WEFT_NEEDS_A_PLAIN_BUILD("DPDK, which the doctor asks, leaks");
  const Outcome outcome = weft("doctor --json");
  ASSERT_EQ(outcome.code, 0) << outcome.output;
  const auto lines = objects(outcome.output);
  ASSERT_GT(lines.size(), 10U);
  EXPECT_EQ(lines.back()["ready"], true);
  for (const json& line : lines) {
    if (line.contains("topic")) {
      EXPECT_FALSE(line["found"].get<std::string>().empty()) << line;
      EXPECT_FALSE(line["matter"].get<std::string>().empty()) << line;
      const bool fine =
          line["health"] == "good" || line["topic"] == "kernel-rxe" || line["health"] == "limited";
      EXPECT_TRUE(fine || !line["remedy"].get<std::string>().empty()) << line;
    }
  }
  EXPECT_TRUE(std::filesystem::is_empty(directory_));
}

TEST_F(ProgramTest, TheDoctorSeesWhatASandboxTakesAway) {
  WEFT_NEEDS_A_PLAIN_BUILD("DPDK, which the doctor asks, leaks");
  if (run_shell("unshare --user --net true").code != 0) {
    GTEST_SKIP() << "this machine allows no user namespaces";
  }
  // Inside, further user namespaces are forbidden.
  const Outcome outcome = run_shell(
      "unshare --user --map-root-user sh -c 'echo 0 > /proc/sys/user/max_user_namespaces; "
      "exec setpriv --bounding-set=-all --inh-caps=-all --no-new-privs " WEFT_PROGRAM
      " doctor --json'");
  for (const json& line : objects(outcome.output)) {
    if (line.value("topic", "") == "namespaces") {
      EXPECT_EQ(line["health"], "absent") << line;
      EXPECT_NE(line["found"].get<std::string>().find("max_user_namespaces is 0"),
                std::string::npos)
          << line;
      return;
    }
  }
  ADD_FAILURE() << outcome.output;
}

// What the doctor calls good works: here a network namespace, but no user namespace.
TEST_F(ProgramTest, RootNeedsNoUserNamespaceForAHostWithAKernelOfItsOwn) {
  WEFT_NEEDS_A_PLAIN_BUILD("DPDK, which the doctor asks, leaks");
  WEFT_NEEDS("ip");
  if (run_shell("unshare --user --map-root-user true").code != 0) {
    GTEST_SKIP() << "this machine allows no user namespaces";
  }
  if (::access("/dev/net/tun", R_OK | W_OK) != 0) {
    GTEST_SKIP() << "there is no /dev/net/tun";
  }
  const auto as_root = [](const std::string& arguments) {
    return run_shell(
        "unshare --user --map-root-user sh -c 'echo 0 > /proc/sys/user/max_user_namespaces; "
        "exec timeout 60 " WEFT_PROGRAM " " +
        arguments + "'");
  };
  for (const json& line : objects(as_root("doctor --json").output)) {
    if (line.value("topic", "") == "namespaces") {
      EXPECT_EQ(line["health"], "good") << line;
    }
  }
  const Outcome outcome =
      as_root("run --netns --device none -q -- sh -c \"ip -br address show weft0\"");
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_TRUE(outcome.says("10.77.1.1/16")) << outcome.output;
}

}  // namespace
}  // namespace weft::testing
