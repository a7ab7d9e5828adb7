// Owns what a DPDK port does when its other side goes away and comes back.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <string>
#include <thread>

#include "srd/io/dpdk_port.hpp"
#include "srd/io/posix.hpp"

namespace weft::srd {
namespace {

// A process that serves memif when it is told to, and sends back what it gets.
class Server {
 public:
  explicit Server(const std::string& devargs) {
    if (::pipe(go_.data()) != 0) {
      return;
    }
    pid_ = ::fork();
    if (pid_ == 0) {
      char byte = 0;
      if (::read(go_[0], &byte, 1) == 1) {
        serve(devargs);
      }
      ::_exit(1);
    }
  }
  ~Server() {
    end(SIGKILL);
    ::close(go_[0]);
    ::close(go_[1]);
  }
  void start() const { ASSERT_EQ(::write(go_[1], "x", 1), 1); }
  void end(int signal) {
    if (pid_ > 0) {
      ::kill(pid_, signal);
      ::waitpid(pid_, nullptr, 0);
      pid_ = -1;
    }
  }

 private:
  static void serve(const std::string& devargs) {
    auto port = open_dpdk_port({.devargs = devargs, .eal = {}});
    while (port) {
      std::array<TxFrame, 32> answers;
      std::size_t count = 0;
      for (const RxFrame& frame : (*port)->receive()) {
        answers[count++].pieces[0] = frame;
      }
      [[maybe_unused]] const auto taken = (*port)->transmit({answers.data(), count});
      (*port)->release();
      ::sched_yield();
    }
  }

  std::array<int, 2> go_{-1, -1};
  pid_t pid_ = -1;
};

bool echoes(FrameIo& port) {
  const std::array<std::byte, 64> bytes{};
  TxFrame frame;
  frame.pieces[0] = bytes;
  const TimePoint patience = clock_now() + std::chrono::seconds{30};
  while (clock_now() < patience) {
    [[maybe_unused]] const auto taken = port.transmit({&frame, 1});
    const bool heard = !port.receive().empty();
    port.release();
    if (heard) {
      return true;
    }
    std::this_thread::sleep_for(
        std::chrono::milliseconds{1});  // a slow poller, for the driver's sake
  }
  return false;
}

TEST(Dpdk, AMemifClientFindsItsServerAgain) {
  const std::string common =
      ",socket-abstract=no,socket=/tmp/weft-test-memif-again-" + std::to_string(::getpid());
  // Before EAL runs here: it does not survive a fork.
  Server first("net_memif0,role=server" + common);
  Server second("net_memif0,role=server" + common);
  auto port = open_dpdk_port({.devargs = "net_memif0,role=client" + common, .eal = {}});
  if (!port) {
    GTEST_SKIP() << port.error().message;
  }
  first.start();
  ASSERT_TRUE(echoes(**port));
  first.end(SIGKILL);
  second.start();
  EXPECT_TRUE(echoes(**port));
  port->reset();
  second.end(SIGKILL);
  ::unlink(("/tmp/weft-test-memif-again-" + std::to_string(::getpid())).c_str());
}

TEST(Dpdk, ADeviceThatIsNotThereIsAnError) {
  const auto port = open_dpdk_port({.devargs = "net_nonsense0", .eal = {}});
  ASSERT_FALSE(port);
  EXPECT_FALSE(port.error().message.empty());
}

}  // namespace
}  // namespace weft::srd
