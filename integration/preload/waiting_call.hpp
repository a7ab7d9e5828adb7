// Owns the sleeps of calls on device files: for something to come, and for other threads.
#pragma once

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>

#include "srd/run/try_lock.hpp"

namespace weft::preload {

// For what another thread may wait for weftd with, for 20 s. False: this thread has it.
[[nodiscard]] inline bool take_for_long(srd::TryLock& lock) {
  if (lock.held_here()) {
    errno = EDEADLK;
    return false;
  }
  while (!lock.try_lock()) {
    constexpr timespec kNap{0, 1'000'000};
    nanosleep(&kNap, nullptr);
  }
  return true;
}

// Whether the program wants to wait where nothing is there. Another thread may have closed the file
// meanwhile: this one was asleep then, or is told.
[[nodiscard]] inline bool wants_to_wait(int fd) {
  const long flags = syscall(SYS_fcntl, fd, F_GETFL);
  return flags < 0 || (flags & O_NONBLOCK) == 0;
}

// The sleep is a point of cancellation, as in the kernel. Unwinding cannot pass frames of this
// library that have something to destroy, so these have nothing. The byte stays.
template <class Try>
ssize_t repeat_until_done(int fd, const Try& attempt) {
  while (true) {
    bool sleeps = false;
    const ssize_t result = attempt(sleeps);
    if (!sleeps) {
      return result;
    }
    char byte = 0;
    const ssize_t found = ::recv(fd, &byte, sizeof byte, MSG_PEEK);
    if (found == 0) {  // another thread has closed the file: the kernel's sleepers sleep on
      return ::pause();
    }
    if (found < 0) {
      return -1;
    }
  }
}

}  // namespace weft::preload
