// Owns an indexed min-heap of deadlines: the earliest in O(1), setting or clearing one in O(log n).
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "srd/base/time.hpp"

namespace weft {

// Each small index (a peer, a link, ...) has at most one deadline. Four children per node: half
// the depth of a binary heap, and the children of a node share a cache line.
class DeadlineHeap {
 public:
  [[nodiscard]] TimePoint earliest() const { return heap_.empty() ? kNever : heap_.front().when; }
  // The index with the earliest deadline; only when there is one.
  [[nodiscard]] std::uint32_t earliest_index() const { return heap_.front().index; }
  [[nodiscard]] bool empty() const { return heap_.empty(); }
  [[nodiscard]] TimePoint deadline_of(std::uint32_t index) const {
    return contains(index) ? heap_[position_[index]].when : kNever;
  }

  // A hint: earliest() will be called soon.
  void prefetch() const { __builtin_prefetch(heap_.data(), 1); }

  // Sets, moves, or (with kNever) clears the deadline of `index`.
  [[gnu::hot]] void set(std::uint32_t index, TimePoint when) {
    if (when == kNever) {
      clear(index);
      return;
    }
    if (index >= position_.size()) {
      position_.resize(index + 1, kAbsent);
    }
    if (position_[index] == kAbsent) {
      position_[index] = static_cast<std::uint32_t>(heap_.size());
      heap_.push_back({when, index});
      sift_up(position_[index]);
      return;
    }
    const std::uint32_t at = position_[index];
    const bool earlier = when < heap_[at].when;
    heap_[at].when = when;
    if (earlier) {
      sift_up(at);
    } else {
      sift_down(at);
    }
  }

  void clear(std::uint32_t index) {
    if (!contains(index)) {
      return;
    }
    const std::uint32_t at = position_[index];
    position_[index] = kAbsent;
    const Entry last = heap_.back();
    heap_.pop_back();
    if (last.index == index) {
      return;
    }
    place(at, last);
    sift_up(at);
    sift_down(position_[last.index]);
  }

 private:
  struct Entry {
    TimePoint when;
    std::uint32_t index;
  };
  static constexpr std::uint32_t kAbsent = 0xFFFFFFFF;
  static constexpr std::uint32_t kArity = 4;

  [[nodiscard]] bool contains(std::uint32_t index) const {
    return index < position_.size() && position_[index] != kAbsent;
  }
  void place(std::uint32_t at, const Entry& entry) {
    heap_[at] = entry;
    position_[entry.index] = at;
  }
  // Equal deadlines are ordered by index, so that a run does not depend on the history of the heap.
  [[nodiscard]] static bool less(const Entry& a, const Entry& b) {
    return a.when != b.when ? a.when < b.when : a.index < b.index;
  }
  void sift_up(std::uint32_t at) {
    const Entry entry = heap_[at];
    while (at > 0) {
      const std::uint32_t parent = (at - 1) / kArity;
      if (!less(entry, heap_[parent])) {
        break;
      }
      place(at, heap_[parent]);
      at = parent;
    }
    place(at, entry);
  }
  void sift_down(std::uint32_t at) {
    const Entry entry = heap_[at];
    const auto size = static_cast<std::uint32_t>(heap_.size());
    while (true) {
      const std::uint32_t first = at * kArity + 1;
      if (first >= size) {
        break;
      }
      std::uint32_t best = first;
      for (std::uint32_t child = first + 1; child < std::min(first + kArity, size); ++child) {
        if (less(heap_[child], heap_[best])) {
          best = child;
        }
      }
      if (!less(heap_[best], entry)) {
        break;
      }
      place(at, heap_[best]);
      at = best;
    }
    place(at, entry);
  }

  std::vector<Entry> heap_;
  std::vector<std::uint32_t> position_;
};

}  // namespace weft
