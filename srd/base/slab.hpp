// Owns objects addressed by small indices: grows in chunks up to a limit, never moves an object,
// recycles the most recently freed one first because it is still in the cache.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "srd/base/step_count.hpp"

namespace weft {

// Objects are default-constructed once, with their chunk, and reused as they were left: the owner
// resets what matters when it allocates. That keeps buffers inside them warm and the hot path free
// of allocation.
template <class T, std::uint32_t kChunk = 64>
class Slab {
 public:
  static constexpr std::uint32_t kNone = 0xFFFFFFFF;

  explicit Slab(std::uint32_t limit) : limit_(limit) {}

  // An index, or kNone when the limit is reached.
  [[nodiscard]] std::uint32_t allocate() {
    if (free_.empty() && !grow()) [[unlikely]] {
      return kNone;
    }
    const std::uint32_t index = free_.back();
    free_.pop_back();
    return index;
  }
  void release(std::uint32_t index) { free_.push_back(index); }

  [[nodiscard]] T& operator[](std::uint32_t index) {
    count_step();
    return chunks_[index / kChunk][index % kChunk];
  }
  [[nodiscard]] const T& operator[](std::uint32_t index) const {
    count_step();
    return chunks_[index / kChunk][index % kChunk];
  }
  [[nodiscard]] std::uint32_t capacity() const { return capacity_; }
  [[nodiscard]] std::uint32_t used() const {
    return capacity_ - static_cast<std::uint32_t>(free_.size());
  }

 private:
  [[gnu::cold, gnu::noinline]] bool grow() {
    const std::uint32_t count = std::min(kChunk, limit_ - capacity_);
    if (count == 0) {
      return false;
    }
    chunks_.push_back(std::make_unique<T[]>(count));
    free_.reserve(capacity_ + count);
    for (std::uint32_t i = count; i-- > 0;) {
      free_.push_back(capacity_ + i);
    }
    capacity_ += count;
    return true;
  }

  std::uint32_t limit_;
  std::uint32_t capacity_ = 0;
  std::vector<std::unique_ptr<T[]>> chunks_;
  std::vector<std::uint32_t> free_;
};

}  // namespace weft
