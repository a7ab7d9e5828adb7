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

template <class Condition>
bool eventually(const Condition& condition) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds{10};
  while (!condition()) {
    if (std::chrono::steady_clock::now() > limit) {
      return false;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
  return true;
}

// Whether the thread comes to sleep in one of the calls that are made for it.
bool sleeps(const std::atomic<int>& thread) {
  return eventually([&] {
    std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/syscall");
    long number = -1;
    return file >> number && (number == SYS_recvfrom || number == SYS_poll);
  });
}

void on_signal(int flags) {
  struct sigaction action {};
  action.sa_handler = [](int) {};
  action.sa_flags = flags;
  sigaction(SIGUSR1, &action, nullptr);
}

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
    on_signal(0);
    while (!ended_) {
      signal();
      std::this_thread::yield();
    }
    thread_.join();
  }
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;

  void signal() { pthread_kill(thread_.native_handle(), SIGUSR1); }
  [[nodiscard]] bool falls_asleep() const { return sleeps(thread_id_); }
  [[nodiscard]] bool has_ended() const { return ended_; }
  [[nodiscard]] bool ends() {
    return eventually([&] { return ended_.load(); });
  }
  [[nodiscard]] ssize_t result() const { return result_; }
  [[nodiscard]] int error() const { return error_; }

 private:
  ssize_t call() {
    return repeat_until_done([this](WaitingCall& call) {
      const auto file = file_.lock();
      call.is_closed = file == nullptr;
      call.sleeps = call.is_closed;
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
    sigaction(SIGUSR1, nullptr, &before_);
    on_signal(0);
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

// The kernel begins such a call again, and does not find the number.
TEST_F(WaitingCalls, EndWhenTheyBeginAgainAfterTheirFileIsClosed) {
  for (int i = 0; i < 50; ++i) {
    on_signal(SA_RESTART);
    auto file = std::make_shared<File>();
    Sleeper sleeper(file);
    ASSERT_TRUE(sleeper.falls_asleep());
    sleeper.signal();
    EXPECT_TRUE(sleeper.falls_asleep());  // the file is open
    file.reset();
    sleeper.signal();
    ASSERT_TRUE(sleeper.ends()) << "round " << i;
    EXPECT_EQ(sleeper.error(), EBADF);
  }
}

// Between the look for something and the sleep.
TEST_F(WaitingCalls, SleepAlsoIfTheirFileIsClosedJustBefore) {
  auto file = std::make_shared<File>();
  int looks = 0;
  std::atomic<int> id = 0;
  std::atomic<int> error = 0;
  std::thread thread([&] {
    id = static_cast<int>(syscall(SYS_gettid));
    const ssize_t result = repeat_until_done([&](WaitingCall& call) -> ssize_t {
      ++looks;
      if (file != nullptr) {
        (void)file->attempt(call);
        file.reset();
      } else {
        call.is_closed = call.sleeps = true;
      }
      return -1;
    });
    EXPECT_EQ(result, -1);
    error = errno;
  });
  EXPECT_TRUE(sleeps(id));
  while (error == 0) {
    pthread_kill(thread.native_handle(), SIGUSR1);
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
  thread.join();
  EXPECT_EQ(error, EINTR);
  EXPECT_EQ(looks, 2);
}

TEST_F(WaitingCalls, LetGoOfTheirFileWhenTheirThreadIsCancelled) {
  const auto file = std::make_shared<File>();
  for (int i = 0; i < 20; ++i) {
    std::atomic<int> id = 0;
    std::thread thread([&] {
      id = static_cast<int>(syscall(SYS_gettid));
      (void)repeat_until_done([&](WaitingCall& call) { return file->attempt(call); });
    });
    EXPECT_TRUE(sleeps(id));
    pthread_cancel(thread.native_handle());
    thread.join();
    EXPECT_EQ(file->pair.ends()->holders, 1U);
  }
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
