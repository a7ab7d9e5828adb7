// Owns the system calls behind bells.
#include "srd/io/bell.hpp"

#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>

namespace weft::srd {
namespace {

constexpr int kPassRights = 83;  // SO_PASSRIGHTS, which older headers lack

// A correct peer rings once per sleep of ours. A peer that rings more often gets this many taken
// per call; the rest stay in the socket.
constexpr int kMaxCleared = 8;

// System calls by number: libc's functions are points at which a thread can be cancelled, and these
// are called with a lock held.
bool take_one(int fd) {
  std::byte message[1];
  return ::syscall(SYS_recvfrom, fd, message, sizeof message, MSG_DONTWAIT, nullptr, nullptr) > 0;
}

// Whether the next message carries more than take_one() asks for: descriptors, or, on a socket with
// SO_PASSCRED, credentials. A peek installs no descriptor, so there is none to close afterwards.
bool carries_more(int fd) {
  std::byte byte[1];
  iovec piece{byte, sizeof byte};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  // With MSG_PEEK the message stays; only the flags of the answer are of interest.
  const auto look = [&] {
    return ::syscall(SYS_recvmsg, fd, &message, MSG_DONTWAIT | MSG_PEEK) >= 0;
  };
  // ECONNRESET is reported once, if the peer closed without reading our rings; the next peek shows
  // the message.
  const bool seen = look() || (errno == ECONNRESET && look());
  return seen && (message.msg_flags & MSG_CTRUNC) != 0;
}

}  // namespace

Bell& Bell::operator=(Bell&& other) noexcept {
  if (this != &other) {
    close();
    fd_ = std::move(other.fd_);
    refusal_ = other.refusal_;
  }
  return *this;
}

Result<std::pair<Bell, Bell>> Bell::create_pair() {
  int fds[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) != 0) {
    return fail(ErrorCode::out_of_resources, errno_text("bell: socketpair"));
  }
  UniqueFd ends[2] = {UniqueFd(fds[0]), UniqueFd(fds[1])};
  auto first = adopt(std::move(ends[0]));
  auto second = adopt(std::move(ends[1]));
  if (!first || !second) {
    return tl::unexpected(first ? second.error() : first.error());
  }
  return std::pair<Bell, Bell>{std::move(*first), std::move(*second)};
}

Result<Bell> Bell::adopt(UniqueFd fd, Refusal wanted) {
  int domain = 0;
  int type = 0;
  socklen_t size = sizeof domain;
  if (::getsockopt(fd.get(), SOL_SOCKET, SO_DOMAIN, &domain, &size) != 0 || domain != AF_UNIX ||
      ::getsockopt(fd.get(), SOL_SOCKET, SO_TYPE, &type, &size) != 0 || type != SOCK_SEQPACKET) {
    return fail(ErrorCode::invalid_argument, "bell: the descriptor is no end of a socket pair");
  }
  Bell bell;
  bell.fd_ = std::move(fd);
  const int off = 0;
  if (wanted == Refusal::by_kernel &&
      ::setsockopt(bell.fd(), SOL_SOCKET, kPassRights, &off, sizeof off) == 0) {
    bell.refusal_ = Refusal::by_kernel;
  }
  return bell;
}

void Bell::ring() const {
  const std::byte message[1]{};
  // EAGAIN: the other side has more rings than it reads. EPIPE: it is gone.
  [[maybe_unused]] const auto sent = ::syscall(SYS_sendto, fd_.get(), message, sizeof message,
                                               MSG_DONTWAIT | MSG_NOSIGNAL, nullptr, 0);
}

bool Bell::clear() const {
  for (int i = 0; i < kMaxCleared; ++i) {
    if (refusal_ == Refusal::by_looking && carries_more(fd_.get())) {
      return false;
    }
    if (!take_one(fd_.get())) {
      break;
    }
  }
  return true;
}

// Closing a socket closes the descriptors in its queue. So an end whose queue holds some is not
// closed: it stays open as long as the process lives. First the harmless messages are taken. Then
// SO_PASSCRED makes the peek report credentials for any message at all, also for one that
// take_one() cannot tell from an empty queue.
void Bell::close() {
  if (!fd_ || refusal_ == Refusal::by_kernel) {
    return;
  }
  ::shutdown(fd_.get(), SHUT_RDWR);  // nothing more comes
  while (!carries_more(fd_.get()) && take_one(fd_.get())) {
  }
  // What is left carries descriptors, or stands behind an empty message; correct peers send
  // neither.
  const int on = 1;
  ::setsockopt(fd_.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof on);
  if (carries_more(fd_.get())) {
    [[maybe_unused]] const int for_ever = fd_.release();
  }
}

}  // namespace weft::srd
