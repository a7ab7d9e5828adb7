// Owns which files are taken for keys: whoever can read a network's key can join it, and whoever
// can write it can choose it, so a file that others could read or change is none.
#include "srd/io/join_key.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/support/temporary_folder.hpp"

namespace weft::srd {
namespace {

class JoinKeyTest : public ::testing::Test {
 protected:
  [[nodiscard]] std::string place(const std::string& name) const { return directory_ + "/" + name; }
  [[nodiscard]] static std::string problem(const std::string& path) {
    const auto key = read_join_key(path);
    return key ? "" : key.error().message;
  }

  testing::TemporaryFolder folder_;
  const std::string directory_ = folder_.path();
};

TEST_F(JoinKeyTest, ANewKeyIsReadByItsOwnerOnly) {
  ASSERT_TRUE(create_join_key(place("one")));
  ASSERT_TRUE(create_join_key(place("two")));
  const auto one = read_join_key(place("one"));
  const auto two = read_join_key(place("two"));
  ASSERT_TRUE(one && two);
  EXPECT_NE(one->bytes, two->bytes);
  EXPECT_EQ(std::filesystem::status(place("one")).permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  EXPECT_FALSE(create_join_key(place("one"))) << "never over one that is there";
  EXPECT_EQ(read_join_key(place("one"))->bytes, one->bytes);
}

TEST_F(JoinKeyTest, WhatOthersCouldReadOrChangeIsNoKey) {
  ASSERT_TRUE(create_join_key(place("key")));
  for (const mode_t mode : {0640, 0604, 0620, 0602, 0644, 0666}) {
    ASSERT_EQ(::chmod(place("key").c_str(), mode), 0);
    EXPECT_NE(problem(place("key")).find("chmod 600"), std::string::npos) << mode;
  }
  ASSERT_EQ(::chmod(place("key").c_str(), 0400), 0);
  EXPECT_EQ(problem(place("key")), "");
  // What a link leads to can be changed between the look at it and the reading.
  std::filesystem::create_symlink(place("key"), place("link"));
  EXPECT_NE(problem(place("link")), "");
  if (::geteuid() == 0) {
    ASSERT_EQ(::chown(place("key").c_str(), 65534, 65534), 0);
    EXPECT_NE(problem(place("key")).find("another user"), std::string::npos);
  }
}

TEST_F(JoinKeyTest, OnlyAFileOfTheRightSizeIsAKey) {
  for (const std::size_t size : {0, 31, 33, 1000}) {
    std::ofstream(place("key")) << std::string(size, 'x');
    ASSERT_EQ(::chmod(place("key").c_str(), 0600), 0);
    EXPECT_NE(problem(place("key")).find("32 bytes"), std::string::npos) << size;
  }
  // Opening a pipe that nobody writes to would wait for ever.
  ASSERT_EQ(::mkfifo(place("pipe").c_str(), 0600), 0);
  EXPECT_NE(problem(place("pipe")).find("no regular file"), std::string::npos);
  EXPECT_NE(problem(directory_).find("no regular file"), std::string::npos);
  EXPECT_NE(problem(place("nothing")).find("No such file"), std::string::npos);
}

}  // namespace
}  // namespace weft::srd
