// Owns a FIFO in one power-of-two array: grows by doubling up to a limit, then refuses.
#pragma once

#include <cstddef>

#include "srd/base/masked_array.hpp"

namespace weft {

template <class T>
class RingQueue {
 public:
  explicit RingQueue(std::size_t limit = ~std::size_t{0}) : limit_(limit) {}

  [[nodiscard]] std::size_t size() const { return tail_ - head_; }
  [[nodiscard]] bool empty() const { return head_ == tail_; }
  [[nodiscard]] bool full() const { return size() >= limit_; }

  // False when the limit is reached.
  [[nodiscard]] bool push(const T& value) {
    if (full()) {
      return false;
    }
    push_slot() = value;
    return true;
  }
  // A new last element with its former contents, to be filled in place. Not when full().
  [[nodiscard]] T& push_slot() {
    if (size() == slots_.size()) {
      grow();
    }
    return slots_[tail_++];
  }
  [[nodiscard]] T& front() { return slots_[head_]; }
  // The element `ahead` places behind the front; ahead < size().
  [[nodiscard]] const T& at(std::size_t ahead) const { return slots_[head_ + ahead]; }
  [[nodiscard]] const T& front() const { return slots_[head_]; }
  void pop() { ++head_; }
  // A hint: front() will be called soon.
  void prefetch_front() const {
    if (!empty()) {
      __builtin_prefetch(&front(), 1);
    }
  }

 private:
  // Out of the way of those who push: inlined it is longer than all that they do.
  [[gnu::cold, gnu::noinline]] void grow() {
    MaskedArray<T> larger(slots_.next_size(16));
    const std::size_t count = size();
    for (std::size_t i = 0; i < count; ++i) {
      larger[i] = slots_[head_ + i];
    }
    slots_.swap(larger);
    head_ = 0;
    tail_ = count;
  }

  std::size_t limit_;
  std::size_t head_ = 0;
  std::size_t tail_ = 0;
  MaskedArray<T> slots_;
};

}  // namespace weft
