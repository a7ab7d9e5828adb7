// Owns the calendar of large networks: windows of time, and in each window a list of events per
// node.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <memory>
#include <vector>

#include "emu/fabric/event.hpp"
#include "emu/fabric/topology.hpp"
#include "srd/base/prefetch.hpp"

namespace weft::fabric {

// What a node does affects no other node sooner than the delay of the shortest cable. So within a
// window of that length each node can handle all its events in a row, before the next node has its
// turn: a node's memory is fetched once per window instead of once per event, and the next node is
// known beforehand.
//
// A node's events go by time, then by `via`, then by insertion. Insertions with the same time and
// `via` come from one node, which makes them in order: so what a node sees depends neither on the
// order of the nodes nor on where a run is interrupted.
class NodeCalendar {
 public:
  // Windows of `lookahead` ps. Events further away than the ring of windows wait in a heap.
  NodeCalendar(std::uint32_t nodes, Picos lookahead, Picos horizon);

  // In the open window only the node whose turn it is may insert, and only for itself. Nothing may
  // be inserted before the open window.
  void push(NodeId node, const CalendarEvent& event) {
    const std::uint64_t window = window_of(event.when);
    ++size_;
    if (window - open_ < ring_) [[likely]] {
      const std::uint32_t ref = chain(window, node, event);
      if (node == working_ && window == open_) [[unlikely]] {
        insert(event, ref);
      }
    } else {
      push_far(node, event);
    }
  }

  [[nodiscard]] bool empty() const { return size_ == 0; }
  // No event is earlier than this, the begin of the first window that has any; kNoTime if there is
  // none.
  [[nodiscard]] Picos next_bound() const;
  // The first picosecond after the open window.
  [[nodiscard]] Picos window_end() const { return start_of(open_ + 1); }

  // Handles all events before `until`. Handler: event(const CalendarEvent&); ahead(calendar, node,
  // n), called for n = kAhead .. 1, n nodes before that node has its turn, to prefetch; stopped(),
  // which ends the run with the window.
  template <class Handler>
  void run(Picos until, Handler& handler);
  static constexpr unsigned kAhead = 9;
  // Visits the events of a node in the open window, in no particular order: for the handler's
  // ahead().
  template <class Visit>
  void visit(NodeId node, const Visit& visit) const {
    for (std::uint32_t head = heads_[at(open_, node)]; head != kEnd;) {
      const Chunk& it = chunk(index_of(head));
      for (std::uint32_t i = 0; i < used_of(head); ++i) {
        visit(it.events[i]);
      }
      head = it.older;
    }
  }
  void prefetch_head(NodeId node) const { __builtin_prefetch(&heads_[at(open_, node)]); }
  // Prefetches the newest chunk of the node's events, or, when that is in the cache, the next older
  // one.
  void prefetch_events(NodeId node, bool older) const {
    std::uint32_t head = heads_[at(open_, node)];
    if (older) {
      head = chunk(index_of(head)).older;
    }
    if (head != kEnd) {
      weft::prefetch(&chunk(index_of(head)), sizeof(Chunk));
    }
  }

  [[nodiscard]] std::size_t memory() const;

 private:
  // No chunk; reads as a full one, as in EventQueue.
  static constexpr std::uint32_t kEnd = 0xFFFFFFFF;
  static constexpr std::uint32_t kChunkEvents = 15;
  static constexpr std::uint32_t kChunksPerBlock = 256;
  struct alignas(64) Chunk {
    std::uint32_t older;  // of the same node and window, full
    std::array<std::uint32_t, 7> spare;
    std::array<CalendarEvent, kChunkEvents> events;
  };
  static_assert(sizeof(Chunk) == 512);
  struct Far {
    CalendarEvent event;
    std::uint64_t order = 0;
    NodeId node = 0;
  };
  // What a node's events are sorted by, and where each is.
  struct Key {
    std::uint64_t time_and_via = 0;
    std::uint32_t order = 0;
    std::uint32_t ref = 0;
    friend bool operator<(const Key& a, const Key& b) {
      return a.time_and_via != b.time_and_via ? a.time_and_via < b.time_and_via : a.order < b.order;
    }
  };

  // A head and a reference are both the index of a chunk and a number below 16: how many of its
  // events are used, or which.
  [[nodiscard]] static std::uint32_t index_of(std::uint32_t head) { return head >> 4; }
  [[nodiscard]] static std::uint32_t used_of(std::uint32_t head) { return head & 15; }
  static_assert(kChunkEvents == 15);
  [[nodiscard]] Chunk& chunk(std::uint32_t index) {
    return blocks_[index / kChunksPerBlock][index % kChunksPerBlock];
  }
  [[nodiscard]] const Chunk& chunk(std::uint32_t index) const {
    return blocks_[index / kChunksPerBlock][index % kChunksPerBlock];
  }
  [[nodiscard]] const CalendarEvent& event_of(std::uint32_t ref) const {
    return chunk(index_of(ref)).events[used_of(ref)];
  }

  // Rounded so that `lookahead` later is always at least one window later.
  [[nodiscard]] std::uint64_t window_of(Picos when) const {
    return static_cast<std::uint64_t>(
        (static_cast<unsigned __int128>(static_cast<std::uint64_t>(when)) * inverse_) >> 64);
  }
  [[nodiscard]] Picos start_of(std::uint64_t window) const;
  [[nodiscard]] std::size_t at(std::uint64_t window, NodeId node) const {
    return static_cast<std::size_t>(window & (ring_ - 1)) * nodes_ + node;
  }
  [[nodiscard]] std::uint64_t* waiting(std::uint64_t window) {
    return &waiting_[static_cast<std::size_t>(window & (ring_ - 1)) * words_];
  }

  // Returns where the event lies.
  std::uint32_t chain(std::uint64_t window, NodeId node, const CalendarEvent& event) {
    std::uint32_t& head = heads_[at(window, node)];
    if (used_of(head) == kChunkEvents) {  // of kEnd as well
      head = add_chunk(head) << 4;
      waiting(window)[node / 64] |= 1ULL << (node % 64);
    }
    const std::uint32_t ref = head++;
    chunk(index_of(ref)).events[used_of(ref)] = event;
    ++in_window_[window & (ring_ - 1)];
    return ref;
  }
  [[nodiscard]] Key key_of(const CalendarEvent& event, std::uint32_t ref) {
    const auto offset = static_cast<std::uint64_t>(event.when - open_start_);
    return {offset << 32 | event.via, order_++, ref};
  }

  std::uint32_t add_chunk(std::uint32_t older);
  void insert(const CalendarEvent& event, std::uint32_t ref);
  void push_far(NodeId node, const CalendarEvent& event);
  void pull_far();
  // Makes the window of the next event the open one, if it begins before `until`.
  [[nodiscard]] bool open_next(Picos until);
  void move_to(std::uint64_t window);
  void gather(NodeId node);
  // The events of the working node beyond the cursor stay in the calendar, the others leave it.
  void put_down(NodeId node);
  [[nodiscard]] std::uint64_t next_occupied() const;

  std::uint32_t nodes_;
  std::uint32_t words_;  // of a set of nodes
  std::uint64_t ring_ = 1;
  std::uint64_t inverse_;  // of the window's length
  std::uint64_t open_ = 0;
  Picos open_start_ = 0;
  std::uint64_t size_ = 0;
  std::vector<std::uint32_t> heads_;      // by window and node: the newest chunk
  std::vector<std::uint64_t> waiting_;    // by window: which nodes have events
  std::vector<std::uint32_t> in_window_;  // how many events
  std::vector<std::unique_ptr<Chunk[]>> blocks_;
  std::uint32_t free_ = kEnd;

  NodeId working_ = kNone;
  std::vector<Key> keys_;  // of the working node's events
  std::size_t cursor_ = 0;
  std::uint32_t order_ = 0;
  // The nodes that have events in the open window, in the order of their turns.
  std::vector<NodeId> turns_;
  std::vector<std::uint32_t> scratch_;
  std::vector<CalendarEvent> kept_;
  std::vector<Far> far_;
  std::uint64_t far_order_ = 0;
};

template <class Handler>
void NodeCalendar::run(Picos until, Handler& handler) {
  while (open_next(until)) {
    turns_.clear();
    for (std::uint32_t word = 0; word < words_; ++word) {
      for (std::uint64_t bits = waiting(open_)[word]; bits != 0; bits &= bits - 1) {
        turns_.push_back(word * 64 + static_cast<NodeId>(std::countr_zero(bits)));
      }
    }
    for (std::size_t turn = 0; turn < turns_.size() + kAhead; ++turn) {
      for (unsigned n = kAhead; n > 0; --n) {
        const std::size_t other = turn + n - kAhead;
        if (other < turns_.size()) {
          handler.ahead(*this, turns_[other], n);
        }
      }
      if (turn < kAhead) {
        continue;
      }
      const NodeId node = turns_[turn - kAhead];
      gather(node);
      while (cursor_ < keys_.size()) {
        const CalendarEvent event = event_of(keys_[cursor_].ref);
        if (event.when >= until) {
          break;
        }
        ++cursor_;
        handler.event(event);
      }
      put_down(node);
    }
    if (window_end() > until || handler.stopped()) {
      return;
    }
  }
}

}  // namespace weft::fabric
