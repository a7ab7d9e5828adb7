// Owns what becomes of calls on device files that wait while another thread closes their file.
#include "integration/preload/waiting_call.hpp"

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <fstream>
#include <memory>
#include <string>
#include <thread>

namespace weft::preload {
namespace {

// As a device file: a call finds what has been put there, or sleeps.
struct File {
  File() : program(pair.open()) { EXPECT_GE(program, 0); }
  ~File() { ::close(program); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  void put() {
    ready = true;
    EXPECT_EQ(::send(pair.ours(), "x", 1, 0), 1);
  }
  ssize_t attempt(WaitingCall& call) {
    ++attempts;
    if (ready) {
      return 1;
    }
    if (call.at == nullptr) {
      call.at = pair.ends();
      ++call.at->holders;
    }
    call.sleeps = true;
    errno = EAGAIN;
    return -1;
  }

  kernel::StreamPair pair;
  int program;
  std::atomic<bool> ready{false};
  std::atomic<int> attempts{0};
};

// A thread in a call on a file that others may close.
class Sleeper {
 public:
  explicit Sleeper(const std::shared_ptr<File>& file) : file_(file) {
    thread_ = std::thread([this] {
      thread_id_ = static_cast<int>(syscall(SYS_gettid));
      result_ = call();
      error_ = errno;
      ended_ = true;
    });
    EXPECT_TRUE(eventually([&] { return file->attempts > 0; }));
  }
  ~Sleeper() {
    // Whatever was expected of it, it ends.
    while (!ended_) {
      signal();
      std::this_thread::yield();
    }
    thread_.join();
  }
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;

  void signal() { pthread_kill(thread_.native_handle(), SIGUSR1); }
  [[nodiscard]] bool falls_asleep() {
    return eventually([&] {
      std::ifstream file("/proc/self/task/" + std::to_string(thread_id_) + "/syscall");
      long number = -1;
      return file >> number && number == SYS_recvfrom;
    });
  }
  [[nodiscard]] bool has_ended() const { return ended_; }
  [[nodiscard]] bool ends() {
    return eventually([&] { return ended_.load(); });
  }
  [[nodiscard]] ssize_t result() const { return result_; }
  [[nodiscard]] int error() const { return error_; }

 private:
  template <class Condition>
  static bool eventually(const Condition& condition) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds{10};
    while (!condition()) {
      if (std::chrono::steady_clock::now() > limit) {
        return false;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
    return true;
  }

  ssize_t call() {
    return repeat_until_done([this](WaitingCall& call) {
      const auto file = file_.lock();
      call.sleeps = file == nullptr;
      return file == nullptr ? -1 : file->attempt(call);
    });
  }

  std::weak_ptr<File> file_;
  std::atomic<int> thread_id_{0};
  std::atomic<bool> ended_{false};
  ssize_t result_ = 0;
  int error_ = 0;
  std::thread thread_;
};

class WaitingCalls : public ::testing::Test {
 protected:
  WaitingCalls() {
    struct sigaction action {};
    action.sa_handler = [](int) {};  // without SA_RESTART
    sigaction(SIGUSR1, &action, &before_);
  }
  ~WaitingCalls() override { sigaction(SIGUSR1, &before_, nullptr); }

 private:
  struct sigaction before_ {};
};

TEST_F(WaitingCalls, AreAnsweredWhenSomethingComes) {
  const auto file = std::make_shared<File>();
  Sleeper sleeper(file);
  file->put();
  EXPECT_TRUE(sleeper.ends());
  EXPECT_EQ(sleeper.result(), 1);
  EXPECT_EQ(file->pair.ends()->holders, 1U);
}

TEST_F(WaitingCalls, EndWithASignal) {
  const auto file = std::make_shared<File>();
  Sleeper sleeper(file);
  ASSERT_TRUE(sleeper.falls_asleep());
  sleeper.signal();
  EXPECT_TRUE(sleeper.ends());
  EXPECT_EQ(sleeper.result(), -1);
  EXPECT_EQ(sleeper.error(), EINTR);
  EXPECT_EQ(file->pair.ends()->holders, 1U);
}

// The first signal after the close counts: a sleeper that the close had woken would miss it on its
// way to another sleep.
TEST_F(WaitingCalls, SleepOnAfterTheirFileIsClosedUntilASignalComes) {
  for (int i = 0; i < 200; ++i) {
    auto file = std::make_shared<File>();
    const int duplicate = file->pair.duplicate();
    Sleeper sleeper(file);
    ASSERT_TRUE(sleeper.falls_asleep());
    file.reset();
    sleeper.signal();
    ASSERT_TRUE(sleeper.ends()) << "the signal was lost in round " << i;
    EXPECT_EQ(sleeper.error(), EINTR);
    EXPECT_LT(::fcntl(duplicate, F_GETFD), 0) << "the last sleeper leaves the ends open";
  }
}

// What was there for somebody else when the file was closed.
TEST_F(WaitingCalls, AreNotWokenByWhatIsLeftInAClosedFile) {
  auto file = std::make_shared<File>();
  Sleeper sleeper(file);
  ASSERT_TRUE(sleeper.falls_asleep());
  EXPECT_EQ(::send(file->pair.ours(), "xyz", 3, 0), 3);
  file.reset();
  EXPECT_TRUE(sleeper.falls_asleep());
  EXPECT_FALSE(sleeper.has_ended());
  sleeper.signal();
  EXPECT_TRUE(sleeper.ends());
  EXPECT_EQ(sleeper.error(), EINTR);
}

TEST_F(WaitingCalls, OnWhatIsNoFileOfOursAreRefusedAtOnce) {
  const ssize_t result = repeat_until_done([](WaitingCall&) -> ssize_t {
    errno = EBADF;
    return -1;
  });
  EXPECT_EQ(result, -1);
  EXPECT_EQ(errno, EBADF);
}

}  // namespace
}  // namespace weft::preload
