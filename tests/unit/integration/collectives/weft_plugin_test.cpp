// Owns the proof that threads which wait in calls of weft's plugin do not keep the core from whom
// they wait for.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "integration/collectives/net.hpp"

namespace weft::collectives {
namespace {

using nccl::abi::kSuccess;

constexpr int kRounds = 100;

void stay_on_one_core() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(static_cast<unsigned>(::sched_getcpu()), &cores);
  ::sched_setaffinity(0, sizeof cores, &cores);
}

struct Connection {
  void* sender = nullptr;
  void* receiver = nullptr;
};

// From a device to itself.
Connection connect(Net& net) {
  Connection made;
  Handle handle{};
  void* listener = nullptr;
  if (net.listen(0, handle, listener) != kSuccess) {
    return {};
  }
  while (made.sender == nullptr || made.receiver == nullptr) {
    if ((made.sender == nullptr && net.connect(0, handle, made.sender) != kSuccess) ||
        (made.receiver == nullptr && net.accept(listener, made.receiver) != kSuccess)) {
      return {};
    }
  }
  return made;
}

// Calls test() until the request has ended, as a program without a thought for others does. Gives
// the number of calls.
int wait_for(Net& net, void* request) {
  bool done = false;
  int calls = 0;
  for (int size = 0; !done; ++calls) {
    if (net.test(request, done, {&size, 1}) != kSuccess) {
      ::_exit(1);
    }
  }
  return calls;
}

// One of two players who send each other a message without bytes in turn.
int play(Net& net, void* sender, void* receiver, bool begins) {
  int calls = 0;
  for (int i = 0; i < 2 * kRounds; ++i) {
    void* request = nullptr;
    while (request == nullptr) {
      const Posted empty{};
      const bool sends = (i % 2 == 0) == begins;
      if ((sends ? net.send(sender, empty, request)
                 : net.receive(receiver, {&empty, 1}, false, request)) != kSuccess) {
        ::_exit(1);
      }
    }
    calls += wait_for(net, request);
  }
  return calls;
}

// What one waits for is done by the other one, on the same core. A thread that keeps it calls
// test() for a whole time slice, thousands of times for each message.
TEST(WeftPlugin, WaitingThreadsOfOneCoreLetEachOtherRun) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::alarm(100);
    stay_on_one_core();
    const auto loaded = load_net(WEFT_PLUGIN, std::nullopt);
    int devices = 0;
    if (!loaded || loaded->net->init() != kSuccess || loaded->net->devices(devices) != kSuccess ||
        devices == 0) {
      ::_exit(1);
    }
    Net& net = *loaded->net;
    const Connection there = connect(net);
    const Connection back = connect(net);
    if (there.sender == nullptr || back.sender == nullptr) {
      ::_exit(1);
    }
    int calls[2] = {};
    std::thread other([&] { calls[1] = play(net, back.sender, there.receiver, false); });
    calls[0] = play(net, there.sender, back.receiver, true);
    other.join();
    const int each = (calls[0] + calls[1]) / (2 * kRounds);
    std::fprintf(stderr, "%d calls for each message\n", each);
    ::_exit(each < 500 ? 0 : 2);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0) << "2: too many calls";
}

}  // namespace
}  // namespace weft::collectives
