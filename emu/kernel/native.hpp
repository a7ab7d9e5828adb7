// Owns the descriptors that the emulation keeps for itself. They are used by raw system calls,
// since libc's functions lead to the wrappers of the preload library in this process, and moved to
// high numbers.
#pragma once

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>

#include "srd/base/fd_keeper.hpp"

namespace weft::kernel::native {

// The first number for our descriptors: above those that programs expect to get, and below the
// limit of the process.
[[nodiscard]] inline int first_high() {
  constexpr rlim_t kFirst = 512;
  constexpr rlim_t kRoom = 32;
  rlimit limit{};
  if (syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, nullptr, &limit) != 0) {
    return static_cast<int>(kFirst);
  }
  const rlim_t most = limit.rlim_cur;
  return static_cast<int>(std::min(kFirst, most > 2 * kRoom ? most - kRoom : most / 2));
}

[[nodiscard]] inline pid_t thread_id() { return static_cast<pid_t>(syscall(SYS_gettid)); }

inline int open(const char* path, int flags) {
  return static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, flags));
}
inline long read(int fd, void* to, std::size_t size) { return syscall(SYS_read, fd, to, size); }
inline int ioctl(int fd, unsigned long request, void* argument) {
  return static_cast<int>(syscall(SYS_ioctl, fd, request, argument));
}
inline void make_nonblocking(int fd) {
  const long flags = syscall(SYS_fcntl, fd, F_GETFL);
  syscall(SYS_fcntl, fd, F_SETFL, flags | O_NONBLOCK);
}
[[nodiscard]] inline bool is_open(int fd) { return syscall(SYS_fcntl, fd, F_GETFD) >= 0; }
inline int close(int fd) {
  forget_fd(fd);
  return static_cast<int>(syscall(SYS_close, fd));
}

// A duplicate at or above first_high(), close-on-exec; -1 if there is no number left.
[[nodiscard]] inline int duplicate_high(int fd) {
  return static_cast<int>(syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, first_high()));
}

// Moves a descriptor there, if there is room. FdKeeper also learns of it, which keeps programs that
// close all descriptors from closing this one.
[[nodiscard]] inline int move_high(int fd) {
  if (fd < 0) {
    return fd;
  }
  const int high = duplicate_high(fd);
  if (high >= 0) {
    syscall(SYS_close, fd);
  }
  return keep_fd(high < 0 ? fd : high);
}

// Libc's send() and recv() are points at which a thread can be cancelled, and these are called with
// a lock held. As those, without address.
inline ssize_t send(int fd, const void* bytes, std::size_t size, int flags) {
  return syscall(SYS_sendto, fd, bytes, size, flags, nullptr, 0);
}
inline ssize_t receive(int fd, void* bytes, std::size_t size, int flags) {
  return syscall(SYS_recvfrom, fd, bytes, size, flags, nullptr, nullptr);
}

}  // namespace weft::kernel::native
