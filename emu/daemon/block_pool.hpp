// Owns memory for blocks of one size, which goes back to the system when it is not needed any more.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace weft::daemon {

// Blocks lie in slabs, and the lowest slab with room is used first: so after a flood the later
// slabs become empty and are given back, even if a few blocks stay for long. Each slab has a bitmap
// of its free blocks, and the pool one of the slabs with room. A block keeps its number and address
// until it is released. One thread. What each frame passes is inline.
class BlockPool {
 public:
  static constexpr std::uint32_t kNone = 0xFFFFFFFF;
  static constexpr std::uint32_t kSlabBlocks = 512;

  explicit BlockPool(std::size_t block_bytes)
      : block_bytes_((block_bytes + 15) & ~std::size_t{15}) {}
  BlockPool(BlockPool&& other) noexcept = default;
  BlockPool& operator=(BlockPool&&) = delete;
  ~BlockPool();

  // kNone: the system has no memory. The bytes are whatever they were before.
  [[nodiscard]] std::uint32_t allocate() {
    std::uint32_t index = find_room();
    if (index == kNone && (index = add_slab()) == kNone) [[unlikely]] {
      return kNone;
    }
    Slab& slab = slabs_[index];
    std::uint32_t word = 0;
    while (slab.free[word] == 0) {
      ++word;
    }
    const auto bit = static_cast<std::uint32_t>(std::countr_zero(slab.free[word]));
    slab.free[word] &= slab.free[word] - 1;
    empty_ -= slab.used == 0 ? 1U : 0U;
    if (++slab.used == kSlabBlocks) {
      mark_room(index, false);
    }
    ++used_;
    return index * kSlabBlocks + word * 64 + bit;
  }
  void release(std::uint32_t block) {
    const std::uint32_t index = block / kSlabBlocks;
    const std::uint32_t at = block % kSlabBlocks;
    Slab& slab = slabs_[index];
    slab.free[at / 64] |= std::uint64_t{1} << (at % 64);
    mark_room(index, true);
    --used_;
    if (--slab.used == 0 && ++empty_ > kSpareSlabs) [[unlikely]] {
      drop_slab(index);
    }
  }
  [[nodiscard]] std::byte* at(std::uint32_t block) const {
    return slabs_[block / kSlabBlocks].bytes + block % kSlabBlocks * block_bytes_;
  }

  [[nodiscard]] std::size_t block_bytes() const { return block_bytes_; }
  [[nodiscard]] std::size_t used() const { return used_; }
  // Bytes of address space. Only pages that were ever used take memory.
  [[nodiscard]] std::size_t memory() const { return present_ * slab_bytes(); }

 private:
  static constexpr std::size_t kWords = kSlabBlocks / 64;
  // Empty slabs that are kept: a pool whose use varies around the border of a slab should not call
  // mmap() and munmap() each time.
  static constexpr std::size_t kSpareSlabs = 1;
  struct Slab {
    std::byte* bytes = nullptr;
    std::uint32_t used = 0;
    std::array<std::uint64_t, kWords> free{};
  };

  [[nodiscard]] std::size_t slab_bytes() const { return block_bytes_ * kSlabBlocks; }
  [[nodiscard]] std::uint32_t add_slab();
  void drop_slab(std::uint32_t index);
  // The lowest slab with a free block, or kNone.
  [[nodiscard]] std::uint32_t find_room() const {
    for (std::size_t word = 0; word < room_.size(); ++word) {
      if (room_[word] != 0) [[likely]] {
        return static_cast<std::uint32_t>(word * 64 +
                                          static_cast<std::size_t>(std::countr_zero(room_[word])));
      }
    }
    return kNone;
  }
  void mark_room(std::uint32_t slab, bool room) {
    const std::uint64_t bit = std::uint64_t{1} << (slab % 64);
    room_[slab / 64] = room ? room_[slab / 64] | bit : room_[slab / 64] & ~bit;
  }

  std::size_t block_bytes_;
  std::vector<Slab> slabs_;
  std::vector<std::uint64_t> room_;    // by slab: it is there and has a free block
  std::vector<std::uint32_t> absent_;  // slabs that were given back
  std::size_t present_ = 0;
  std::size_t empty_ = 0;  // of those
  std::size_t used_ = 0;
};

}  // namespace weft::daemon
