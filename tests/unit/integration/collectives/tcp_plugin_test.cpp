// Owns the proof that no call of the TCP yardstick waits for anybody.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <vector>

#include "integration/collectives/net.hpp"

namespace weft::collectives {
namespace {

using nccl::abi::kSuccess;

// In a process of its own, which a call that waits for ever does not outlive.
bool ends(const std::function<bool()>& body) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::alarm(20);
    ::_exit(body() ? 0 : 1);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  return status == 0;
}

struct Listening {
  Handle handle{};
  void* listener = nullptr;
};

Listening listen(Net& net) {
  Listening made;
  EXPECT_EQ(net.listen(0, made.handle, made.listener), kSuccess);
  return made;
}

// A stranger's connection to a listener of the plugin.
int knock(const Handle& handle) {
  sockaddr_in address{};
  std::memcpy(&address, handle.data(), sizeof address);
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  EXPECT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  return fd;
}

bool accepts(Net& net, void* listener) {
  void* connection = nullptr;
  return net.accept(listener, connection) == kSuccess && connection != nullptr;
}

// Each has begun to connect when the other one accepts: a thread may not wait there for what it
// would do next itself.
TEST(TcpPlugin, TwoListenersOfOneThreadConnectToEachOther) {
  EXPECT_TRUE(ends([] {
    const auto loaded = load_net(WEFT_TCP_PLUGIN, std::nullopt);
    Net& net = *loaded->net;
    Listening ends[2] = {listen(net), listen(net)};
    void* senders[2] = {};
    void* receivers[2] = {};
    for (int tries = 0; tries < 1'000'000; ++tries) {
      for (int i = 0; i < 2; ++i) {
        if (senders[i] == nullptr && net.connect(0, ends[1 - i].handle, senders[i]) != kSuccess) {
          return false;
        }
      }
      for (int i = 0; i < 2; ++i) {
        if (receivers[i] == nullptr && net.accept(ends[i].listener, receivers[i]) != kSuccess) {
          return false;
        }
      }
      if (senders[0] && senders[1] && receivers[0] && receivers[1]) {
        return true;
      }
    }
    return false;
  }));
}

TEST(TcpPlugin, WhoSaysNothingOrTheWrongThingStandsInNobodysWay) {
  EXPECT_TRUE(ends([] {
    const auto loaded = load_net(WEFT_TCP_PLUGIN, std::nullopt);
    Net& net = *loaded->net;
    Listening end = listen(net);
    const int silent = knock(end.handle);
    const int wrong = knock(end.handle);
    const int half = knock(end.handle);
    if (::send(wrong, "GET / HTTP", 10, 0) != 10 || ::send(half, "P", 1, 0) != 1) {
      return false;
    }
    void* sender = nullptr;
    bool accepted = false;
    for (int tries = 0; tries < 1'000'000 && !(sender != nullptr && accepted); ++tries) {
      if (sender == nullptr && net.connect(0, end.handle, sender) != kSuccess) {
        return false;
      }
      accepted = accepted || accepts(net, end.listener);
    }
    return accepted && net.close_listener(end.listener) == kSuccess && silent >= 0;
  }));
}

// A connection that has failed forgets its socket: by the next call with the same handle, the
// number may be that of somebody else's file.
TEST(TcpPlugin, AConnectionThatHasFailedTouchesNobodysFile) {
  EXPECT_TRUE(ends([] {
    const auto loaded = load_net(WEFT_TCP_PLUGIN, std::nullopt);
    Net& net = *loaded->net;
    Listening end = listen(net);
    if (net.close_listener(end.listener) != kSuccess) {
      return false;
    }
    void* sender = nullptr;
    while (net.connect(0, end.handle, sender) == kSuccess) {
    }
    const int file = ::dup(STDIN_FILENO);  // it gets the lowest number that is free
    while (net.connect(0, end.handle, sender) == kSuccess) {
    }
    return file >= 0 && ::fcntl(file, F_GETFD) >= 0 && sender == nullptr;
  }));
}

}  // namespace
}  // namespace weft::collectives
