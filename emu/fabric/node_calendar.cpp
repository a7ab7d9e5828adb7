// Owns the slower half of the calendar by nodes: opening a window, sorting a node's events, the
// events beyond the ring.
#include "emu/fabric/node_calendar.hpp"

#include <algorithm>

#include "srd/base/check.hpp"

namespace weft::fabric {
namespace {

// Up to this many events, insertion sort beats a general one.
constexpr std::size_t kShort = 24;
constexpr std::uint64_t kMinRing = 16;
// 64 MB of heads; with more nodes the ring becomes shorter, and more events wait in the heap.
constexpr std::uint64_t kMaxHeads = 1 << 24;

}  // namespace

NodeCalendar::NodeCalendar(std::uint32_t nodes, Picos lookahead, Picos horizon)
    : nodes_(std::max(nodes, 1U)), words_((nodes_ + 63) / 64) {
  WEFT_CHECK(lookahead > 1 && lookahead <= INT32_MAX);
  const auto length = static_cast<std::uint64_t>(lookahead);
  // 2^64 / length, rounded up: window_of() multiplies instead of dividing.
  inverse_ = ~0ULL / length + 1;
  const auto windows = static_cast<std::uint64_t>(std::max<Picos>(horizon, 0)) / length + 2;
  ring_ = std::bit_ceil(std::max(windows, kMinRing));
  while (ring_ > kMinRing && ring_ * nodes_ > kMaxHeads) {
    ring_ /= 2;
  }
  heads_.assign(ring_ * nodes_, kEnd);
  waiting_.assign(ring_ * words_, 0);
  in_window_.assign(ring_, 0);
}

// The least time of that window: window_of() of everything before it is smaller.
Picos NodeCalendar::start_of(std::uint64_t window) const {
  const unsigned __int128 scaled = static_cast<unsigned __int128>(window) << 64;
  return static_cast<Picos>((scaled + inverse_ - 1) / inverse_);
}

std::uint32_t NodeCalendar::add_chunk(std::uint32_t older) {
  if (free_ == kEnd) {
    const auto first = static_cast<std::uint32_t>(blocks_.size()) * kChunksPerBlock;
    blocks_.push_back(std::make_unique_for_overwrite<Chunk[]>(kChunksPerBlock));
    WEFT_CHECK(first < kEnd >> 5);
    for (std::uint32_t i = kChunksPerBlock; i-- > 0;) {
      chunk(first + i).older = free_;
      free_ = first + i;
    }
  }
  const std::uint32_t index = free_;
  Chunk& it = chunk(index);
  free_ = it.older;
  it.older = older;
  return index;
}

// The working node plans another event for itself in the open window. Its key is nearly always the
// last.
void NodeCalendar::insert(const CalendarEvent& event, std::uint32_t ref) {
  const Key key = key_of(event, ref);
  auto at = keys_.end();
  const auto first = keys_.begin() + static_cast<std::ptrdiff_t>(cursor_);
  while (at != first && key < *(at - 1)) {
    --at;
  }
  keys_.insert(at, key);
}

void NodeCalendar::push_far(NodeId node, const CalendarEvent& event) {
  WEFT_CHECK(window_of(event.when) >= open_);
  far_.push_back({event, far_order_++, node});
  std::push_heap(far_.begin(), far_.end(), [](const Far& a, const Far& b) {
    return a.event.when != b.event.when ? a.event.when > b.event.when : a.order > b.order;
  });
}

void NodeCalendar::pull_far() {
  while (!far_.empty() && window_of(far_.front().event.when) - open_ < ring_) {
    std::pop_heap(far_.begin(), far_.end(), [](const Far& a, const Far& b) {
      return a.event.when != b.event.when ? a.event.when > b.event.when : a.order > b.order;
    });
    const Far far = far_.back();
    far_.pop_back();
    chain(window_of(far.event.when), far.node, far.event);
  }
}

// The window of the earliest event; the calendar must not be empty.
std::uint64_t NodeCalendar::next_occupied() const {
  for (std::uint64_t window = open_; window < open_ + ring_; ++window) {
    if (in_window_[window & (ring_ - 1)] != 0) {
      return window;
    }
  }
  return window_of(far_.front().event.when);
}

Picos NodeCalendar::next_bound() const {
  return size_ == 0 ? kNoTime : std::max(start_of(next_occupied()), Picos{0});
}

void NodeCalendar::move_to(std::uint64_t window) {
  open_ = window;
  open_start_ = start_of(window);
  pull_far();
}

// When no event is left before `until`, the window of `until` becomes the open one, so that events
// inserted between two runs do not lie before the open window.
bool NodeCalendar::open_next(Picos until) {
  const std::uint64_t last = until == kNoTime ? ~0ULL : window_of(until);
  const std::uint64_t next = size_ == 0 ? ~0ULL : next_occupied();
  const std::uint64_t window = std::min(next, last);
  if (window == ~0ULL) {
    return false;
  }
  if (window > open_) {
    move_to(window);
  }
  return next == window && open_start_ < until;
}

// Begins the turn of a node: sorts keys of its events in the open window. The events stay in their
// chunks.
void NodeCalendar::gather(NodeId node) {
  working_ = node;
  keys_.clear();
  cursor_ = 0;
  order_ = 0;
  scratch_.clear();
  for (std::uint32_t head = heads_[at(open_, node)]; head != kEnd;
       head = chunk(index_of(head)).older) {
    scratch_.push_back(head);
  }
  for (std::size_t i = scratch_.size(); i-- > 0;) {
    const Chunk& it = chunk(index_of(scratch_[i]));
    for (std::uint32_t n = 0; n < used_of(scratch_[i]); ++n) {
      keys_.push_back(key_of(it.events[n], (scratch_[i] & ~15U) + n));
    }
  }
  if (keys_.size() > kShort) {
    std::sort(keys_.begin(), keys_.end());
    return;
  }
  for (std::size_t i = 1; i < keys_.size(); ++i) {
    const Key moving = keys_[i];
    std::size_t to = i;
    for (; to > 0 && moving < keys_[to - 1]; --to) {
      keys_[to] = keys_[to - 1];
    }
    keys_[to] = moving;
  }
}

// Ends the turn: frees the node's chunks, and puts back the events that lie at or after `until` of
// the present run().
void NodeCalendar::put_down(NodeId node) {
  working_ = kNone;
  kept_.clear();
  for (std::size_t i = cursor_; i < keys_.size(); ++i) {
    kept_.push_back(event_of(keys_[i].ref));
  }
  size_ -= cursor_;
  in_window_[open_ & (ring_ - 1)] -= static_cast<std::uint32_t>(keys_.size());
  std::uint32_t& head = heads_[at(open_, node)];
  while (head != kEnd) {
    const std::uint32_t index = index_of(head);
    Chunk& it = chunk(index);
    head = it.older;
    it.older = free_;
    free_ = index;
  }
  waiting(open_)[node / 64] &= ~(1ULL << (node % 64));
  for (const CalendarEvent& event : kept_) {
    (void)chain(open_, node, event);
  }
}

std::size_t NodeCalendar::memory() const {
  return blocks_.size() * kChunksPerBlock * sizeof(Chunk) +
         heads_.capacity() * sizeof(std::uint32_t) + waiting_.capacity() * 8 +
         far_.capacity() * sizeof(Far) + keys_.capacity() * sizeof(Key);
}

}  // namespace weft::fabric
