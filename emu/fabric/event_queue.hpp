// Owns the future: what will happen in the network and when, in an order that never depends on
// chance.
#pragma once

#include <cstdint>
#include <vector>

#include "emu/fabric/picos.hpp"

namespace weft::emu {

// One thing that will happen. A frame's way through the network is a chain of these: everything a
// hop needs travels inside, so that switching a frame touches no memory of the frame itself.
struct Event {
  enum class Kind : std::uint8_t { hop, wake, fault };
  Picos when = 0;
  std::uint32_t frame = 0;        // hop: its owner's handle; wake: the token; fault: index
  std::uint32_t destination = 0;  // port
  std::uint32_t hash = 0;         // of the flow and its path
  std::uint32_t via = 0;          // the link whose far end the frame reaches
  std::uint32_t next = 0;         // the link it is then queued on; unused at its destination
  std::uint16_t size = 0;         // bytes on the wire
  Kind kind = Kind::hop;
  std::uint8_t flags = 0;
};
static_assert(sizeof(Event) == 32);

// A calendar queue: a ring of short time slices, each a chain of events in the order of insertion.
// Only the slice that is being worked off is sorted. Events beyond the ring wait in a heap. Equal
// times keep the order of insertion, except that those which came through the heap go by their own
// order of insertion.
class EventQueue {
 public:
  // Slices of 2^slice_bits ps, 2^ring_bits of them.
  EventQueue(unsigned slice_bits, unsigned ring_bits);

  void push(const Event& event) {
    const std::uint64_t slice = slice_of(event.when);
    ++size_;
    if (slice <= open_) {
      insert_open(event);
    } else if (slice - open_ < ring_size()) {
      chain(slice, event);
    } else {
      push_far(event);
    }
  }

  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] std::uint64_t size() const { return size_; }

  // The earliest event, or nullptr. Valid until the next push or pop.
  [[nodiscard]] const Event* front() {
    if (cursor_ == current_.size() && !open_next()) {
      return nullptr;
    }
    return &current_[cursor_];
  }
  void pop() {
    ++cursor_;
    --size_;
  }
  // What follows front() in the open slice: the caller may prefetch what it will touch.
  [[nodiscard]] const Event* peek_after(std::size_t ahead) const {
    return cursor_ + ahead < current_.size() ? &current_[cursor_ + ahead] : nullptr;
  }

  [[nodiscard]] std::size_t memory() const;

 private:
  static constexpr std::uint32_t kEnd = 0xFFFFFFFF;
  struct Node {
    Event event;
    std::uint32_t next = kEnd;
  };
  struct Far {
    Event event;
    std::uint64_t order = 0;
  };

  [[nodiscard]] std::uint64_t slice_of(Picos when) const {
    return static_cast<std::uint64_t>(when) >> slice_bits_;
  }
  [[nodiscard]] std::uint64_t ring_size() const { return mask_ + 1; }

  void chain(std::uint64_t slice, const Event& event) {
    std::uint32_t index = free_;
    if (index == kEnd) {
      index = static_cast<std::uint32_t>(nodes_.size());
      nodes_.push_back({event, kEnd});
    } else {
      free_ = nodes_[index].next;
      nodes_[index].event = event;
    }
    const std::uint64_t at = slice & mask_;
    nodes_[index].next = heads_[at];
    heads_[at] = index;
    occupied_[at / 64] |= 1ULL << (at % 64);
    ++in_ring_;
  }
  void insert_open(const Event& event);
  void push_far(const Event& event);
  bool open_next();
  // The first occupied slice after open_; there must be one.
  [[nodiscard]] std::uint64_t next_occupied() const;
  void pull_far();

  unsigned slice_bits_;
  std::uint64_t mask_;
  std::uint64_t open_ = 0;  // the slice that current_ holds
  std::uint64_t size_ = 0;
  std::uint64_t in_ring_ = 0;
  std::size_t cursor_ = 0;
  std::vector<Event> current_;
  std::vector<std::uint32_t> heads_;
  std::vector<std::uint64_t> occupied_;
  std::vector<Node> nodes_;
  std::uint32_t free_ = kEnd;
  std::vector<Far> far_;
  std::uint64_t far_order_ = 0;
};

}  // namespace weft::emu
