// Owns what a process may do to its end of a bell: nothing that blocks, starves or confuses the
// other one. A bell is one end of a socket pair; the other end may be a hostile process's, which
// can send what it wants and as often, descriptors among it.
#include "srd/io/bell.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <array>
#include <cstring>
#include <thread>

#include "tests/support/lingering_socket.hpp"
#include "tests/unit/srd/io/conformance.hpp"
#include "tests/unit/srd/io/srd_carriers.hpp"

namespace weft::srd {
namespace {

using weft::testing::LingeringSocket;

// SO_PASSRIGHTS, by which a socket refuses descriptors; older headers lack it.
constexpr int kPassRights = 83;

bool is_readable(int fd) {
  pollfd one{fd, POLLIN, 0};
  return ::poll(&one, 1, 0) == 1;
}

// Sends a message of that many bytes, with a descriptor if `fd` is none of -1.
bool send_with(int socket, std::size_t bytes, int fd) {
  std::byte byte[1]{};
  iovec piece{byte, bytes};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  if (fd >= 0) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  }
  return ::sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0;
}

// Sends the slow socket and closes the own copy: the receiver of the message would be its last
// owner, and closing it would take long.
bool hand_over(LingeringSocket& slow, int socket, std::size_t bytes) {
  const bool sent = send_with(socket, bytes, slow.fd());
  if (sent) {
    slow.give_up();
  }
  return sent;
}

class BellTest : public ::testing::TestWithParam<Bell::Refusal> {
 protected:
  void SetUp() override {
    int fds[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
    peer_ = UniqueFd(fds[1]);
    auto bell = Bell::adopt(UniqueFd(fds[0]), GetParam());
    ASSERT_TRUE(bell) << bell.error().message;
    bell_ = std::move(*bell);
  }
  bool may_send_descriptors() {
    int value = 1;
    socklen_t size = sizeof value;
    return ::getsockopt(bell_.fd(), SOL_SOCKET, kPassRights, &value, &size) != 0 || value != 0;
  }

  Bell bell_;
  UniqueFd peer_;
};

// A ring wakes the other end and not the own one, and is gone once it was cleared.
TEST_P(BellTest, WakesTheOtherEndOnceForEachRing) {
  auto other = Bell::adopt(std::move(peer_), GetParam());
  ASSERT_TRUE(other);
  for (int round = 0; round < 3; ++round) {
    EXPECT_FALSE(is_readable(other->fd()));
    bell_.ring();
    EXPECT_TRUE(is_readable(other->fd()));
    EXPECT_FALSE(is_readable(bell_.fd()));
    EXPECT_TRUE(other->clear());
  }
  EXPECT_FALSE(is_readable(other->fd()));
}

// 10,000 rings are far more than a socket holds. One that is waiting is enough, so those that do
// not fit may be lost.
TEST_P(BellTest, NeverBlocksWhenThePeerReadsNothing) {
  // Flags of the peer's description are not ours.
  ASSERT_EQ(::fcntl(peer_.get(), F_SETFL, 0), 0);
  for (int i = 0; i < 10'000; ++i) {
    bell_.ring();
  }
  EXPECT_TRUE(bell_.clear());  // nothing came back
}

TEST_P(BellTest, StaysUsableAfterAFlood) {
  int sent = 0;
  while (send_with(peer_.get(), 1, -1)) {
    ++sent;
  }
  EXPECT_GT(sent, 8);
  for (int i = 0; i < sent; ++i) {
    EXPECT_TRUE(bell_.clear());
  }
  EXPECT_FALSE(is_readable(bell_.fd()));
  EXPECT_TRUE(send_with(peer_.get(), 1, -1));
  EXPECT_TRUE(is_readable(bell_.fd()));
}

// An empty message looks like the end of the connection to a careless reader.
TEST_P(BellTest, EmptyMessagesDoNotStopIt) {
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(send_with(peer_.get(), 0, -1));
  }
  ASSERT_TRUE(send_with(peer_.get(), 1, -1));
  for (int i = 0; i < 101; ++i) {
    EXPECT_TRUE(bell_.clear());
  }
  EXPECT_FALSE(is_readable(bell_.fd()));
}

// A closed socket stays readable for ever. With level-triggered waiting a dead peer would keep the
// sleeper awake.
TEST_P(BellTest, AClosedOneMakesOneEdgeAndNoMore) {
  const UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  epoll_event event{};
  event.events = EPOLLIN | EPOLLET;
  ASSERT_EQ(::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, bell_.fd(), &event), 0);
  peer_.reset();
  EXPECT_EQ(::epoll_wait(epoll.get(), &event, 1, 0), 1);
  EXPECT_TRUE(bell_.clear());
  EXPECT_EQ(::epoll_wait(epoll.get(), &event, 1, 0), 0);
  bell_.ring();  // no SIGPIPE
}

// The time that a descriptor takes to be closed is up to the process that made it.
TEST_P(BellTest, DescriptorsAreRefusedOrLeftAlone) {
  for (const std::size_t bytes : {0, 1}) {
    SetUp();
    LingeringSocket slow;
    const bool sent = hand_over(slow, peer_.get(), bytes);
    EXPECT_EQ(sent, may_send_descriptors());
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(bell_.clear(), !sent);
    bell_ = Bell();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, LingeringSocket::kPatience / 2);
  }
}

// The kernel tells first that our ring was not read, and only then that there is a message.
TEST_P(BellTest, DescriptorsOfAPeerThatLeftARingUnreadAreLeftAlone) {
  for (const bool closes : {false, true}) {
    SetUp();
    LingeringSocket slow;
    bell_.ring();
    const bool sent = hand_over(slow, peer_.get(), 1);
    peer_.reset();
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_TRUE(closes || bell_.clear() != sent);
    bell_ = Bell();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, LingeringSocket::kPatience / 2);
  }
}

TEST_P(BellTest, DescriptorsBehindAnEmptyMessageAreLeftAloneByClosing) {
  LingeringSocket slow;
  ASSERT_TRUE(send_with(peer_.get(), 1, -1));
  ASSERT_TRUE(send_with(peer_.get(), 0, -1));
  (void)hand_over(slow, peer_.get(), 1);
  const auto begin = std::chrono::steady_clock::now();
  bell_ = Bell();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, LingeringSocket::kPatience / 2);
}

INSTANTIATE_TEST_SUITE_P(Kernels, BellTest,
                         ::testing::Values(Bell::Refusal::by_kernel, Bell::Refusal::by_looking),
                         [](const auto& one) {
                           return one.param == Bell::Refusal::by_kernel ? "ByKernel" : "ByLooking";
                         });

// The descriptor comes from the peer: what is no seqpacket socket is refused before it is used.
TEST(Bell, IsNoOtherKindOfDescriptor) {
  EXPECT_FALSE(Bell::adopt(UniqueFd()));
  EXPECT_FALSE(Bell::adopt(UniqueFd(::eventfd(0, EFD_CLOEXEC))));
  EXPECT_FALSE(Bell::adopt(UniqueFd(::open("/dev/null", O_RDWR | O_CLOEXEC))));
  int fds[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
  EXPECT_FALSE(Bell::adopt(UniqueFd(fds[0])));
  EXPECT_FALSE(Bell::adopt(UniqueFd(fds[1])));
}

constexpr std::size_t kCapacity = std::size_t{1} << 16;
constexpr std::size_t kMtu = 4160;

// A process with two direct rings: one to a peer that behaves, one to `hostile_`.
class SharedSleep : public ::testing::Test {
 protected:
  void SetUp() override {
    auto pair = test::SrdRings::create_pair({.own = test::ipv4(127, 1, 0, 1), .mtu = kMtu},
                                            {.own = test::ipv4(127, 1, 0, 2), .mtu = kMtu});
    ASSERT_TRUE(pair) << pair.error().message;
    io_ = std::move(pair->first);
    peer_ = std::move(pair->second);
    auto memory = RingPort::create_memory(kCapacity);
    ASSERT_TRUE(memory);
    auto bell = Bell::create_pair();
    ASSERT_TRUE(bell);
    auto port = RingPort::open(memory->get(), kCapacity, 0, net::max_frame_for(kMtu),
                               std::move(bell->first));
    ASSERT_TRUE(port);
    ASSERT_TRUE(
        io_->add_direct({test::ipv4(127, 1, 0, 3), AttachmentId{3}, Life{1}}, std::move(*port)));
    hostile_ = std::move(bell->second);
    settle();
  }
  // Whether it would sleep.
  bool sleeps() {
    EXPECT_TRUE(io_->arm());
    const bool quiet = !is_readable(io_->wait_fd());
    io_->disarm();
    return quiet;
  }
  void settle() {
    for (int i = 0; i < 1000 && !sleeps(); ++i) {
    }
    EXPECT_TRUE(sleeps());
  }
  bool peer_wakes_it() {
    EXPECT_TRUE(io_->arm());
    TxPacket packet;
    packet.to = test::ipv4(127, 1, 0, 1);
    packet.header_size = 64;
    packet.header.fill({});
    EXPECT_EQ(peer_->transmit({&packet, 1}), 1U);
    const bool woken = is_readable(io_->wait_fd());
    io_->disarm();
    EXPECT_EQ(io_->receive().size(), 1U);
    io_->release();
    return woken;
  }

  std::unique_ptr<test::SrdRings> io_;
  std::unique_ptr<test::SrdRings> peer_;
  Bell hostile_;
};

TEST_F(SharedSleep, AFloodedBellSilencesNobodyElse) {
  for (int i = 0; i < 10'000; ++i) {
    hostile_.ring();
  }
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(peer_wakes_it()) << "round " << i;
  }
  settle();
}

TEST_F(SharedSleep, AClosedBellKeepsNobodyAwake) {
  hostile_ = Bell();
  settle();
  EXPECT_TRUE(peer_wakes_it());
  settle();
}

TEST_F(SharedSleep, AShutBellKeepsNobodyAwake) {
  ::shutdown(hostile_.fd(), SHUT_RDWR);
  settle();
  EXPECT_TRUE(peer_wakes_it());
  settle();
}

}  // namespace
}  // namespace weft::srd
