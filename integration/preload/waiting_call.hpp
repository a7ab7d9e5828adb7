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

// What an attempt at a call has found.
struct Attempt {
  const void* file = nullptr;  // whose call it was, to know it again
  bool sleeps = false;         // nothing is there, and the program wants to wait for it
};

// As the kernel's, a call that has begun stays with its file: if another thread closes that one, or
// the number becomes another file's, the call is neither refused nor answered by the other.
//
// The sleep is a point of cancellation, as in the kernel. Unwinding cannot pass frames of this
// library that have something to destroy, so these have nothing. The byte stays.
template <class Try>
ssize_t repeat_until_done(int fd, const Try& attempt) {
  const void* begun = nullptr;
  while (true) {
    Attempt found;
    const ssize_t result = attempt(begun, found);
    if (begun != nullptr && found.file != begun) {
      return ::pause();
    }
    if (!found.sleeps) {
      return result;
    }
    begun = found.file;
    char byte = 0;
    const ssize_t received = ::recv(fd, &byte, sizeof byte, MSG_PEEK);
    if (received == 0 || (received < 0 && (errno == EBADF || errno == ENOTSOCK))) {
      return ::pause();
    }
    if (received < 0) {
      return -1;
    }
  }
}

}  // namespace weft::preload
