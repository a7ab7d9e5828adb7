// Owns a few spaces for paths, which serve nearly all calls, and getting more from the kernel where
// they are in use, or were lost: by a jump out of a signal handler, or in the child of a fork.
#include "integration/preload/path_space.hpp"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstdint>

namespace weft::preload {
namespace {

constexpr std::size_t kSpaces = 8;
constexpr std::uint32_t kAll = (1U << kSpaces) - 1;

constinit std::array<PathSpace, kSpaces> spaces{};
constinit std::atomic<std::uint32_t> in_use{0};  // a bit for each

}  // namespace

bool PathLease::borrow() {
  std::uint32_t now = in_use.load(std::memory_order_relaxed);
  while (now != kAll) {
    const int free = std::countr_one(now);
    if (in_use.compare_exchange_weak(now, now | 1U << free, std::memory_order_acquire,
                                     std::memory_order_relaxed)) {
      space_ = &spaces[static_cast<std::size_t>(free)];
      return true;
    }
  }
  const int error = errno;
  const long mapped = syscall(SYS_mmap, nullptr, sizeof(PathSpace), PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == -1) {
    errno = error;
    return false;
  }
  space_ = reinterpret_cast<PathSpace*>(mapped);
  return true;
}

void PathLease::give_back() {
  const auto at = static_cast<std::size_t>(space_ - spaces.data());
  if (space_ >= spaces.data() && at < kSpaces) {
    in_use.fetch_and(~(1U << at), std::memory_order_release);
  } else {
    const int error = errno;
    (void)syscall(SYS_munmap, space_, sizeof(PathSpace));
    errno = error;
  }
  space_ = nullptr;
}

}  // namespace weft::preload
