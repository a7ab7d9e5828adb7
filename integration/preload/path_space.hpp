// Owns the memory in which paths are put together.
#pragma once

#include <climits>
#include <cstddef>

namespace weft::preload {

// Long enough for any path below /sys that programs put together; longer ones are left alone.
inline constexpr std::size_t kMaxWalk = 1024;

struct PathSpace {
  char result[PATH_MAX];  // where Redirected leads
  char whole[PATH_MAX];   // a path as the kernel or the program knows it
  char part[PATH_MAX];    // the same, shortened
  // Of a walk (path_walk.cpp).
  char walked[kMaxWalk];
  char rest[kMaxWalk];
  char target[kMaxWalk];
  char below[2 * kMaxWalk];
};

// A PathSpace for one call. Not on the stack, because callers have small ones: handlers on
// alternate stacks, threads of PTHREAD_STACK_MIN. Nor in thread-local memory, which is taken from
// the thread's stack, and which a signal handler would find in use. Nor by malloc(), which may be
// the caller.
class PathLease {
 public:
  PathLease() = default;
  ~PathLease() {
    if (space_ != nullptr) {
      give_back();
    }
  }
  PathLease(const PathLease&) = delete;
  PathLease& operator=(const PathLease&) = delete;

  // Once more is no mistake. False: there is no memory. Does not change errno.
  [[nodiscard]] bool take() { return space_ != nullptr || borrow(); }
  [[nodiscard]] bool has_taken() const { return space_ != nullptr; }
  [[nodiscard]] PathSpace& operator*() const { return *space_; }
  [[nodiscard]] PathSpace* operator->() const { return space_; }

 private:
  [[nodiscard]] bool borrow();
  void give_back();

  PathSpace* space_ = nullptr;
};

}  // namespace weft::preload
