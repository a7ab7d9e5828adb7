// Owns what messages with descriptors promise whatever the other side sends: nothing stays open
// that were not asked for, and no call waits.
//
// weftd and programs talk over such sockets, and either may be hostile. A descriptor that comes
// with a message is open in the receiver whether it wants it or not: a weftd that forgot to close
// some would run out of them.
#include "emu/attach/seqpacket.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <string>
#include <vector>

#include "srd/run/clock.hpp"
#include "tests/support/temporary_folder.hpp"

namespace weft::attach {
namespace {

std::size_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

// A socket of ours and the other side's end, which a test uses without any function of ours.
class SeqpacketTest : public ::testing::Test {
 protected:
  void SetUp() override {
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    ours_ = srd::UniqueFd(ends[0]);
    theirs_ = srd::UniqueFd(ends[1]);
    null_ = srd::UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  }
  // As a program would that does not use our functions.
  void send(std::size_t bytes, std::size_t fds) const {
    std::string text(bytes, 'x');
    iovec piece{text.data(), text.size()};
    std::vector<char> control(CMSG_SPACE(sizeof(int) * fds));
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    if (fds != 0) {
      message.msg_control = control.data();
      message.msg_controllen = control.size();
      cmsghdr* header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(sizeof(int) * fds);
      const std::vector<int> numbers(fds, null_.get());
      std::memcpy(CMSG_DATA(header), numbers.data(), sizeof(int) * fds);
    }
    ASSERT_EQ(::sendmsg(theirs_.get(), &message, MSG_NOSIGNAL), static_cast<ssize_t>(bytes));
  }

  srd::UniqueFd ours_;
  srd::UniqueFd theirs_;
  srd::UniqueFd null_;
};

TEST_F(SeqpacketTest, DescriptorsOfEveryShapeOfMessageAreClosedWithIt) {
  const std::size_t before = open_descriptors();
  // Around the size of a header, of the largest message, and beyond. 253 descriptors are the most
  // that Linux sends at once; 4 is the most that a message of ours has.
  for (const std::size_t bytes : {0, 1, 12, 1024, 1025, 60'000}) {
    for (const std::size_t fds : {0, 1, 3, 4, 5, 64, 253}) {
      send(bytes, fds);
      (void)receive_message(ours_.get());
      EXPECT_EQ(open_descriptors(), before) << bytes << " bytes, " << fds << " descriptors";
    }
  }
}

// 12 bytes with 4 descriptors is the largest shape that is taken whole; one descriptor or one byte
// more, and nothing of it is.
TEST_F(SeqpacketTest, WhatIsLargerThanAnyMessageOfOursIsNone) {
  send(12, 4);
  Received received = receive_message(ours_.get());
  EXPECT_EQ(received.bytes.size(), 12U);
  EXPECT_EQ(received.fds.size(), 4U);
  for (const auto& [bytes, fds] : {std::pair<std::size_t, std::size_t>{12, 5}, {1025, 1}}) {
    send(bytes, fds);
    received = receive_message(ours_.get());
    EXPECT_EQ(received.state, Received::State::message);
    EXPECT_TRUE(received.bytes.empty());
    EXPECT_TRUE(received.fds.empty());
  }
  send(0, 1);
  EXPECT_EQ(receive_message(ours_.get()).state, Received::State::closed);
  EXPECT_EQ(receive_message(ours_.get()).state, Received::State::nothing);
  theirs_.reset();
  EXPECT_EQ(receive_message(ours_.get()).state, Received::State::closed);
}

// A weftd that hangs lets its queue fill up; connect() would then wait for ever.
TEST(Seqpacket, AServerThatAcceptsNobodyHoldsUpNobody) {
  const testing::TemporaryFolder folder;
  const std::string socket = folder.path() + "/s";
  const srd::UniqueFd listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strcpy(address.sun_path, socket.c_str());
  ASSERT_EQ(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::listen(listener.get(), 0), 0);
  std::vector<srd::UniqueFd> waiting;
  for (auto fd = connect_seqpacket(socket, Duration{0}); fd;
       fd = connect_seqpacket(socket, Duration{0})) {
    waiting.push_back(std::move(*fd));
    ASSERT_LT(waiting.size(), 10U);
  }
  const auto refused = connect_seqpacket(socket, std::chrono::milliseconds{20});
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("accepts no connection"), std::string::npos);
}

}  // namespace
}  // namespace weft::attach
