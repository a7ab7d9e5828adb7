// Owns what temporary directories promise: they go, those of programs that were killed as well, and
// nothing else goes.
#include "emu/launch/temporary_directory.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <fstream>

#include "tests/unit/emu/launch/runtime_folder.hpp"

namespace weft::launch {
namespace {

namespace fs = std::filesystem;

class TemporaryDirectoryTest : public InRuntimeFolder {
 protected:
  // As a program leaves one that is killed.
  [[nodiscard]] std::string leave(const std::string& name, bool marked = true) const {
    const std::string path = folder_.path() + "/" + name;
    fs::create_directory(path);
    if (marked) {
      std::ofstream(path + "/.weft-owner") << "";
    }
    return path;
  }
  static void age(const std::string& path) {
    fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::minutes{1});
  }
};

TEST_F(TemporaryDirectoryTest, GoesWithItsObject) {
  std::string path;
  {
    const auto directory = TemporaryDirectory::create();
    ASSERT_TRUE(directory) << directory.error().message;
    path = directory->path();
    struct stat info {};
    ASSERT_EQ(::stat(path.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777U, 0700U);
    EXPECT_EQ(fs::path(path).parent_path(), folder_.path());
    std::ofstream(path + "/file") << "x";
  }
  EXPECT_FALSE(fs::exists(path));
}

TEST_F(TemporaryDirectoryTest, WhatKilledProgramsLeftIsSwept) {
  const std::string old = leave("weft-abcdef");
  age(old);
  ASSERT_TRUE(TemporaryDirectory::create());
  EXPECT_FALSE(fs::exists(old));
}

TEST_F(TemporaryDirectoryTest, NothingElseIsSwept) {
  const std::string young = leave("weft-young1");
  const std::string unmarked = leave("weft-unmark", false);
  const std::string longer = leave("weft-backups");
  const std::string other = leave("waft-abcdef");
  const std::string locked = leave("weft-locked");
  const srd::UniqueFd owner(::open((locked + "/.weft-owner").c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_EQ(::flock(owner.get(), LOCK_EX | LOCK_NB), 0);
  for (const std::string& path : {unmarked, longer, other, locked}) {
    age(path);
  }
  const testing::TemporaryFolder elsewhere;
  std::ofstream(elsewhere.path() + "/.weft-owner") << "";
  age(elsewhere.path());
  fs::create_directory_symlink(elsewhere.path(), folder_.path() + "/weft-linked");
  ASSERT_TRUE(TemporaryDirectory::create());
  for (const std::string& path : {young, unmarked, longer, other, locked, elsewhere.path()}) {
    EXPECT_TRUE(fs::exists(path)) << path;
  }
}

TEST_F(TemporaryDirectoryTest, IsNotPutWhereOthersMayWrite) {
  fs::permissions(folder_.path(), fs::perms::all);
  EXPECT_EQ(runtime_directory(), "/tmp");
  fs::permissions(folder_.path(), fs::perms::owner_all);
  EXPECT_EQ(runtime_directory(), folder_.path());
}

}  // namespace
}  // namespace weft::launch
