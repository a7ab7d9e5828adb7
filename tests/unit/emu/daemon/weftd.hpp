// Owns a weftd of a test's own, in a process of its own so that it can be killed, and what tests
// ask of it by its sockets.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>

#include "emu/attach/client.hpp"
#include "emu/attach/seqpacket.hpp"
#include "emu/daemon/daemon.hpp"
#include "srd/io/posix.hpp"
#include "srd/run/clock.hpp"

namespace weft::daemon {

using nlohmann::json;

// Tries again until `condition` holds, for at most 20 s.
template <class Condition>
bool eventually(Condition&& condition) {
  const auto patience = srd::monotonic_now() + std::chrono::seconds{20};
  while (!condition()) {
    if (srd::monotonic_now() > patience) {
      return false;
    }
    std::this_thread::yield();
  }
  return true;
}

// One thread uses this object. The daemon is forked, not executed: it inherits what the test has
// open, so it is to be made before the test makes threads of its own.
class Weftd {
 public:
  // `before` runs first in the daemon's process: to lower a limit there, for example. Returns when
  // its attach socket answers.
  explicit Weftd(DaemonOptions options, std::function<void()> before = {})
      : options_(std::move(options)), before_(std::move(before)) {
    start();
  }
  ~Weftd() { kill(SIGTERM); }
  Weftd(const Weftd&) = delete;
  Weftd& operator=(const Weftd&) = delete;

  // Again after kill(), with the same options and folder. A daemon that cannot be made says why on
  // standard error, and the test fails here.
  void start() {
    pid_ = ::fork();
    if (pid_ == 0) {
      if (before_) {
        before_();
      }
      auto daemon = Daemon::create(options_);
      if (!daemon) {
        std::fprintf(stderr, "%s\n", daemon.error().message.c_str());
      }
      _exit(daemon && (*daemon)->run() ? 0 : 1);
    }
    EXPECT_TRUE(eventually([&] { return attach::connect_seqpacket(attach_socket()).has_value(); }));
  }
  // Returns its exit status as waitpid() tells it; -1 if it was gone already.
  int kill(int signal) {
    int status = -1;
    if (pid_ > 0) {
      ::kill(pid_, signal);
      ::waitpid(pid_, &status, 0);
      pid_ = -1;
    }
    return status;
  }
  // Reaps a daemon that has ended. Its number is free from then on, though kill() and the
  // destructor still signal it.
  [[nodiscard]] bool alive() const { return ::waitpid(pid_, nullptr, WNOHANG) == 0; }
  [[nodiscard]] const DaemonOptions& options() const { return options_; }
  // Bytes of its own that lie in memory now: without the rings, which it shares with others.
  [[nodiscard]] std::size_t resident() const {
    std::ifstream statm("/proc/" + std::to_string(pid_) + "/statm");
    std::size_t whole = 0;
    std::size_t present = 0;
    std::size_t shared = 0;
    EXPECT_TRUE(statm >> whole >> present >> shared);
    // statm counts pages.
    return (present - shared) * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  }

  [[nodiscard]] std::string attach_socket() const { return options_.directory + "/attach.sock"; }
  [[nodiscard]] Result<attach::Attachment> join(attach::AttachOptions options = {}) const {
    options.socket = attach_socket();
    return attach::attach(std::move(options));
  }

  // A connection to one of its sockets, on which reading fails after 20 s: a weftd that does not
  // answer fails the test instead of stopping it.
  [[nodiscard]] srd::UniqueFd talk(const std::string& socket = "/control.sock") const {
    srd::UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const timeval patience{20, 0};
    ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strcpy(address.sun_path, (options_.directory + socket).c_str());
    EXPECT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    return fd;
  }
  static void say(const srd::UniqueFd& fd, const std::string& text) {
    EXPECT_EQ(::send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(text.size()));
  }
  // One line, or what came before the end.
  static std::string hear(const srd::UniqueFd& fd) {
    std::string line;
    char byte = 0;
    while (!line.ends_with('\n') && ::recv(fd.get(), &byte, 1, 0) == 1) {
      line += byte;
    }
    return line;
  }
  // A connection of its own for each question. What is not JSON comes back as a discarded value.
  [[nodiscard]] json ask_line(const std::string& line) const {
    const srd::UniqueFd control = talk();
    say(control, line + "\n");
    return json::parse(hear(control), nullptr, false);
  }
  [[nodiscard]] json ask(const json& request) const { return ask_line(request.dump()); }
  [[nodiscard]] json status() const { return ask({{"v", 1}, {"cmd", "status"}})["status"]; }

 private:
  DaemonOptions options_;
  std::function<void()> before_;
  pid_t pid_ = -1;
};

}  // namespace weft::daemon
