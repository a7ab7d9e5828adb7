// Owns the slower half of the calendar: opening a slice, inserting into the open one, the far
// future.
#include "emu/fabric/event_queue.hpp"

#include <algorithm>
#include <bit>

#include "srd/base/check.hpp"

namespace weft::fabric {
namespace {

// Up to this many keys, insertion sort beats a general one.
constexpr std::size_t kShort = 32;
// Early events that were taken from the front are erased in batches of this size.
constexpr std::size_t kMaxUsedEarly = 1024;
// The heap of far events keeps room for this many, however few it holds.
constexpr std::size_t kMaxIdleFar = 4096;

// All keys differ, so the sort need not be stable.
void sort_keys(std::vector<std::uint64_t>& keys) {
  if (keys.size() > kShort) {
    std::sort(keys.begin(), keys.end());
    return;
  }
  for (std::size_t i = 1; i < keys.size(); ++i) {
    const std::uint64_t moving = keys[i];
    std::size_t to = i;
    for (; to > 0 && moving < keys[to - 1]; --to) {
      keys[to] = keys[to - 1];
    }
    keys[to] = moving;
  }
}

}  // namespace

EventQueue::EventQueue(unsigned slice_bits, unsigned ring_bits)
    : slice_bits_(slice_bits),
      mask_((1ULL << ring_bits) - 1),
      heads_(mask_ + 1, kEnd),
      occupied_((mask_ + 64) / 64, 0) {
  WEFT_CHECK(ring_bits >= 6 && ring_bits <= 24 && slice_bits <= 32);
}

// A chunk for the slice at that place of the ring, linked before its older ones.
std::uint32_t EventQueue::add_chunk(std::uint64_t at) {
  if (free_ == kEnd) {
    const auto first = static_cast<std::uint32_t>(blocks_.size()) * kChunksPerBlock;
    blocks_.push_back(std::make_unique_for_overwrite<Chunk[]>(kChunksPerBlock));
    WEFT_CHECK(first < kEnd >> 4);
    for (std::uint32_t i = kChunksPerBlock; i-- > 0;) {
      chunk(first + i).older = free_;
      free_ = first + i;
    }
  }
  const std::uint32_t index = free_;
  Chunk& it = chunk(index);
  free_ = it.older;
  it.older = heads_[at];
  occupied_[at / 64] |= 1ULL << (at % 64);
  return index;
}

// Into the open slice, or before it. What lies before cursor_ has been taken already and is not
// looked at.
void EventQueue::insert_open(const CalendarEvent& event) {
  if (slice_of(event.when) < open_) [[unlikely]] {
    insert_early(event);
    return;
  }
  const std::uint64_t key = key_of(event.when, current_.size());
  current_.push_back(event);
  // Nearly always at the end: what happens now comes after what was planned for now.
  auto at = keys_.end();
  const auto first = keys_.begin() + static_cast<std::ptrdiff_t>(cursor_);
  while (at != first && key < *(at - 1)) {
    --at;
  }
  keys_.insert(at, key);
}

// front() opens the slice of the next event, which may lie in the future. An event that is pushed
// after that, for an earlier slice, cannot go back into the ring: it waits in a sorted list of its
// own, which front() looks at first.
void EventQueue::insert_early(const CalendarEvent& event) {
  if (early_used_ >= kMaxUsedEarly && early_used_ >= early_.size() / 2) {
    early_.erase(early_.begin(), early_.begin() + static_cast<std::ptrdiff_t>(early_used_));
    early_used_ = 0;
  }
  const auto at = std::upper_bound(
      early_.begin() + static_cast<std::ptrdiff_t>(early_used_), early_.end(), event,
      [](const CalendarEvent& a, const CalendarEvent& b) { return a.when < b.when; });
  early_.insert(at, event);
}

void EventQueue::pop_early() {
  if (++early_used_ == early_.size()) {
    early_.clear();
    early_used_ = 0;
  }
}

void EventQueue::push_far(const CalendarEvent& event) {
  far_.push_back({event, far_order_++});
  std::push_heap(far_.begin(), far_.end(), [](const Far& a, const Far& b) {
    return a.event.when != b.event.when ? a.event.when > b.event.when : a.order > b.order;
  });
}

// Moves those far events into the ring whose slices have come within its reach.
void EventQueue::pull_far() {
  while (!far_.empty() && slice_of(far_.front().event.when) - open_ < ring_size()) {
    std::pop_heap(far_.begin(), far_.end(), [](const Far& a, const Far& b) {
      return a.event.when != b.event.when ? a.event.when > b.event.when : a.order > b.order;
    });
    const CalendarEvent event = far_.back().event;
    far_.pop_back();
    chain(slice_of(event.when), event);
  }
  if (far_.capacity() > kMaxIdleFar && far_.size() < far_.capacity() / 8) {
    far_.shrink_to_fit();
  }
}

// Looks at each word of the ring once, and at the first one twice: the bits before `slice` come
// last.
std::uint64_t EventQueue::next_occupied(std::uint64_t slice) const {
  const std::uint64_t start = (slice + 1) & mask_;
  const std::size_t words = occupied_.size();
  std::size_t word = start / 64;
  std::uint64_t bits = occupied_[word] & (~0ULL << (start % 64));
  for (std::size_t step = 0; bits == 0; ++step) {
    if (step > words) {
      return 0;
    }
    word = word + 1 == words ? 0 : word + 1;
    bits = occupied_[word];
  }
  const std::uint64_t at = word * 64 + static_cast<std::uint64_t>(std::countr_zero(bits));
  return 1 + ((at - start) & mask_);
}

// Opens the next slice that has events: takes its chunks apart and sorts their keys. False: there
// is no event at all.
bool EventQueue::open_next() {
  keys_.clear();
  current_.clear();
  cursor_ = 0;
  if (in_ring_ == 0) {
    if (far_.empty()) {
      return false;
    }
    // One slice before the event: the open slice itself is not part of the ring.
    open_ = slice_of(far_.front().event.when) - 1;
    pull_far();
  }
  open_ += next_occupied(open_);
  const std::uint64_t at = open_ & mask_;
  occupied_[at / 64] &= ~(1ULL << (at % 64));
  const std::uint32_t head = heads_[at];
  heads_[at] = kEnd;
  take_slice(head);
  in_ring_ -= current_.size();
  sort_keys(keys_);
  if (!far_.empty()) {
    pull_far();
  }
  return true;
}

// A chain begins with its newest chunk; events are needed in the order of insertion, so the chunks
// are visited from the last to the first.
void EventQueue::take_slice(std::uint32_t head) {
  scratch_.clear();
  for (; head != kEnd; head = chunk(index_of(head)).older) {
    scratch_.push_back(head);
  }
  while (!scratch_.empty()) {
    const std::uint32_t index = index_of(scratch_.back());
    const std::uint32_t used = used_of(scratch_.back());
    scratch_.pop_back();
    Chunk& it = chunk(index);
    for (std::uint32_t i = 0; i < used; ++i) {
      keys_.push_back(key_of(it.events[i].when, current_.size()));
      current_.push_back(it.events[i]);
    }
    it.older = free_;
    free_ = index;
  }
}

std::size_t EventQueue::memory() const {
  return blocks_.size() * kChunksPerBlock * sizeof(Chunk) +
         heads_.capacity() * sizeof(std::uint32_t) + occupied_.capacity() * 8 +
         far_.capacity() * sizeof(Far) + early_.capacity() * sizeof(CalendarEvent) +
         current_.capacity() * (sizeof(CalendarEvent) + 8);
}

}  // namespace weft::fabric
