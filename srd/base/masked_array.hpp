// Owns an array whose length is a power of two, indexed by numbers that run on.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "srd/base/check.hpp"

namespace weft {

// Element n is that of n modulo the length. A vector does not know its length, but two pointers
// that have to be subtracted and divided for each access; this knows the mask.
template <class T>
class MaskedArray {
 public:
  MaskedArray() = default;
  explicit MaskedArray(std::size_t size) : elements_(new T[size]{}), mask_(size - 1) {
    WEFT_CHECK(size != 0 && (size & mask_) == 0);
  }
  MaskedArray(MaskedArray&& other) noexcept { swap(other); }
  MaskedArray& operator=(MaskedArray&& other) noexcept {
    MaskedArray taken(std::move(other));
    swap(taken);
    return *this;
  }
  MaskedArray(const MaskedArray&) = delete;
  MaskedArray& operator=(const MaskedArray&) = delete;
  ~MaskedArray() = default;

  [[nodiscard]] std::size_t size() const { return mask_ + 1; }
  [[nodiscard]] bool empty() const { return size() == 0; }
  [[nodiscard]] std::size_t mask() const { return mask_; }

  [[nodiscard]] T& operator[](std::size_t index) { return elements_[index & mask_]; }
  [[nodiscard]] const T& operator[](std::size_t index) const { return elements_[index & mask_]; }

  // The length to grow to: twice as much, and at first `first`.
  [[nodiscard]] std::size_t next_size(std::size_t first) const {
    return empty() ? first : 2 * size();
  }
  void swap(MaskedArray& other) noexcept {
    elements_.swap(other.elements_);
    std::swap(mask_, other.mask_);
  }

 private:
  std::unique_ptr<T[]> elements_;
  std::size_t mask_ = ~std::size_t{0};  // of no elements
};

}  // namespace weft
