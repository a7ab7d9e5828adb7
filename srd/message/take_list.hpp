// Owns a FIFO from whose middle entries can be taken: posted receives, and messages that wait for
// one.
#pragma once

#include <cstdint>
#include <optional>

#include "srd/base/slab.hpp"

namespace weft::srd::message {

// A singly linked list in a Slab. Searching is linear, which is right for short lists and for
// matches near the front. Allocates only to grow beyond its largest size so far.
template <class Entry>
class TakeList {
 public:
  explicit TakeList(std::uint32_t limit) : nodes_(limit) {}

  [[nodiscard]] std::uint32_t size() const { return nodes_.used(); }

  // False when the limit is reached.
  [[nodiscard]] bool push(const Entry& entry) {
    const std::uint32_t index = nodes_.allocate();
    if (index == kNone) {
      return false;
    }
    nodes_[index] = {entry, kNone};
    (head_ == kNone ? head_ : nodes_[tail_].next) = index;
    tail_ = index;
    return true;
  }

  // The oldest entry for which `wanted(entry)` holds.
  template <class Wanted>
  [[nodiscard]] std::optional<Entry> take_first(const Wanted& wanted) {
    std::uint32_t before = kNone;
    for (std::uint32_t at = head_; at != kNone; before = at, at = nodes_[at].next) {
      if (wanted(nodes_[at].entry)) {
        const Entry entry = nodes_[at].entry;
        unlink(before, at);
        return entry;
      }
    }
    return std::nullopt;
  }

  // All of them, the oldest first, in one pass. `taken(entry)` must not change the list.
  template <class Wanted, class Taken>
  void take_all(const Wanted& wanted, const Taken& taken) {
    std::uint32_t before = kNone;
    for (std::uint32_t at = head_; at != kNone;) {
      const std::uint32_t next = nodes_[at].next;
      if (wanted(nodes_[at].entry)) {
        const Entry entry = nodes_[at].entry;
        unlink(before, at);
        taken(entry);
      } else {
        before = at;
      }
      at = next;
    }
  }

 private:
  static constexpr std::uint32_t kNone = Slab<int>::kNone;

  struct Node {
    Entry entry{};
    std::uint32_t next = kNone;
  };

  void unlink(std::uint32_t before, std::uint32_t at) {
    (before == kNone ? head_ : nodes_[before].next) = nodes_[at].next;
    if (tail_ == at) {
      tail_ = before;
    }
    nodes_.release(at);
  }

  Slab<Node> nodes_;
  std::uint32_t head_ = kNone;
  std::uint32_t tail_ = kNone;
};

}  // namespace weft::srd::message
