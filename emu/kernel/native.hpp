// Owns the descriptors that the emulation keeps for itself: reached by raw system calls, because
// the libc calls of this process are the very ones that the preload library answers, and parked out
// of the way.
#pragma once

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>

namespace weft::emu::kernel::native {

inline constexpr int kFirstHigh = 512;

inline int open(const char* path, int flags) {
  return static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, flags));
}
inline long read(int fd, void* to, std::size_t size) { return syscall(SYS_read, fd, to, size); }
inline int ioctl(int fd, unsigned long request, void* argument) {
  return static_cast<int>(syscall(SYS_ioctl, fd, request, argument));
}
inline int close(int fd) { return static_cast<int>(syscall(SYS_close, fd)); }

// Moves a descriptor to a high number, close-on-exec, so that programs which count on getting low
// numbers (or close them all) are not disturbed. Stays where it is if there is no room above.
[[nodiscard]] inline int move_high(int fd) {
  if (fd < 0) {
    return fd;
  }
  const auto high = static_cast<int>(syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, kFirstHigh));
  if (high < 0) {
    return fd;
  }
  close(fd);
  return high;
}

}  // namespace weft::emu::kernel::native
