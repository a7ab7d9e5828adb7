// Owns the sleeps of calls on device files: for something to come, and for other threads.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/resource.h>
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
  bool is_closed = false;            // and nothing will be: the file has no number any more
};

// What a cancelled thread holds is let go of at its end. Returns what was noted before, which is
// what a call holds that a signal handler has interrupted.
kernel::StreamEnds* note_held(kernel::StreamEnds* ends);

// How often this thread has given its core away by itself.
[[nodiscard]] inline long times_slept() {
  rusage usage{};
  syscall(SYS_getrusage, RUSAGE_THREAD, &usage);
  return usage.ru_nvcsw;
}

// Sleeps until something can be read. False: the call ends, as errno says.
//
// After a handler with SA_RESTART the kernel begins a call again, and finds the number closed
// (EBADF). Our sleep begins again by a number of ours; it fails then (EAGAIN), because StreamPair
// leaves the ends without waiting. If it fails without having slept, the file was closed before.
inline bool sleep_at(const WaitingCall& call, bool& is_begun_again) {
  if (call.is_closed) {
    if (is_begun_again) {
      errno = EBADF;
    } else {
      (void)::poll(nullptr, 0, -1);  // until any signal
    }
    return false;
  }
  const long slept = times_slept();
  char byte = 0;
  const ssize_t received = ::recv(call.at->duplicate, &byte, sizeof byte, MSG_PEEK);
  is_begun_again = received < 0 && errno == EAGAIN && times_slept() != slept;
  if (received == 0) {
    errno = EIO;  // by shutdown(), which the kernel would have refused
  }
  return received > 0 || (received < 0 && errno == EAGAIN);
}

// The beginning and the sleep are points of cancellation, as in the kernel. Unwinding cannot pass
// frames of this library that have something to destroy, so these have nothing. The byte stays.
template <class Try>
ssize_t repeat_until_done(const Try& attempt) {
  pthread_testcancel();
  WaitingCall call;
  bool is_begun_again = false;
  while (true) {
    call.sleeps = false;
    ssize_t result = attempt(call);
    if (call.sleeps) {
      kernel::StreamEnds* const before = note_held(call.at);
      const bool goes_on = sleep_at(call, is_begun_again);
      const int error = errno;
      (void)note_held(before);
      errno = error;
      if (goes_on) {
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
