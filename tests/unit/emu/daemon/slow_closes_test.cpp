// Owns the tests of descriptors whose last close waits: clients may pass them to weftd, in any
// message and on any socket, and no other client waits for that.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <array>
#include <cstring>
#include <vector>

#include "emu/attach/protocol.hpp"
#include "tests/support/lingering_socket.hpp"
#include "tests/unit/emu/daemon/daemon_fixture.hpp"

namespace weft::daemon {
namespace {

using testing::LingeringSocket;

// A descriptor whose close waits (LingeringSocket, ten minutes) is passed to a weftd that is a
// process of its own, so that it is weftd that has to close it. Whichever of its threads does so
// stands still: if that is the control thread, the next question is not answered, and the test
// fails.
class SlowCloses : public DaemonTest {
 protected:
  void SetUp() override {
    DaemonTest::SetUp();
    start(false);
    pid_ = status()["pid"].get<pid_t>();
  }

  // weftd stands still meanwhile: it reads nothing, closes nothing, and ends no connection. A
  // signal that was sent has not stopped weftd yet: on a busy machine weftd goes on for
  // milliseconds, and may close its copy of a descriptor before we close ours, whose close is then
  // the one that waits.
  template <class Work>
  void undisturbed(const Work& work) const {
    ASSERT_EQ(::kill(pid_, SIGSTOP), 0);
    int status = 0;
    ASSERT_EQ(::waitpid(pid_, &status, WUNTRACED), pid_);
    ASSERT_TRUE(WIFSTOPPED(status));
    work();
    ASSERT_EQ(::kill(pid_, SIGCONT), 0);
  }
  // Sends `bytes` with that many copies of the descriptor, and gives ours up.
  static void pass(int socket, std::span<const std::byte> bytes, LingeringSocket& it,
                   std::size_t descriptors = 1, int flags = 0) {
    iovec piece{const_cast<std::byte*>(bytes.data()), bytes.size()};
    std::vector<char> control(CMSG_SPACE(sizeof(int) * descriptors));
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int) * descriptors);
    const std::vector<int> numbers(descriptors, it.fd());
    std::memcpy(CMSG_DATA(header), numbers.data(), sizeof(int) * descriptors);
    EXPECT_EQ(::sendmsg(socket, &message, MSG_NOSIGNAL | flags),
              static_cast<ssize_t>(bytes.size()));
    it.give_up();
  }

  // Questions are answered, and processes can attach.
  void expect_service() const {
    EXPECT_TRUE(status().is_object());
    EXPECT_TRUE(join("h1"));
  }
  [[nodiscard]] srd::UniqueFd connect(const char* name) const {
    if (std::string(name) == "/attach.sock") {
      auto socket = attach::connect_seqpacket(weftd_->attach_socket());
      EXPECT_TRUE(socket);
      return std::move(*socket);
    }
    return weftd_->talk(name);
  }

  pid_t pid_ = -1;
};

// Messages of one byte, of a few, and larger than any request; with as many descriptors as weftd
// has room for (4), one more, and as many as the kernel allows (253). The kernel itself closes
// those for which there is no room, within the call that receives.
TEST_F(SlowCloses, HoldUpNobodyWhateverMessageBringsThem) {
  const std::vector<std::byte> bytes(4000, std::byte{'x'});
  for (const char* name : {"/control.sock", "/metrics.sock", "/attach.sock"}) {
    for (const std::size_t size : {1U, 12U, 4000U}) {
      for (const std::size_t descriptors : {1U, 4U, 5U, 253U}) {
        LingeringSocket it;
        const srd::UniqueFd client = connect(name);
        undisturbed([&] { pass(client.get(), std::span(bytes).first(size), it, descriptors); });
        expect_service();
        ASSERT_FALSE(HasFailure()) << name << ": " << size << " bytes, " << descriptors;
      }
    }
  }
}

// weftd closes the connection for what came first, with the descriptors still in it: the kernel
// closes those as well, in whichever thread does that.
TEST_F(SlowCloses, HoldUpNobodyWhenTheConnectionEndsBeforeTheyAreRead) {
  for (const char* name : {"/control.sock", "/metrics.sock", "/attach.sock"}) {
    LingeringSocket it;
    LingeringSocket other;
    {
      const srd::UniqueFd client = connect(name);
      const std::string first = "GET / HTTP/9.9\r\n\r\n";  // ends it: an answer, or a refusal
      undisturbed([&] {
        EXPECT_GT(::send(client.get(), first.data(), first.size(), MSG_NOSIGNAL), 0);
        pass(client.get(), std::as_bytes(std::span("behind it")), it);
        pass(client.get(), std::as_bytes(std::span("and again")), other);
      });
    }
    expect_service();
    ASSERT_FALSE(HasFailure()) << name;
  }
}

// A byte that was sent out of band is passed over by an ordinary read, which drops its descriptors.
TEST_F(SlowCloses, HoldUpNobodyAsUrgentData) {
  for (const char* name : {"/control.sock", "/metrics.sock"}) {
    LingeringSocket it;
    const srd::UniqueFd client = connect(name);
    undisturbed([&] {
      pass(client.get(), std::as_bytes(std::span("x").first(1)), it, 1, MSG_OOB);
      EXPECT_EQ(::send(client.get(), "x\n", 2, MSG_NOSIGNAL), 2);
    });
    expect_service();
    ASSERT_FALSE(HasFailure()) << name;
  }
}

// An empty message looks like the end of the connection; a request for a tap is the only one that
// descriptors belong to.
TEST_F(SlowCloses, HoldUpNobodyAsAnEmptyMessageOrATapThatIsNone) {
  attach::TapRequest tap;
  std::strcpy(tap.host.data(), "h1");
  const auto request = std::as_bytes(std::span(&tap, 1));
  for (const std::size_t size : {std::size_t{0}, request.size()}) {
    for (const std::size_t descriptors : {1U, 2U, 5U}) {
      LingeringSocket it;
      const srd::UniqueFd client = connect("/attach.sock");
      undisturbed([&] { pass(client.get(), request.first(size), it, descriptors); });
      expect_service();
      ASSERT_FALSE(HasFailure()) << size << " bytes, " << descriptors;
    }
  }
}

// The descriptor that is passed is a socket, in whose queue lies a message with the one whose close
// waits. Its close takes as long, and no look at it tells so: as a file of a FUSE system that does
// not answer.
class SlowInside : public SlowCloses {
 protected:
  // Called while weftd stands still, so that the last close is not ours.
  static void pass_inside(int socket, std::span<const std::byte> bytes, LingeringSocket& inner) {
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    const srd::UniqueFd sender(ends[0]);
    const srd::UniqueFd outer(ends[1]);
    pass(sender.get(), std::as_bytes(std::span("inner")), inner);
    ASSERT_TRUE(attach::send_message(socket, bytes, {outer.get()}));
  }
};

// Descriptors are received and closed on side threads. Eight of those stand still at once: another
// client's descriptor, which is no tap, must be looked at and refused all the same.
TEST_F(SlowInside, HoldsUpNoOtherClientsDescriptors) {
  attach::TapRequest tap;
  std::strcpy(tap.host.data(), "h1");
  const auto request = std::as_bytes(std::span(&tap, 1));
  std::vector<srd::UniqueFd> clients;
  std::array<LingeringSocket, 8> inside;
  undisturbed([&] {
    for (LingeringSocket& inner : inside) {
      clients.push_back(connect("/attach.sock"));
      pass_inside(clients.back().get(), request, inner);
    }
  });
  const srd::UniqueFd other = connect("/attach.sock");
  const srd::UniqueFd no_tap(::open("/dev/null", O_RDWR | O_CLOEXEC));
  ASSERT_TRUE(attach::send_struct(other.get(), tap, {no_tap.get()}));
  EXPECT_TRUE(attach::await_message(other.get(), 20'000).as<attach::RefusedReply>());
  expect_service();
}

// The client closes without reading weftd's answer. The kernel reports that first (ECONNRESET), and
// only then that there is a message: a peek that stopped there would overlook its descriptors.
TEST_F(SlowInside, HoldsUpNobodyBehindAnAnswerThatWasNotRead) {
  attach::DescribeRequest describe;
  std::strcpy(describe.host.data(), "h1");
  LingeringSocket inner;
  srd::UniqueFd client = connect("/attach.sock");
  ASSERT_TRUE(attach::send_struct(client.get(), describe));
  pollfd answered{client.get(), POLLIN, 0};
  ASSERT_EQ(::poll(&answered, 1, 20'000), 1);
  undisturbed([&] {
    pass_inside(client.get(), std::as_bytes(std::span("nonsense")), inner);
    client.reset();
  });
  expect_service();
}

TEST_F(SlowCloses, HoldUpNobodyWhenAnAttachedProcessSendsThem) {
  LingeringSocket it;
  const srd::UniqueFd client = connect("/attach.sock");
  attach::AttachRequest attach;
  std::strcpy(attach.host.data(), "h2");
  ASSERT_TRUE(attach::send_struct(client.get(), attach));
  ASSERT_EQ(attach::await_message(client.get(), 5000).fds.size(), 2U);
  undisturbed([&] { pass(client.get(), std::as_bytes(std::span("nonsense")), it); });
  expect_service();
}

}  // namespace
}  // namespace weft::daemon
