// Owns what a DPDK port does when its other side goes away and comes back. EAL, on which DPDK
// stands, is once in a process and survives no fork: whoever takes part is a process of its own,
// forked before EAL runs here.
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <new>
#include <string>
#include <thread>
#include <vector>

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

  // It may fork long before it is to serve: a byte in this pipe says when.
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

// Sends and receives as fast as it can, for ever, and counts for the test that watches.
struct Blaster {
  // In memory that the test shares: a process that will be killed has no other way to tell.
  struct Board {
    std::atomic<std::uint64_t> rounds{0}, received{0};
    std::atomic<bool> refused{false};
  };

  static pid_t start(Board& board, const std::string& devargs) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      run(board, devargs);
      ::_exit(0);
    }
    return pid;
  }
  static void run(Board& board, const std::string& devargs) {
    auto port = open_dpdk_port({.devargs = devargs, .eal = {}});
    if (!port) {
      board.refused = true;
      return;
    }
    const std::vector<std::byte> bytes(1500);
    std::array<TxFrame, 32> frames;
    for (TxFrame& frame : frames) {
      frame.pieces[0] = bytes;
    }
    while (true) {
      board.received += (*port)->receive().size();
      (*port)->release();
      const std::size_t room = std::min((*port)->transmit_room(), frames.size());
      [[maybe_unused]] const auto taken = (*port)->transmit({frames.data(), room});
      // Else the other side, on a machine with few cores, would not be reached at all.
      if (++board.rounds % 16 == 0) {
        ::sched_yield();
      }
    }
  }
};

class KilledMemifPeer : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    void* memory = ::mmap(nullptr, sizeof(Blaster::Board), PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    board_ = new (memory) Blaster::Board;
  }
  void TearDown() override {
    end(survivor_);
    end(victim_);
    ::munmap(board_, sizeof(Blaster::Board));
    ::unlink(socket_.c_str());
  }
  static void end(pid_t& pid) {
    if (pid > 0) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
    }
    pid = -1;
  }
  [[nodiscard]] std::string devargs(bool server) const {
    return std::string("net_memif0,role=") + (server ? "server" : "client") +
           ",socket-abstract=no,socket=" + socket_;
  }
  // False: it ended, or time is up.
  [[nodiscard]] bool survivor_sees(const std::atomic<std::uint64_t>& counter, std::uint64_t more) {
    const std::uint64_t wanted = counter + more;
    const TimePoint patience = clock_now() + std::chrono::seconds{60};
    while (counter < wanted && clock_now() < patience && !board_->refused) {
      if (::waitpid(survivor_, &status_, WNOHANG) != 0) {
        survivor_ = -1;
        return false;
      }
      std::this_thread::sleep_for(std::chrono::microseconds{200});
    }
    return counter >= wanted;
  }

  std::string socket_ = "/tmp/weft-test-memif-kill-" + std::to_string(::getpid());
  Blaster::Board* board_ = nullptr;
  // Not shared: nobody looks at what the victim counts.
  Blaster::Board victims_board_;
  pid_t survivor_ = -1;
  pid_t victim_ = -1;
  int status_ = 0;
};

TEST_P(KilledMemifPeer, UnderTrafficDoesNotTakeTheOtherWithIt) {
  const bool server = GetParam();
  survivor_ = Blaster::start(*board_, devargs(server));
  // A victim that dies with its hands in the rings must not take the other with it: hence traffic
  // both ways, and several tries.
  for (int kills = 0; kills < 8; ++kills) {
    SCOPED_TRACE("kill " + std::to_string(kills));
    victim_ = Blaster::start(victims_board_, devargs(!server));
    const bool traffic = survivor_sees(board_->received, 2000);
    if (board_->refused) {
      GTEST_SKIP() << "no DPDK port here: " << devargs(server);
    }
    ASSERT_TRUE(traffic) << "status of the survivor: " << status_;
    end(victim_);
    ASSERT_TRUE(survivor_sees(board_->rounds, 5000)) << "status of the survivor: " << status_;
  }
}

INSTANTIATE_TEST_SUITE_P(Dpdk, KilledMemifPeer, testing::Bool(), [](const auto& role) {
  return std::string(role.param ? "ServerSurvives" : "ClientSurvives");
});

TEST(Dpdk, ADeviceThatIsNotThereIsAnError) {
  const auto port = open_dpdk_port({.devargs = "net_nonsense0", .eal = {}});
  ASSERT_FALSE(port);
  EXPECT_FALSE(port.error().message.empty());
}

}  // namespace
}  // namespace weft::srd
