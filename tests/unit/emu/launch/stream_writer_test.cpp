// Owns what writing to a standard stream promises: it never blocks, and it tells what was lost.
//
// `weft run` passes on the output of its programs in one thread. If a write to a slow reader
// blocked, signals and the other programs would wait with it. Each test runs with a pipe and with a
// socket, which need different ways not to block: a pipe can be opened a second time, a socket
// cannot.
#include "emu/launch/stream_writer.hpp"

#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>

namespace weft::launch {
namespace {

class StreamWriterTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    before_ = ::signal(SIGPIPE, SIG_IGN);
    int ends[2];
    const bool socket = GetParam();
    ASSERT_EQ(socket ? ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends)
                     : ::pipe2(ends, O_CLOEXEC),
              0);
    reader_ = srd::UniqueFd(ends[0]);
    stream_ = srd::UniqueFd(ends[1]);
    ::fcntl(reader_.get(), F_SETFL, O_NONBLOCK);
  }
  void TearDown() override { ::signal(SIGPIPE, before_); }
  std::string read_all() const {
    std::string all;
    std::array<char, 4096> piece{};
    for (ssize_t size; (size = ::read(reader_.get(), piece.data(), piece.size())) > 0;) {
      all.append(piece.data(), static_cast<std::size_t>(size));
    }
    return all;
  }

  srd::UniqueFd reader_;
  srd::UniqueFd stream_;

 private:
  void (*before_)(int) = SIG_DFL;
};

TEST_P(StreamWriterTest, AReaderThatIsSlowGetsEverything) {
  StreamWriter writer(stream_.get());
  std::string text;
  for (int i = 0; !writer.is_full(); ++i) {
    const std::string line = "line " + std::to_string(i) + "\n";
    writer.add(line);
    text += line;
  }
  // The writer has more now than the kernel takes at once.
  ASSERT_TRUE(writer.write_some());
  ASSERT_NE(writer.pending(), 0U);  // a pipe holds less
  std::string read = read_all();
  while (writer.pending() != 0) {
    ASSERT_TRUE(writer.write_some());
    read += read_all();
  }
  EXPECT_EQ(read, text);
  EXPECT_FALSE(writer.is_full());
  EXPECT_EQ(writer.failure(), 0);
}

// Told by write_some() being false; it is no failure, because `weft run | head` is meant so.
TEST_P(StreamWriterTest, AReaderThatHasLeftIsTold) {
  StreamWriter writer(stream_.get());
  writer.add("for nobody\n");
  reader_.reset();
  EXPECT_FALSE(writer.write_some());
  EXPECT_EQ(writer.pending(), 0U);
  EXPECT_EQ(writer.failure(), 0);
}

// O_NONBLOCK belongs to the open file, which the user's shell shares with us: setting it would
// break the shell's own writes.
TEST_P(StreamWriterTest, OthersWithTheSameStreamStillBlock) {
  const StreamWriter writer(stream_.get());
  EXPECT_EQ(::fcntl(stream_.get(), F_GETFL) & O_NONBLOCK, 0);
}

INSTANTIATE_TEST_SUITE_P(All, StreamWriterTest, ::testing::Bool(),
                         [](const auto& test) { return test.param ? "Socket" : "Pipe"; });

// Waiting would not help, as it does with a slow reader.
TEST(StreamWriter, AFullDiskLosesTheOutputAndIsToldWhy) {
  const srd::UniqueFd full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  ASSERT_TRUE(full);
  StreamWriter writer(full.get());
  writer.add("lost\n");
  EXPECT_TRUE(writer.write_some());
  EXPECT_EQ(writer.pending(), 0U);
  EXPECT_EQ(writer.failure(), ENOSPC);
}

}  // namespace
}  // namespace weft::launch
