// Tests the end of a process whose parent ends.
//
// Three processes: this one, the parent that ends (`outer`), and its child that must end with it.
// Two pipes keep them in step without a clock: the write end of `gone` is held by the parent alone,
// so that its end is an end of file; `said` is written by the child and read here. Here an end of
// file on `said` means that the child is gone, too: if it outlived its parent, the test would wait
// until the child's alarm.
#include "srd/base/death_signal.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

namespace weft {
namespace {

enum class ParentEnds { before, after };

// Starts a process that starts another one, and ends. What the inner one writes once it has called
// die_with(), up to the end of both.
std::size_t bytes_of_an_orphan(ParentEnds when) {
  int gone[2];  // readable once the outer one is gone
  int said[2];
  EXPECT_EQ(::pipe2(gone, O_CLOEXEC), 0);
  EXPECT_EQ(::pipe2(said, O_CLOEXEC), 0);
  const pid_t outer = ::fork();
  if (outer == 0) {
    const pid_t self = ::getpid();
    if (::fork() == 0) {
      char byte = 0;
      ::alarm(10);  // should nothing else end it
      ::close(gone[1]);
      ::close(said[0]);
      if (when == ParentEnds::before) {
        [[maybe_unused]] const auto end = ::read(gone[0], &byte, 1);
        while (::getppid() == self) {  // files are closed before children are given away
          ::usleep(100);
        }
      }
      die_with(self, SIGKILL);
      [[maybe_unused]] auto moved = ::write(said[1], &byte, 1);
      moved = ::read(gone[0], &byte, 1);  // until the outer one is gone
      ::pause();
    }
    char byte = 0;
    ::close(said[1]);
    if (when == ParentEnds::after) {
      [[maybe_unused]] const auto heard = ::read(said[0], &byte, 1);
    }
    ::_exit(0);
  }
  ::close(gone[0]);
  ::close(gone[1]);
  ::close(said[1]);
  ::waitpid(outer, nullptr, 0);
  char byte = 0;
  std::size_t count = 0;
  while (::read(said[0], &byte, 1) == 1) {
    ++count;
  }
  ::close(said[0]);
  return count;
}

TEST(DeathSignal, EndsAProcessWhoseParentEnds) {
  EXPECT_EQ(bytes_of_an_orphan(ParentEnds::after), 0U);  // the outer one has read its byte
}

TEST(DeathSignal, EndsAProcessWhoseParentHasEndedBefore) {
  EXPECT_EQ(bytes_of_an_orphan(ParentEnds::before), 0U);
}

}  // namespace
}  // namespace weft
