// Owns what a run's directory promises: the files of runs are replaced, those of others never.
#include "emu/launch/run_directory.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <vector>

#include "tests/support/temporary_folder.hpp"

namespace weft::launch {
namespace {

namespace fs = std::filesystem;

// The directory of `weft run --out`. It is named again for each run of an experiment, so files of
// an earlier run are expected; but a user may also name a folder with work of another kind in it.
class RunDirectoryTest : public ::testing::Test {
 protected:
  [[nodiscard]] Result<RunDirectory> run(const RunDirectory::Files& files) const {
    return RunDirectory::create(path_, 1, files);
  }
  [[nodiscard]] std::string read(const std::string& name) const {
    std::ifstream file(path_ + "/" + name);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ + "/" + name) << text;
  }

  const testing::TemporaryFolder folder_;
  const std::string path_ = folder_.path() + "/out";
};

// A run that does not write some file must not leave an older one in its place: a reader would take
// it for this run's.
TEST_F(RunDirectoryTest, FilesOfFormerRunsAreReplacedOrRemoved) {
  {
    const auto first = run({{"config.resolved.yml", "seed: 1\n"}, {"topology.yml", "name: a\n"}});
    ASSERT_TRUE(first) << first.error().message;
    first->write("metrics.prom", "old\n");
    first->event("end", {{"exit_code", 0}});
  }
  const auto second = run({{"config.resolved.yml", "seed: 2\n"}});
  ASSERT_TRUE(second) << second.error().message;
  EXPECT_EQ(read("config.resolved.yml"), "seed: 2\n");
  for (const char* name : {"topology.yml", "metrics.prom", "events.jsonl"}) {
    EXPECT_FALSE(fs::exists(path_ + "/" + name)) << name;
  }
}

// Nothing may have been written when it is refused, not even the files that are not in the way.
TEST_F(RunDirectoryTest, FilesOfOthersStayAndAreInTheWay) {
  fs::create_directory(path_);
  write("notes.txt", "mine\n");
  write("metrics.prom", "mine\n");
  const auto refused = run({{"config.resolved.yml", "seed: 1\n"}});
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("metrics.prom"), std::string::npos);
  EXPECT_EQ(read("metrics.prom"), "mine\n");
  EXPECT_FALSE(fs::exists(path_ + "/config.resolved.yml"));
  fs::remove(path_ + "/metrics.prom");
  EXPECT_TRUE(run({}));
  EXPECT_EQ(read("notes.txt"), "mine\n");
}

// Users keep a topology beside the runs that it was used for, and name that file to `weft run`.
TEST_F(RunDirectoryTest, AFileThatSaysTheSameAlreadyIsNobodysLoss) {
  fs::create_directory(path_);
  write("topology.yml", "name: mine\n");
  for (int round = 0; round < 2; ++round) {
    EXPECT_TRUE(run({{"topology.yml", "name: mine\n"}})) << round;
  }
  EXPECT_FALSE(run({{"topology.yml", "name: other\n"}}));
  EXPECT_EQ(read("topology.yml"), "name: mine\n");
}

// Written through a link, a run could change any file of its user.
TEST_F(RunDirectoryTest, ALinkInTheWayIsNotFollowed) {
  fs::create_directory(path_);
  const std::string target = folder_.path() + "/target";
  std::ofstream(target) << "mine\n";
  fs::create_symlink(target, path_ + "/config.resolved.yml");
  EXPECT_FALSE(run({{"config.resolved.yml", "seed: 1\n"}}));
  std::ifstream file(target);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), "mine\n");
}

TEST_F(RunDirectoryTest, OneRunAtATime) {
  {
    const auto first = run({});
    ASSERT_TRUE(first) << first.error().message;
    const auto second = run({});
    ASSERT_FALSE(second);
    EXPECT_NE(second.error().message.find("still goes on"), std::string::npos);
  }
  EXPECT_TRUE(run({}));
}

// A command line may hold bytes that are no UTF-8; JSON must still come out of it.
TEST_F(RunDirectoryTest, EventsAreLinesOfAnyBytes) {
  const auto directory = run({});
  ASSERT_TRUE(directory) << directory.error().message;
  directory->event("start", {{"command", "echo \xFF"}});
  directory->event("end");
  std::istringstream lines(read("events.jsonl"));
  std::vector<std::string> events;
  for (std::string line; std::getline(lines, line);) {
    events.push_back(nlohmann::json::parse(line)["event"]);
  }
  EXPECT_EQ(events, (std::vector<std::string>{"start", "end"}));
}

}  // namespace
}  // namespace weft::launch
