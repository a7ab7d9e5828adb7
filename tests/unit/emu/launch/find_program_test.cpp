// Owns what the search of PATH finds, and what it passes over.
#include "emu/launch/find_program.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/temporary_folder.hpp"

namespace weft::launch {
namespace {

namespace fs = std::filesystem;

// A folder in which a test makes the programs that it wants found, and the environment's PATH put
// back afterwards.
class FindProgram : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* const path = ::getenv("PATH");
    before_ = path == nullptr ? "" : path;
  }
  void TearDown() override { ::setenv("PATH", before_.c_str(), 1); }

  [[nodiscard]] std::string make_file(const std::string& folder, fs::perms permissions) const {
    const std::string file = folder_.path() + "/" + folder + "/tool";
    fs::create_directories(fs::path(file).parent_path());
    std::ofstream(file) << "#!/bin/sh\n";
    fs::permissions(file, permissions);
    return file;
  }

  testing::TemporaryFolder folder_;
  std::string before_;
};

TEST_F(FindProgram, TakesTheFirstThatCanBeExecuted) {
  (void)make_file("text", fs::perms::owner_read);
  fs::create_directories(folder_.path() + "/nested/tool");
  const std::string first = make_file("first", fs::perms::owner_all);
  (void)make_file("second", fs::perms::owner_all);
  std::string path;
  // What stands in front of the right one must each be passed over: a folder that is not there, a
  // file that cannot be executed, a directory of that name.
  for (const char* const folder : {"absent", "text", "nested", "first", "second"}) {
    path += ":" + folder_.path() + "/" + folder;
  }
  ::setenv("PATH", path.c_str(), 1);
  EXPECT_EQ(find_program("tool"), first);
  EXPECT_EQ(find_program("hammer"), "");
}

TEST_F(FindProgram, FindsNothingWithoutPath) {
  ::unsetenv("PATH");
  EXPECT_EQ(find_program("sh"), "");
}

}  // namespace
}  // namespace weft::launch
