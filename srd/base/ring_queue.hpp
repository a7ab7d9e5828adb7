// Owns a FIFO in one power-of-two array: grows by doubling up to a limit, then refuses.
#pragma once

#include <cstddef>
#include <vector>

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
    return slots_[tail_++ & (slots_.size() - 1)];
  }
  [[nodiscard]] T& front() { return slots_[head_ & (slots_.size() - 1)]; }
  // The element `ahead` places behind the front; ahead < size().
  [[nodiscard]] const T& at(std::size_t ahead) const {
    return slots_[(head_ + ahead) & (slots_.size() - 1)];
  }
  [[nodiscard]] const T& front() const { return slots_[head_ & (slots_.size() - 1)]; }
  void pop() { ++head_; }
  // A hint: front() will be called soon.
  void prefetch_front() const {
    if (!empty()) {
      __builtin_prefetch(&front(), 1);
    }
  }

 private:
  void grow() {
    std::vector<T> larger(slots_.empty() ? 16 : slots_.size() * 2);
    const std::size_t count = size();
    for (std::size_t i = 0; i < count; ++i) {
      larger[i] = slots_[(head_ + i) & (slots_.size() - 1)];
    }
    slots_.swap(larger);
    head_ = 0;
    tail_ = count;
  }

  std::size_t limit_;
  std::size_t head_ = 0;
  std::size_t tail_ = 0;
  std::vector<T> slots_;
};

}  // namespace weft
