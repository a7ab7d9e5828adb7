// Owns adding and removing slabs.
#include "emu/daemon/block_pool.hpp"

#include <sys/mman.h>

namespace weft::daemon {

BlockPool::~BlockPool() {
  for (const Slab& slab : slabs_) {
    if (slab.bytes != nullptr) {
      ::munmap(slab.bytes, slab_bytes());
    }
  }
}

std::uint32_t BlockPool::add_slab() {
  void* const memory = ::mmap(nullptr, slab_bytes(), PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    return kNone;
  }
  std::uint32_t index = static_cast<std::uint32_t>(slabs_.size());
  if (absent_.empty()) {
    slabs_.emplace_back();
    room_.resize((slabs_.size() + 63) / 64, 0);
  } else {
    index = absent_.back();
    absent_.pop_back();
  }
  slabs_[index].bytes = static_cast<std::byte*>(memory);
  slabs_[index].free.fill(~std::uint64_t{0});
  mark_room(index, true);
  ++present_;
  ++empty_;
  return index;
}

void BlockPool::drop_slab(std::uint32_t index) {
  ::munmap(slabs_[index].bytes, slab_bytes());
  slabs_[index].bytes = nullptr;
  mark_room(index, false);
  absent_.push_back(index);
  --present_;
  --empty_;
}

}  // namespace weft::daemon
