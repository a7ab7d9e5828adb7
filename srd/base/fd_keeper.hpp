// Owns the wish of a library that lives in somebody else's program: its own descriptors out of the
// way.
#pragma once

namespace weft {

// Set once, before the first descriptor is made; null in programs of our own, where every number
// serves.
struct FdKeeper {
  int (*keep)(int fd) = nullptr;     // returns the number that it has from now on
  void (*forget)(int fd) = nullptr;  // before it is closed
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
