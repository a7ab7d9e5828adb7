// Owns the C library's settings for large heaps.
//
// glibc has no call for "one large heap in huge pages". So the heap is made to grow once by the
// whole reserve, and the kernel is asked for huge pages there.
#include "emu/cli/perf/huge_heap.hpp"

#include <malloc.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <limits>

namespace weft::cli {

void expect_large_heap(std::size_t bytes) {
  constexpr std::size_t kHugePage = std::size_t{2} << 20;
  constexpr std::size_t kProbe = std::size_t{1} << 20;
  const std::size_t most = std::numeric_limits<int>::max();  // of mallopt's values
  const auto reserve = static_cast<int>(std::min(bytes, most));
  // Large blocks come from the heap, too; the heap keeps what is freed; and its next growth is by
  // the whole reserve. Then that growth is forced, and the heap goes back to small steps.
  (void)mallopt(M_MMAP_THRESHOLD, reserve);
  (void)mallopt(M_TRIM_THRESHOLD, static_cast<int>(most));
  (void)mallopt(M_TOP_PAD, reserve);
  void* const probe = std::malloc(kProbe);  // makes the heap grow by the reserve
  (void)mallopt(M_TOP_PAD, static_cast<int>(kProbe));
  if (probe == nullptr) {
    return;
  }
  const auto first = (reinterpret_cast<std::uintptr_t>(probe) + kHugePage - 1) / kHugePage;
  const auto last =
      (reinterpret_cast<std::uintptr_t>(probe) + static_cast<std::size_t>(reserve)) / kHugePage;
  std::free(probe);
  if (last > first) {
    (void)madvise(reinterpret_cast<void*>(first * kHugePage), (last - first) * kHugePage,
                  MADV_HUGEPAGE);
  }
}

}  // namespace weft::cli
