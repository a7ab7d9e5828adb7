// Owns the sleeps of calls on device files: for something to come, and for other threads.
#pragma once

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>

#include "emu/kernel/stream_pair.hpp"
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

// Whether the program wants to wait where nothing is there.
[[nodiscard]] inline bool wants_to_wait(const kernel::StreamEnds& ends) {
  return (syscall(SYS_fcntl, ends.duplicate, F_GETFL) & O_NONBLOCK) == 0;
}

// A call that waits. As the kernel's, once it has begun it stays with its file: neither a close by
// another thread nor a file that gets the number ends it, and other numbers of the file serve it.
struct WaitingCall {
  kernel::StreamEnds* at = nullptr;  // held since the call has slept
  bool sleeps = false;               // nothing is there, and the program wants to wait for it
};

// The sleep is a point of cancellation, as in the kernel. Unwinding cannot pass frames of this
// library that have something to destroy, so these have nothing: whoever is cancelled holds the
// ends for ever. The byte stays.
template <class Try>
ssize_t repeat_until_done(const Try& attempt) {
  WaitingCall call;
  while (true) {
    call.sleeps = false;
    ssize_t result = attempt(call);
    if (call.sleeps) {
      char byte = 0;
      if (::recv(call.at->duplicate, &byte, sizeof byte, MSG_PEEK) >= 0) {
        continue;
      }
      result = -1;
    }
    if (call.at != nullptr) {
      const int error = errno;
      kernel::let_go(*call.at);
      errno = error;
    }
    return result;
  }
}

}  // namespace weft::preload
