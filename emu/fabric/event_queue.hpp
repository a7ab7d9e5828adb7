// Owns the calendar of the network: its events by time, in an order that two runs always share.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "emu/fabric/event.hpp"

namespace weft::fabric {

// A calendar queue. Pushing and popping take constant time, unlike in a heap of all events.
//
//   early_    events before the open slice; rare (insert_early)
//   current_  the open slice: its events, with keys_ sorted by time
//   ring      2^ring_bits slices of the near future: each a chain of chunks, not sorted
//   far_      beyond the ring: a heap
//
// Only the open slice is sorted. Equal times keep the order of insertion, except that events which
// came through the heap go by their own order of insertion. A chunk is 256 contiguous bytes,
// because a large simulation spends its time waiting for memory. Chunks are reused and never given
// back: memory follows the largest number of events that were planned at once.
class EventQueue {
 public:
  // Slices of 2^slice_bits ps, 2^ring_bits of them.
  EventQueue(unsigned slice_bits, unsigned ring_bits);

  // Any time is allowed, also one before the latest front().
  void push(const CalendarEvent& event) {
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
  [[nodiscard]] const CalendarEvent* front() {
    if (early_used_ != early_.size()) [[unlikely]] {
      return &early_[early_used_];
    }
    if (cursor_ == keys_.size() && !open_next()) {
      return nullptr;
    }
    return &current_[static_cast<std::uint32_t>(keys_[cursor_])];
  }
  // Takes away what front() returned; there must have been one.
  void pop() {
    --size_;
    if (early_used_ != early_.size()) [[unlikely]] {
      pop_early();
      return;
    }
    ++cursor_;
  }

  [[nodiscard]] std::size_t memory() const;

 private:
  // No chunk. Its low bits read as a full chunk, so that chain() needs no test of its own for an
  // empty chain.
  static constexpr std::uint32_t kEnd = 0xFFFFFFFF;
  static constexpr std::uint32_t kChunkEvents = 7;
  static constexpr std::uint32_t kChunksPerBlock = 256;
  struct alignas(64) Chunk {
    std::uint32_t older;  // of the same slice, full
    std::array<std::uint32_t, 7> spare;
    std::array<CalendarEvent, kChunkEvents> events;
  };
  static_assert(sizeof(Chunk) == 256);
  struct Far {
    CalendarEvent event;
    std::uint64_t order = 0;
  };

  [[nodiscard]] std::uint64_t slice_of(Picos when) const {
    return static_cast<std::uint64_t>(when) >> slice_bits_;
  }
  [[nodiscard]] std::uint64_t ring_size() const { return mask_ + 1; }
  [[nodiscard]] Chunk& chunk(std::uint32_t index) {
    return blocks_[index / kChunksPerBlock][index % kChunksPerBlock];
  }
  [[nodiscard]] const Chunk& chunk(std::uint32_t index) const {
    return blocks_[index / kChunksPerBlock][index % kChunksPerBlock];
  }

  // A chain's head is the index of its newest chunk, and how many events that one holds: so
  // inserting reads no memory of the chunk.
  [[nodiscard]] static std::uint32_t index_of(std::uint32_t head) { return head >> 3; }
  [[nodiscard]] static std::uint32_t used_of(std::uint32_t head) { return head & 7; }
  static_assert(kChunkEvents == 7);

  void chain(std::uint64_t slice, const CalendarEvent& event) {
    const std::uint64_t at = slice & mask_;
    std::uint32_t head = heads_[at];
    if (used_of(head) == kChunkEvents) {  // of kEnd as well
      head = add_chunk(at) << 3;
    }
    chunk(index_of(head)).events[used_of(head)] = event;
    heads_[at] = head + 1;
    ++in_ring_;
  }
  // The sort key of an event in the open slice: the offset in the slice, then the order of
  // insertion, which is also its index in current_.
  [[nodiscard]] std::uint64_t key_of(Picos when, std::size_t position) const {
    const auto offset = static_cast<std::uint64_t>(when) - (open_ << slice_bits_);
    return offset << 32 | position;
  }

  std::uint32_t add_chunk(std::uint64_t at);
  void insert_open(const CalendarEvent& event);
  void insert_early(const CalendarEvent& event);
  void pop_early();
  void push_far(const CalendarEvent& event);
  bool open_next();
  void take_slice(std::uint32_t head);
  // The first occupied slice after `slice`, as a distance from it; 0: there is none.
  [[nodiscard]] std::uint64_t next_occupied(std::uint64_t slice) const;
  void pull_far();

  unsigned slice_bits_;
  std::uint64_t mask_;
  std::uint64_t open_ = 0;  // the slice that current_ holds
  std::uint64_t size_ = 0;
  std::uint64_t in_ring_ = 0;
  std::size_t cursor_ = 0;
  std::vector<CalendarEvent> current_;  // in the order of insertion
  std::vector<std::uint64_t> keys_;     // of current_, sorted
  std::vector<std::uint32_t> heads_;    // newest chunk of each slice
  // One bit per slice of the ring, so that empty slices are skipped 64 at a time.
  std::vector<std::uint64_t> occupied_;
  std::vector<std::unique_ptr<Chunk[]>> blocks_;
  std::uint32_t free_ = kEnd;
  std::vector<std::uint32_t> scratch_;
  std::vector<CalendarEvent>
      early_;  // inserted before the open slice, which was only looked at; sorted
  std::size_t early_used_ = 0;
  std::vector<Far> far_;
  std::uint64_t far_order_ = 0;
};

}  // namespace weft::fabric
