// Owns weftd's conversations: connections to its control socket, and for metrics over HTTP.
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "emu/daemon/control.hpp"
#include "emu/daemon/daemon.hpp"
#include "emu/daemon/metrics.hpp"

namespace weft::emu {
namespace {

constexpr std::size_t kMaxLine = 1 << 16;
constexpr std::size_t kMaxTalks = 64;

// Only this user and root.
bool may_talk(int socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
         (peer.uid == ::geteuid() || peer.uid == 0);
}

}  // namespace

Result<void> Daemon::open_metrics() {
  auto socket = listen_unix(options_.directory + "/metrics.sock", SOCK_STREAM);
  if (!socket) {
    return tl::unexpected(socket.error());
  }
  metrics_socket_ = std::move(*socket);
  if (!watch(metrics_socket_.get(), Source::metrics)) {
    return fail(ErrorCode::out_of_resources, srd::errno_text("weftd: its event loop"));
  }
  if (options_.metrics_port == 0) {
    return {};
  }
  metrics_listener_ =
      srd::UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(options_.metrics_port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int on = 1;
  ::setsockopt(metrics_listener_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(metrics_listener_.get(), reinterpret_cast<const sockaddr*>(&address),
             sizeof address) != 0 ||
      ::listen(metrics_listener_.get(), 16) != 0 ||
      !watch(metrics_listener_.get(), Source::metrics)) {
    return fail(ErrorCode::io_error,
                srd::errno_text("metrics on 127.0.0.1:" + std::to_string(options_.metrics_port)));
  }
  return {};
}

void Daemon::accept_talks(int listener, bool http) {
  while (true) {
    srd::UniqueFd socket(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) {
      return;
    }
    const bool allowed = listener == metrics_listener_.get() || may_talk(socket.get());
    const int fd = socket.get();
    if (allowed && talks_.size() < kMaxTalks && watch(fd, Source::talk)) {
      talks_[fd] = {std::move(socket), {}, http};
    }
  }
}

void Daemon::hear_talk(int fd) {
  Talk& talk = talks_[fd];
  std::array<char, 4096> buffer;
  const ssize_t size = ::recv(fd, buffer.data(), buffer.size(), MSG_DONTWAIT);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) {
    return;
  }
  talk.input.append(buffer.data(), size > 0 ? static_cast<std::size_t>(size) : 0);
  if (size <= 0 || !answer_talk(talk) || talk.input.size() > kMaxLine) {
    unwatch(fd);
    talks_.erase(fd);
  }
}

// False: the connection is over. Who does not read the answer does not get one: weftd waits for
// nobody.
bool Daemon::answer_talk(Talk& talk) {
  while (true) {
    std::string reply;
    bool close = false;
    if (talk.http) {
      auto answer = answer_http(*this, talk.input, close);
      if (!answer) {
        return true;
      }
      reply = std::move(*answer);
    } else {
      const std::size_t end = talk.input.find('\n');
      if (end == std::string::npos) {
        return true;
      }
      reply = answer_control(*this, talk.input.substr(0, end));
      talk.input.erase(0, end + 1);
    }
    if (::send(talk.socket.get(), reply.data(), reply.size(), MSG_DONTWAIT | MSG_NOSIGNAL) !=
            static_cast<ssize_t>(reply.size()) ||
        close) {
      return false;
    }
  }
}

}  // namespace weft::emu
