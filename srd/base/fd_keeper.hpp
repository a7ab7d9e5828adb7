// Owns the hook by which a library inside another program keeps its file descriptors out of that
// program's way.
#pragma once

namespace weft {

// Set once, before the first descriptor is made. Null in our own programs, where any number will
// do.
struct FdKeeper {
  int (*keep)(int fd) = nullptr;     // moves it; returns its new number
  void (*forget)(int fd) = nullptr;  // called before it is closed
};
inline FdKeeper fd_keeper;

[[nodiscard]] inline int keep_fd(int fd) {
  return fd < 0 || fd_keeper.keep == nullptr ? fd : fd_keeper.keep(fd);
}
inline void forget_fd(int fd) {
  if (fd_keeper.forget != nullptr) {
    fd_keeper.forget(fd);
  }
}

}  // namespace weft
