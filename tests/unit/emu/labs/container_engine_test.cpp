// Owns how an engine's program is found, run and listened to.
//
// The engine is a shell script that the test writes, so that it can answer, fail and hang as podman
// or docker would.
#include "emu/labs/container_engine.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <fstream>
#include <string>

#include "tests/support/temporary_folder.hpp"

namespace weft::labs {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ContainerEngineTest : public ::testing::Test {
 protected:
  // A program that says it is podman, or docker, and then does what the script says.
  std::string engine(const std::string& version, const std::string& script) {
    const std::string path = folder_.path() + "/engine";
    std::ofstream(path) << "#!/bin/sh\nif [ \"$1\" = --version ]; then echo '" << version
                        << "'; exit; fi\n"
                        << script << "\n";
    ::chmod(path.c_str(), 0755);
    return path;
  }

  const testing::TemporaryFolder folder_;
};

// Not by the name of the file: `docker` may be podman under another name.
TEST_F(ContainerEngineTest, SaysItselfWhatItIs) {
  EXPECT_EQ(ContainerEngine::find(engine("podman version 4.3.1", ""))->kind(), EngineKind::podman);
  EXPECT_EQ(ContainerEngine::find(engine("Docker version 28.2.2", ""))->kind(), EngineKind::docker);
  const auto none = ContainerEngine::find(folder_.path() + "/nothing");
  ASSERT_FALSE(none);
  EXPECT_THAT(none.error().message, HasSubstr("there is no container engine"));
}

TEST_F(ContainerEngineTest, WithoutAnEngineTheErrorSaysWhatToInstall) {
  const std::string path = ::getenv("PATH");
  ::setenv("PATH", folder_.path().c_str(), 1);
  const auto none = ContainerEngine::find("");
  ::setenv("PATH", path.c_str(), 1);
  ASSERT_FALSE(none);
  EXPECT_THAT(none.error().message, HasSubstr("neither podman nor docker"));
}

// Identifiers are read from the output; a warning between them would be taken for one. Podman's
// remark about syslog, which it makes wherever there is no syslog, is no reason for a failure.
TEST_F(ContainerEngineTest, OutputAndComplaintsAreKeptApart) {
  const auto found = ContainerEngine::find(engine(
      "podman", "echo out \"$@\"; echo 'failed to connect to syslog: x' >&2; echo no >&2; exit 3"));
  ASSERT_TRUE(found);
  const auto answers = found->run_all({{"a b", "c"}}, Interrupts::defer, {});
  ASSERT_TRUE(answers);
  const EngineAnswer& answer = *answers->front();
  EXPECT_EQ(answer.code, 3);
  EXPECT_EQ(answer.out, "out a b c\n");
  EXPECT_EQ(answer.complaint(), "no");
  const auto asked = found->ask({"network", "create", "x"}, Interrupts::defer);
  ASSERT_FALSE(asked);
  EXPECT_THAT(asked.error().message, HasSubstr("engine network create`: no"));
}

// Podman leaves a monitor behind that inherits the output. Read to its end, the output would last
// as long as the container does.
TEST_F(ContainerEngineTest, AProgramThatIsLeftRunningWithTheOutputHoldsNothingUp) {
  const auto found = ContainerEngine::find(
      engine("podman", "while [ -d " + folder_.path() + " ]; do sleep 0.1; done & echo started"));
  EXPECT_EQ(*found->ask({"run"}, Interrupts::defer), "started\n");
}

// Several run at the same time, so some after the third may have begun; the last of 200 has not.
TEST_F(ContainerEngineTest, AfterAFailureNothingMoreIsStarted) {
  const auto found = ContainerEngine::find(
      engine("podman", "echo $1 >> " + folder_.path() + "/log; [ $1 != 3 ] || exit 1"));
  std::vector<Words> commands;
  for (int i = 1; i <= 200; ++i) {
    commands.push_back({std::to_string(i)});
  }
  const auto answers =
      found->run_all(commands, Interrupts::defer,
                     [](std::size_t, const EngineAnswer& answer) { return answer.code == 0; });
  ASSERT_TRUE(answers);
  EXPECT_EQ((*answers)[2]->code, 1);
  EXPECT_FALSE((*answers)[199]);
}

TEST_F(ContainerEngineTest, LinesOfATextAreThoseThatAreNotEmpty) {
  EXPECT_THAT(lines_of("a\n\nb c\nd"), ElementsAre("a", "b c", "d"));
  EXPECT_TRUE(lines_of("\n").empty());
}

}  // namespace
}  // namespace weft::labs
