// Owns what becomes of calls on device files that wait while another thread closes their file. The
// attempts play that thread: they close the file at the worst moment.
#include "integration/preload/waiting_call.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace weft::preload {
namespace {

// Ends a call that sleeps for ever, as a signal of the program's does.
class Alarm {
 public:
  Alarm() {
    struct sigaction action {};
    action.sa_handler = [](int) {};  // without SA_RESTART
    sigaction(SIGALRM, &action, &before_);
    const itimerval soon{{0, 20'000}, {0, 20'000}};
    setitimer(ITIMER_REAL, &soon, nullptr);
  }
  ~Alarm() {
    const itimerval never{};
    setitimer(ITIMER_REAL, &never, nullptr);
    sigaction(SIGALRM, &before_, nullptr);
  }
  Alarm(const Alarm&) = delete;
  Alarm& operator=(const Alarm&) = delete;

 private:
  struct sigaction before_ {};
};

struct Pair {
  Pair() { EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0); }
  ~Pair() {
    close(ends[0]);
    close(ends[1]);
  }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;

  std::array<int, 2> ends{};
};

// Another thread closes the file after it was looked at. `then` is what takes its number.
template <class Then>
ssize_t closed_meanwhile(const Then& then) {
  const Pair file;
  const int fd = dup(file.ends[0]);
  int attempts = 0;
  const Alarm alarm;
  return repeat_until_done(fd, [&](const void* begun, Attempt& found) -> ssize_t {
    if (++attempts > 1) {
      found.file = begun == &file ? &attempts : nullptr;  // the number is another file's
      return 77;
    }
    found = {.file = &file, .sleeps = true};
    close(fd);
    then(fd);
    errno = EAGAIN;
    return -1;
  });
}

TEST(WaitingCall, SleepsOnAfterItsFileIsClosed) {
  EXPECT_EQ(closed_meanwhile([](int) {}), -1);
  EXPECT_EQ(errno, EINTR);
}

TEST(WaitingCall, IsNotRefusedForWhatTakesTheNumber) {
  EXPECT_EQ(
      closed_meanwhile([](int fd) { ASSERT_EQ(open("/dev/null", O_RDONLY | O_CLOEXEC), fd); }), -1);
  EXPECT_EQ(errno, EINTR);
}

TEST(WaitingCall, IsNotAnsweredByTheFileThatTakesTheNumber) {
  const Pair other;
  ASSERT_EQ(send(other.ends[1], "x", 1, 0), 1);
  EXPECT_EQ(closed_meanwhile([&](int fd) { ASSERT_EQ(dup(other.ends[0]), fd); }), -1);
  EXPECT_EQ(errno, EINTR);
}

TEST(WaitingCall, IsAnsweredWhenSomethingComes) {
  const Pair file;
  int attempts = 0;
  const ssize_t result =
      repeat_until_done(file.ends[0], [&](const void* begun, Attempt& found) -> ssize_t {
        EXPECT_EQ(begun, attempts == 0 ? nullptr : &file);
        found = {.file = &file, .sleeps = ++attempts < 3};
        EXPECT_EQ(send(file.ends[1], "x", 1, 0), 1);
        return attempts;
      });
  EXPECT_EQ(result, 3);
}

TEST(WaitingCall, OnWhatIsNoFileOfOursIsRefusedAtOnce) {
  const ssize_t result = repeat_until_done(-1, [](const void*, Attempt&) -> ssize_t {
    errno = EBADF;
    return -1;
  });
  EXPECT_EQ(result, -1);
  EXPECT_EQ(errno, EBADF);
}

}  // namespace
}  // namespace weft::preload
