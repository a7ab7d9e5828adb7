// Owns the process that stops another one and wakes it.
//
// A process of its own does that: it can wait until the first one has really stopped, and only then
// count the time.
#include "integration/collectives/stand_still.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "srd/base/death_signal.hpp"

namespace weft::collectives {
namespace {

// Whether the process has really stopped. SIGCONT takes back a SIGSTOP that has had no effect yet,
// so it must not be sent before. True also if that cannot be read, so that nobody waits for ever.
// Only calls that are safe after fork() in a process with threads.
bool is_stopped(const char* status_file) {
  std::array<char, 512> text{};
  const int fd = ::open(status_file, O_RDONLY | O_CLOEXEC);
  const ssize_t length = ::read(fd, text.data(), text.size() - 1);
  ::close(fd);
  // "PID (NAME) STATE ..."; a name may have brackets, too.
  const char* const name_end = std::strrchr(text.data(), ')');
  return length <= 0 || name_end == nullptr || name_end[1] == '\0' || name_end[2] == 'T';
}

void sleep_for(double seconds) {
  timespec left{static_cast<time_t>(seconds),
                static_cast<long>((seconds - std::floor(seconds)) * 1e9)};
  while (::nanosleep(&left, &left) != 0 && errno == EINTR) {
  }
}

}  // namespace

void stand_still(double seconds) {
  const pid_t self = ::getpid();
  std::array<char, 64> status_file{};
  (void)std::snprintf(status_file.data(), status_file.size(), "/proc/%d/stat", self);
  const pid_t helper = ::fork();
  if (helper == 0) {
    die_with(self, SIGKILL);  // no other process may get that number, and be woken
    ::kill(self, SIGSTOP);
    while (!is_stopped(status_file.data())) {
      sleep_for(1e-4);
    }
    sleep_for(seconds);
    ::kill(self, SIGCONT);
    ::_exit(0);
  }
  while (helper > 0 && ::waitpid(helper, nullptr, 0) != helper && errno == EINTR) {
  }
}

}  // namespace weft::collectives
