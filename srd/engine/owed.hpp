// Owns what is owed to single peers and told in one of the next acknowledgements, once.
#pragma once

#include <cstdint>

#include "srd/base/slab.hpp"

namespace weft::srd {

// What is owed to one peer, the oldest first.
struct OwedList {
  static constexpr std::uint32_t kNone = 0xFFFFFFFF;

  [[nodiscard]] bool empty() const { return first == kNone; }

  std::uint32_t first = kNone;
  std::uint32_t last = kNone;
};

// All peers share one pool: most of them are never owed anything, and a burst may leave one entry
// for each of its packets.
template <class T>
class OwedPool {
 public:
  explicit OwedPool(std::uint32_t limit) : entries_(limit) {}

  // If the pool is full, the entry is dropped, and the peer's timer does without it.
  void push(OwedList& owed, const T& value) {
    const std::uint32_t index = entries_.allocate();
    if (index == Slab<Entry>::kNone) {
      return;
    }
    entries_[index] = {value, OwedList::kNone};
    (owed.empty() ? owed.first : entries_[owed.last].next) = index;
    owed.last = index;
  }
  // There must be one.
  [[nodiscard]] T take(OwedList& owed) {
    const std::uint32_t index = owed.first;
    const Entry entry = entries_[index];
    owed.first = entry.next;
    entries_.release(index);
    return entry.value;
  }
  void forget(OwedList& owed) {
    while (!owed.empty()) {
      (void)take(owed);
    }
  }

 private:
  struct Entry {
    T value;
    std::uint32_t next = OwedList::kNone;
  };

  Slab<Entry> entries_;
};

}  // namespace weft::srd
