// Owns what weftd promises about descriptors whose last close waits: clients may pass them, and
// nobody else waits for them.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

#include "emu/daemon/attach_protocol.hpp"
#include "tests/unit/emu/daemon/daemon_fixture.hpp"

namespace weft::emu {
namespace {

// A connection of which nobody reads the other end: whoever closes `sender` last waits for so long
// for what was sent through it to arrive.
struct Lingering {
  static constexpr int kSeconds = 600;

  Lingering() {
    const srd::UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(::bind(listener.get(), generic, size), 0);
    EXPECT_EQ(::getsockname(listener.get(), generic, &size), 0);
    EXPECT_EQ(::listen(listener.get(), 1), 0);
    sender = srd::UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(sender.get(), generic, size), 0);
    reader = srd::UniqueFd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const linger patient{1, kSeconds};
    EXPECT_EQ(::setsockopt(sender.get(), SOL_SOCKET, SO_LINGER, &patient, sizeof patient), 0);
    const std::vector<char> bytes(1 << 16);
    while (::send(sender.get(), bytes.data(), bytes.size(), MSG_DONTWAIT) > 0) {
    }
  }

  srd::UniqueFd sender;
  srd::UniqueFd reader;
};

struct Shape {
  const char* name;
  std::size_t bytes;
  std::size_t descriptors;
  int flags = 0;
};

class SlowCloses : public DaemonTest {
 protected:
  void SetUp() override {
    DaemonTest::SetUp();
    start(false);
  }

  // Passes it on, and does not have it any more. A connection that weftd has ended may refuse it.
  static void pass(int socket, std::span<const std::byte> bytes, Lingering& it,
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
    const std::vector<int> numbers(descriptors, it.sender.get());
    std::memcpy(CMSG_DATA(header), numbers.data(), sizeof(int) * descriptors);
    const ssize_t sent = ::sendmsg(socket, &message, MSG_NOSIGNAL | flags);
    if (sent < 0 && (errno == EPIPE || errno == ECONNRESET)) {
      const linger hasty{1, 0};  // ours is the last close, then
      ::setsockopt(it.sender.get(), SOL_SOCKET, SO_LINGER, &hasty, sizeof hasty);
    } else {
      EXPECT_EQ(sent, static_cast<ssize_t>(bytes.size()));
    }
    it.sender.reset();
  }

  void expect_service() const {
    EXPECT_TRUE(status().is_object());
    EXPECT_TRUE(join("h1"));
  }
  [[nodiscard]] srd::UniqueFd connect(const char* name) const {
    if (std::string(name) == "/attach.sock") {
      auto socket = connect_seqpacket(weftd_->attach_socket());
      EXPECT_TRUE(socket);
      return std::move(*socket);
    }
    return weftd_->talk(name);
  }
};

TEST_F(SlowCloses, HoldUpNobodyWhateverMessageBringsThem) {
  const std::vector<std::byte> bytes(4000, std::byte{'x'});
  for (const char* name : {"/control.sock", "/metrics.sock", "/attach.sock"}) {
    for (const std::size_t size : {1U, 12U, 4000U}) {
      for (const std::size_t descriptors : {1U, 4U, 5U, 253U}) {
        Lingering it;
        const srd::UniqueFd client = connect(name);
        pass(client.get(), std::span(bytes).first(size), it, descriptors);
        expect_service();
        ASSERT_FALSE(HasFailure()) << name << ": " << size << " bytes, " << descriptors;
      }
    }
  }
}

TEST_F(SlowCloses, HoldUpNobodyWhenTheConnectionEndsBeforeTheyAreRead) {
  for (const char* name : {"/control.sock", "/metrics.sock", "/attach.sock"}) {
    Lingering it;
    Lingering other;
    {
      const srd::UniqueFd client = connect(name);
      const std::string first = "GET / HTTP/9.9\r\n\r\n";  // ends it: an answer, or a refusal
      ASSERT_GT(::send(client.get(), first.data(), first.size(), MSG_NOSIGNAL), 0);
      pass(client.get(), std::as_bytes(std::span("behind it")), it);
      pass(client.get(), std::as_bytes(std::span("and again")), other);
    }
    expect_service();
    ASSERT_FALSE(HasFailure()) << name;
  }
}

TEST_F(SlowCloses, HoldUpNobodyAsUrgentData) {
  for (const char* name : {"/control.sock", "/metrics.sock"}) {
    Lingering it;
    const srd::UniqueFd client = connect(name);
    pass(client.get(), std::as_bytes(std::span("x").first(1)), it, 1, MSG_OOB);
    Weftd::say(client, "after it\n");
    expect_service();
    ASSERT_FALSE(HasFailure()) << name;
  }
}

TEST_F(SlowCloses, HoldUpNobodyAsAnEmptyMessageOrATapThatIsNone) {
  TapRequest tap;
  std::strcpy(tap.host.data(), "h1");
  const auto request = std::as_bytes(std::span(&tap, 1));
  for (const std::size_t size : {std::size_t{0}, request.size()}) {
    for (const std::size_t descriptors : {1U, 2U, 5U}) {
      Lingering it;
      const srd::UniqueFd client = connect("/attach.sock");
      pass(client.get(), request.first(size), it, descriptors);
      expect_service();
      ASSERT_FALSE(HasFailure()) << size << " bytes, " << descriptors;
    }
  }
}

TEST_F(SlowCloses, HoldUpNobodyWhenAnAttachedProcessSendsThem) {
  Lingering it;
  const srd::UniqueFd client = connect("/attach.sock");
  AttachRequest attach;
  std::strcpy(attach.host.data(), "h2");
  ASSERT_TRUE(send_struct(client.get(), attach));
  ASSERT_EQ(await_message(client.get(), 5000).fds.size(), 2U);
  pass(client.get(), std::as_bytes(std::span("nonsense")), it);
  expect_service();
}

}  // namespace
}  // namespace weft::emu
