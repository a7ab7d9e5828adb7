// Owns adding and removing slabs.
#include "emu/daemon/block_pool.hpp"

#include <sys/mman.h>

#include <bit>

namespace weft::daemon {
namespace {

// Empty slabs that are kept: a pool whose use varies around the border of a slab should not call
// mmap() and munmap() each time.
constexpr std::size_t kSpareSlabs = 1;

}  // namespace

BlockPool::~BlockPool() {
  for (const Slab& slab : slabs_) {
    if (slab.bytes != nullptr) {
      ::munmap(slab.bytes, slab_bytes());
    }
  }
}

std::uint32_t BlockPool::find_room() const {
  for (std::size_t word = 0; word < room_.size(); ++word) {
    if (room_[word] != 0) {
      return static_cast<std::uint32_t>(word * 64 +
                                        static_cast<std::size_t>(std::countr_zero(room_[word])));
    }
  }
  return kNone;
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

std::uint32_t BlockPool::allocate() {
  std::uint32_t index = find_room();
  if (index == kNone && (index = add_slab()) == kNone) {
    return kNone;
  }
  Slab& slab = slabs_[index];
  std::size_t word = 0;
  while (slab.free[word] == 0) {
    ++word;
  }
  const auto bit = static_cast<std::size_t>(std::countr_zero(slab.free[word]));
  slab.free[word] &= slab.free[word] - 1;
  empty_ -= slab.used == 0 ? 1U : 0U;
  if (++slab.used == kSlabBlocks) {
    mark_room(index, false);
  }
  ++used_;
  return index * kSlabBlocks + static_cast<std::uint32_t>(word * 64 + bit);
}

void BlockPool::release(std::uint32_t block) {
  const std::uint32_t index = block / kSlabBlocks;
  const std::uint32_t at = block % kSlabBlocks;
  Slab& slab = slabs_[index];
  slab.free[at / 64] |= std::uint64_t{1} << (at % 64);
  mark_room(index, true);
  --used_;
  if (--slab.used == 0 && ++empty_ > kSpareSlabs) {
    drop_slab(index);
  }
}

}  // namespace weft::daemon
