// Owns accepting connections, and what happens when there is no descriptor left for one.
#include "emu/daemon/acceptor.hpp"

#include <fcntl.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <utility>

#include "emu/attach/seqpacket.hpp"

namespace weft::daemon {
namespace {

constexpr auto kLookAgain = std::chrono::milliseconds{100};

srd::UniqueFd accept_now(int listener) {
  return srd::UniqueFd(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
}

srd::UniqueFd open_spare() { return srd::UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC)); }

}  // namespace

Acceptor::Acceptor(boost::asio::io_context& io, SideThreads& side, srd::UniqueFd listener,
                   Rules rules)
    : side_(side),
      rules_(std::move(rules)),
      listener_(io, std::move(listener)),
      later_(io),
      spare_(open_spare()) {
  wait();
}

// Handlers may keep `this`: see the class.
void Acceptor::wait() {
  // Do not accept while the side threads are behind: each connection could add to their work. Nor
  // without the spare descriptor: a connection that cannot be accepted keeps the listener readable,
  // and this thread would spin.
  if (side_.is_full() || !spare_) {
    look_again_later();
    return;
  }
  listener_.when_readable([this] {
    accept_some();
    wait();
  });
}

void Acceptor::look_again_later() {
  later_.expires_after(kLookAgain);
  later_.async_wait([this](const auto& error) {
    if (error) {
      return;
    }
    if (!spare_) {
      spare_ = open_spare();
    }
    wait();
  });
}

void Acceptor::accept_some() {
  for (int i = 0; i < kAcceptsATurn; ++i) {
    auto socket = accept_one();
    if (!socket) {
      return;
    }
    if (const auto why = refusal_of(socket->get()); !why) {
      rules_.take(std::move(*socket));
    } else if (rules_.tell_strangers) {
      rules_.refuse(socket->get(), *why);
    }
  }
}

std::optional<std::string> Acceptor::refusal_of(int socket) const {
  if (rules_.refusal) {
    return rules_.refusal(socket);
  }
  return rules_.strangers || attach::may_connect(socket)
             ? std::nullopt
             : std::optional<std::string>("this weftd belongs to another user");
}

std::optional<ClientSocket> Acceptor::accept_one() {
  if (srd::UniqueFd socket = accept_now(listener_.fd())) {
    return ClientSocket(side_, std::move(socket));
  }
  if (errno == EMFILE || errno == ENFILE) {
    refuse_one();
  }
  return {};
}

// No descriptor is left: the spare one is given up for a moment, to accept the connection, tell the
// other side why it is refused, and get the spare back.
void Acceptor::refuse_one() {
  spare_.reset();
  srd::UniqueFd socket = accept_now(listener_.fd());
  if (!socket) {
    spare_ = open_spare();
    return;
  }
  ClientSocket refused(side_, std::move(socket));
  rules_.refuse(refused.get(), "weftd has no file descriptor left (ulimit -n)");
  // Closing it here could block on descriptors in its queue. Closing it on a side thread would free
  // its number, and another open() could take it; so the side thread puts the spare in its place
  // with dup3().
  refused.become(listener_.fd(), [this](srd::UniqueFd fd) {
    spare_ = std::move(fd);
    accept_some();
  });
}

}  // namespace weft::daemon
