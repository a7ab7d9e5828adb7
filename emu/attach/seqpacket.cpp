// Owns the system calls of unix sockets with file descriptors.
//
// A descriptor that arrives with a message belongs to this process at once, wanted or not. So every
// receive takes all descriptors first (descriptors_of()), whatever the message turns out to be, and
// closes those that no message of ours brings.
#include "emu/attach/seqpacket.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace weft::attach {
namespace {

constexpr std::size_t kMaxMessage = 1024;
constexpr std::size_t kMaxOurFds = 4;  // of any message of ours
// In any message, by the kernel's limit: there must be room for all, because the kernel closes
// those that do not fit, in our thread, and a close can block.
constexpr std::size_t kMaxKernelFds = 253;
constexpr std::size_t kControlRoom =
    CMSG_SPACE(sizeof(ucred)) + CMSG_SPACE(sizeof(int) * kMaxKernelFds);

std::optional<ucred> credentials_of(int socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 ? std::optional(peer)
                                                                          : std::nullopt;
}

// All descriptors of a message, owned from here on.
std::vector<srd::UniqueFd> descriptors_of(msghdr& message) {
  std::vector<srd::UniqueFd> fds;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) {
      continue;
    }
    const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof fd);
      fds.emplace_back(fd);
    }
  }
  return fds;
}

}  // namespace

Result<sockaddr_un> unix_address(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    return fail(ErrorCode::invalid_argument, "socket path '" + path + "' is too long: at most " +
                                                 std::to_string(sizeof address.sun_path - 1) +
                                                 " characters");
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

void close_unwanted(std::vector<srd::UniqueFd>& fds) {
  const linger not_at_all{0, 0};
  for (const srd::UniqueFd& fd : fds) {
    ::setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &not_at_all, sizeof not_at_all);  // if it is one
  }
  fds.clear();
}

Result<srd::UniqueFd> connect_seqpacket(const std::string& path, Duration patience) {
  const auto address = unix_address(path);
  if (!address) {
    return tl::unexpected(address.error());
  }
  const bool waits = patience > Duration{0};
  srd::UniqueFd fd(
      ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | (waits ? 0 : SOCK_NONBLOCK), 0));
  if (fd && waits) {
    const auto microseconds = nanoseconds(patience) / 1000;
    const timeval limit{microseconds / 1'000'000, microseconds % 1'000'000};
    ::setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  }
  if (!fd ||
      ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address) != 0) {
    if (errno == EAGAIN) {
      return fail(ErrorCode::io_error, "weftd at '" + path + "' accepts no connection");
    }
    if (errno == EACCES) {
      return fail(ErrorCode::not_permitted,
                  "'" + path + "' belongs to another user's network, which admits no uid " +
                      std::to_string(::geteuid()) + " (`weft up --allow-uid` does)");
    }
    return fail(
        errno == ENOENT || errno == ECONNREFUSED ? ErrorCode::not_found : ErrorCode::io_error,
        srd::errno_text("no weftd answers at '" + path +
                        "' (start one with 'weft up', or use 'weft run')"));
  }
  return fd;
}

Result<srd::UniqueFd> listen_unix(const std::string& path, int type) {
  const auto address = unix_address(path);
  if (!address) {
    return tl::unexpected(address.error());
  }
  const auto* generic = reinterpret_cast<const sockaddr*>(&*address);
  // A socket file outlives its process; only a connection shows whether one listens there.
  srd::UniqueFd probe(::socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
  if (probe && ::connect(probe.get(), generic, sizeof *address) == 0) {
    return fail(ErrorCode::already_exists, "another weftd listens on '" + path + "'");
  }
  ::unlink(path.c_str());
  srd::UniqueFd fd(::socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd || ::bind(fd.get(), generic, sizeof *address) != 0 ||
      ::chmod(path.c_str(), S_IRUSR | S_IWUSR) != 0 || ::listen(fd.get(), SOMAXCONN) != 0) {
    return fail(ErrorCode::io_error, srd::errno_text("listening on '" + path + "'"));
  }
  return fd;
}

bool may_connect(int socket) {
  const auto peer = credentials_of(socket);
  return peer && (peer->uid == ::geteuid() || peer->uid == 0);
}

pid_t peer_process(int socket) {
  const auto peer = credentials_of(socket);
  return peer ? peer->pid : -1;
}

uid_t peer_user(int socket) {
  const auto peer = credentials_of(socket);
  return peer ? peer->uid : static_cast<uid_t>(-1);
}

bool send_message(int socket, std::span<const std::byte> bytes, std::initializer_list<int> fds) {
  iovec piece{const_cast<std::byte*>(bytes.data()), bytes.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * kMaxOurFds)> control{};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  if (fds.size() != 0) {
    const std::size_t size = fds.size() * sizeof(int);
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(size);
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(size);
    std::memcpy(CMSG_DATA(header), fds.begin(), size);
  }
  return ::sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL) ==
         static_cast<ssize_t>(bytes.size());
}

Received receive_message(int socket) {
  Received received;
  received.bytes.resize(kMaxMessage);
  iovec piece{received.bytes.data(), received.bytes.size()};
  alignas(cmsghdr) std::array<char, kControlRoom> control;
  msghdr message{};
  ssize_t size;
  bool reset = false;
  bool again = false;
  do {
    message = {};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    size = ::recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    // If the peer closed without reading our last message, the first call says ECONNRESET, and the
    // next one returns what the peer had sent.
    again = size < 0 && (errno == EINTR || (errno == ECONNRESET && !reset));
    reset = reset || (again && errno == ECONNRESET);
  } while (again);
  if (size < 0) {
    received.bytes.clear();
    const bool nothing = errno == EAGAIN || errno == EWOULDBLOCK;
    received.state = nothing ? Received::State::nothing : Received::State::closed;
    return received;
  }
  // Taken before anything else is decided: even an empty datagram, which reads like the end of the
  // connection, can carry descriptors, and from here on they are ours to close.
  received.fds = descriptors_of(message);
  received.bytes.resize(static_cast<std::size_t>(size));
  received.state = size == 0 ? Received::State::closed : Received::State::message;
  if (received.state == Received::State::closed ||
      (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0 || received.fds.size() > kMaxOurFds) {
    received.bytes.clear();  // larger than any message of ours
    close_unwanted(received.fds);
  }
  return received;
}

Received await_message(int socket, int milliseconds) {
  pollfd fd{socket, POLLIN, 0};
  int ready;
  do {
    ready = ::poll(&fd, 1, milliseconds);
  } while (ready < 0 && errno == EINTR);
  return ready > 0 ? receive_message(socket) : Received{};
}

}  // namespace weft::attach
