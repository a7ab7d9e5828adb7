// Owns weftd's conversations: connections to its control socket, and for metrics over HTTP.
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "emu/daemon/control.hpp"
#include "emu/daemon/daemon.hpp"
#include "emu/daemon/metrics.hpp"
#include "srd/run/clock.hpp"

namespace weft::emu {
namespace {

constexpr std::size_t kMaxLine = 1 << 16;
constexpr std::size_t kMaxTalks = 64;  // of either kind
constexpr Duration kIdleTalk = std::chrono::minutes{5};
constexpr Duration kStuckTalk = std::chrono::seconds{10};  // an answer that is not read
constexpr Duration kIdleNewcomer = std::chrono::seconds{10};

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

srd::UniqueFd Daemon::accept_one(int listener, const std::function<void(int)>& refuse) {
  srd::UniqueFd socket(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (socket || (errno != EMFILE && errno != ENFILE)) {
    return socket;
  }
  // Left alone it would wake us for ever.
  spare_.reset();
  socket = srd::UniqueFd(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (socket) {
    refuse(socket.get());
    socket.reset();
  }
  spare_ = srd::UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  return {};
}

void Daemon::accept_talks(int listener, bool http) {
  const auto refuse = [&](int socket, const std::string& why) {
    const std::string text = http ? "HTTP/1.1 503 Service Unavailable\r\nContent-Length: " +
                                        std::to_string(why.size() + 1) +
                                        "\r\nConnection: close\r\n\r\n" + why + "\n"
                                  : "{\"error\":\"" + why + "\",\"ok\":false,\"v\":1}\n";
    [[maybe_unused]] const auto sent =
        ::send(socket, text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  };
  while (true) {
    srd::UniqueFd socket = accept_one(
        listener, [&](int fd) { refuse(fd, "weftd has no file descriptor left (ulimit -n)"); });
    if (!socket) {
      return;
    }
    if (listener != metrics_listener_.get() && !may_connect(socket.get())) {
      continue;
    }
    const auto talks = static_cast<std::size_t>(std::count_if(
        talks_.begin(), talks_.end(), [&](const auto& talk) { return talk.second.http == http; }));
    const int fd = socket.get();
    if (talks >= kMaxTalks) {
      refuse(fd, "weftd has " + std::to_string(talks) + " such connections; close some");
    } else if (watch(fd, Source::talk)) {
      const TimePoint now = srd::monotonic_now();
      Talk& talk = talks_[fd];
      talk.socket = std::move(socket);
      talk.http = http;
      talk.since = now;
      next_end_idle_ = std::min(next_end_idle_, now + kIdleInterval);
    }
  }
}

void Daemon::hear_talk(int fd) {
  Talk& talk = talks_[fd];
  bool goes_on = true;
  if (!talk.output.empty()) {
    // Then what came meanwhile: it may be whole, and nothing more has to arrive for it.
    goes_on = send_output(talk) && (!talk.output.empty() || answer_talk(talk));
  } else {
    std::array<char, 4096> buffer;
    const ssize_t size = ::recv(fd, buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) {
      return;
    }
    talk.since = srd::monotonic_now();
    talk.input.append(buffer.data(), size > 0 ? static_cast<std::size_t>(size) : 0);
    goes_on = size > 0 && answer_talk(talk);
  }
  if (!goes_on || talk.input.size() > kMaxLine) {
    unwatch(fd);
    talks_.erase(fd);
  }
}

// False: the connection is over.
bool Daemon::answer_talk(Talk& talk) {
  // Who does not read an answer is not heard any further.
  while (talk.output.empty()) {
    if (talk.closing) {
      return false;
    }
    if (talk.http) {
      auto answer = answer_http(*this, talk.input, talk.closing);
      if (!answer) {
        return true;
      }
      talk.output = std::move(*answer);
    } else {
      const std::size_t end = talk.input.find('\n');
      if (end == std::string::npos) {
        return true;
      }
      talk.output = answer_control(*this, talk.input.substr(0, end));
      talk.input.erase(0, end + 1);
    }
    if (!send_output(talk)) {
      return false;
    }
  }
  return true;
}

// What a socket does not take at once leaves when it takes more. False: the connection is over.
bool Daemon::send_output(Talk& talk) {
  const ssize_t size = ::send(talk.socket.get(), talk.output.data(), talk.output.size(),
                              MSG_DONTWAIT | MSG_NOSIGNAL);
  if (size < 0) {
    if (errno != EAGAIN && errno != EINTR) {
      return false;
    }
  } else {
    talk.since = srd::monotonic_now();
    talk.output.erase(0, static_cast<std::size_t>(size));
  }
  if (talk.output.empty() != talk.stuck) {
    return true;
  }
  talk.stuck = !talk.stuck;
  epoll_event event{};
  event.events = talk.stuck ? EPOLLOUT : EPOLLIN;
  event.data.fd = talk.socket.get();
  return ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, talk.socket.get(), &event) == 0;
}

void Daemon::end_idle(TimePoint now) {
  if (now < next_end_idle_) {
    return;
  }
  for (auto talk = talks_.begin(); talk != talks_.end();) {
    const Duration patience = talk->second.output.empty() ? kIdleTalk : kStuckTalk;
    if (now - talk->second.since < patience) {
      ++talk;
      continue;
    }
    unwatch(talk->first);
    talk = talks_.erase(talk);
  }
  for (auto newcomer = newcomers_.begin(); newcomer != newcomers_.end();) {
    if (now - newcomer->second.since < kIdleNewcomer) {
      ++newcomer;
      continue;
    }
    unwatch(newcomer->first);
    newcomer = newcomers_.erase(newcomer);
  }
  next_end_idle_ = talks_.empty() && newcomers_.empty() ? kNever : now + kIdleInterval;
}

}  // namespace weft::emu
