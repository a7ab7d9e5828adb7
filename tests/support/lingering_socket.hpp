// Owns a descriptor whose last close waits.
#pragma once

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <utility>
#include <vector>

#include "srd/io/posix.hpp"

namespace weft::testing {

// A TCP connection of which the other end is not read: the process that closes this end last waits
// for what was sent to arrive. Passing it on gives ours up; while it is ours, its end waits for
// nothing.
class LingeringSocket {
 public:
  static constexpr std::chrono::seconds kPatience{600};

  LingeringSocket() {
    const srd::UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(::bind(listener.get(), generic, size), 0);
    EXPECT_EQ(::getsockname(listener.get(), generic, &size), 0);
    EXPECT_EQ(::listen(listener.get(), 1), 0);
    sender_ = srd::UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(sender_.get(), generic, size), 0);
    reader_ = srd::UniqueFd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    wait_when_closed(kPatience);
    const std::vector<char> bytes(1 << 16);
    while (::send(sender_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
    }
  }
  ~LingeringSocket() { wait_when_closed(std::chrono::seconds{0}); }
  LingeringSocket(const LingeringSocket&) = delete;
  LingeringSocket& operator=(const LingeringSocket&) = delete;

  [[nodiscard]] int fd() const { return sender_.get(); }
  // Another process has it, too.
  void give_up() { sender_.reset(); }

 private:
  void wait_when_closed(std::chrono::seconds patience) {
    const linger how{1, static_cast<int>(patience.count())};
    EXPECT_TRUE(!sender_ ||
                ::setsockopt(sender_.get(), SOL_SOCKET, SO_LINGER, &how, sizeof how) == 0);
  }

  srd::UniqueFd sender_;
  srd::UniqueFd reader_;
};

}  // namespace weft::testing
