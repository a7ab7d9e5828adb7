// Owns accepting connections.
#include "emu/daemon/acceptor.hpp"

#include <fcntl.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "emu/daemon/seqpacket.hpp"

namespace weft::emu {
namespace {

srd::UniqueFd accept_now(int listener) {
  return srd::UniqueFd(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
}

}  // namespace

Acceptor::Acceptor(boost::asio::io_context& io, srd::UniqueFd listener, Rules rules)
    : rules_(std::move(rules)),
      listener_(io, std::move(listener)),
      spare_(::open("/dev/null", O_RDONLY | O_CLOEXEC)) {
  wait();
}

// Lives as long as the io_context runs.
void Acceptor::wait() {
  listener_.when_readable([this] {
    accept_some();
    wait();
  });
}

void Acceptor::accept_some() {
  for (int i = 0; i < kAcceptsATurn; ++i) {
    srd::UniqueFd socket = accept_one();
    if (!socket) {
      return;
    }
    if (rules_.strangers || may_connect(socket.get())) {
      rules_.take(std::move(socket));
    } else if (rules_.tell_strangers) {
      rules_.refuse(socket.get(), "this weftd belongs to another user");
    }
  }
}

srd::UniqueFd Acceptor::accept_one() {
  srd::UniqueFd socket = accept_now(listener_.fd());
  if (socket || (errno != EMFILE && errno != ENFILE)) {
    return socket;
  }
  // Left alone it would wake us for ever.
  spare_.reset();
  socket = accept_now(listener_.fd());
  if (socket) {
    rules_.refuse(socket.get(), "weftd has no file descriptor left (ulimit -n)");
    socket.reset();
  }
  spare_ = srd::UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  return {};
}

}  // namespace weft::emu
