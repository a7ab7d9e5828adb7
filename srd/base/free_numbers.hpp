// Owns numbers that are given out and come back: the lowest free one first, as Linux numbers
// descriptors and handles.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace weft {

// Logarithmic in the numbers that have come back, whatever is in use.
class FreeNumbers {
 public:
  [[nodiscard]] std::uint32_t take() {
    if (free_.empty()) {
      return next_++;
    }
    std::ranges::pop_heap(free_, std::greater{});
    const std::uint32_t number = free_.back();
    free_.pop_back();
    return number;
  }
  // One that take() has returned, once.
  void give_back(std::uint32_t number) {
    free_.push_back(number);
    std::ranges::push_heap(free_, std::greater{});
  }
  [[nodiscard]] std::size_t used() const { return next_ - free_.size(); }

 private:
  std::uint32_t next_ = 0;           // no number from here on was ever given out
  std::vector<std::uint32_t> free_;  // below that; a heap
};

}  // namespace weft
