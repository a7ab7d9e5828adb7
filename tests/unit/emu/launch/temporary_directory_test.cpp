// Owns what temporary directories promise: they go, those of programs that were killed as well, and
// nothing else goes.
//
// A directory is ours if its name is `weft-` and six letters and it holds a mark, `.weft-owner`.
// Its maker keeps the mark locked; a mark that nobody has locked was left by a program that was
// killed, and the next program that makes a directory removes it.
#include "emu/launch/temporary_directory.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

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
  ASSERT_TRUE(TemporaryDirectory::create());
  EXPECT_FALSE(fs::exists(old));
}

// A maker that is between the two has a directory without a mark, and never a mark without a lock.
TEST_F(TemporaryDirectoryTest, MarksAreLockedFromTheBeginning) {
  const auto first = TemporaryDirectory::create();
  ASSERT_TRUE(first);
  const auto second = TemporaryDirectory::create();
  ASSERT_TRUE(second);
  EXPECT_TRUE(fs::exists(first->path() + "/.weft-owner"));
  for (const auto& entry : fs::directory_iterator(first->path())) {
    EXPECT_EQ(entry.path().filename(), ".weft-owner");
  }
}

// What a killed `weft run` had started runs on, and would hold the old directory's weftd alive.
// They are known by WEFT_SOCKET in their environment. One of a network that is in use, and one
// whose path only begins like the old one, must live.
TEST_F(TemporaryDirectoryTest, ProcessesOfASweptNetworkEndAndNoOthers) {
  const std::string old = leave("weft-abcdef");
  const std::string other = leave("weft-locked");
  const srd::UniqueFd lock(::open((other + "/.weft-owner").c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_EQ(::flock(lock.get(), LOCK_EX | LOCK_NB), 0);
  const auto start = [](const std::string& variable) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::setsid();
      ::execl("/usr/bin/env", "env", "-i", variable.c_str(), "sleep", "600", nullptr);
      ::_exit(127);
    }
    // It has become the program that its environment says it is.
    const std::string file = "/proc/" + std::to_string(child) + "/environ";
    for (std::string text; text.find(variable) == std::string::npos;) {
      std::getline(std::ifstream(file), text, '\0');
    }
    return child;
  };
  const pid_t left = start("WEFT_SOCKET=" + old + "/attach.sock");
  const pid_t beside = start("WEFT_SOCKET=" + other + "/attach.sock");
  const pid_t longer = start("WEFT_SOCKET=" + old + "x/attach.sock");
  ASSERT_TRUE(TemporaryDirectory::create());
  int status = 0;
  EXPECT_EQ(::waitpid(left, &status, 0), left);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  for (const pid_t pid : {beside, longer}) {
    EXPECT_EQ(::waitpid(pid, &status, WNOHANG), 0);
    ::kill(pid, SIGKILL);
    ::waitpid(pid, &status, 0);
  }
}

// One reason each: no mark; a longer name; another prefix; a locked mark; a link, which leads to a
// folder that somebody else owns.
TEST_F(TemporaryDirectoryTest, NothingElseIsSwept) {
  const std::string unmarked = leave("weft-unmark", false);
  const std::string longer = leave("weft-backups");
  const std::string other = leave("waft-abcdef");
  const std::string locked = leave("weft-locked");
  const srd::UniqueFd owner(::open((locked + "/.weft-owner").c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_EQ(::flock(owner.get(), LOCK_EX | LOCK_NB), 0);
  const testing::TemporaryFolder elsewhere;
  std::ofstream(elsewhere.path() + "/.weft-owner") << "";
  fs::create_directory_symlink(elsewhere.path(), folder_.path() + "/weft-linked");
  ASSERT_TRUE(TemporaryDirectory::create());
  for (const std::string& path : {unmarked, longer, other, locked, elsewhere.path()}) {
    EXPECT_TRUE(fs::exists(path)) << path;
  }
}

// Sockets of a network lie there: whoever can write there could put others in their place.
TEST_F(TemporaryDirectoryTest, IsNotPutWhereOthersMayWrite) {
  fs::permissions(folder_.path(), fs::perms::all);
  EXPECT_EQ(runtime_directory(), "/tmp");
  fs::permissions(folder_.path(), fs::perms::owner_all);
  EXPECT_EQ(runtime_directory(), folder_.path());
}

}  // namespace
}  // namespace weft::launch
