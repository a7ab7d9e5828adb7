// Owns the slower half of the calendar: opening a slice, inserting into the open one, the far
// future.
#include "emu/fabric/event_queue.hpp"

#include <algorithm>
#include <bit>

#include "srd/base/check.hpp"

namespace weft::emu {
namespace {

// Below this many, insertion beats a general sort; above, the general sort must be the stable one.
constexpr std::size_t kShort = 24;

bool earlier(const Event& a, const Event& b) { return a.when < b.when; }

void sort_slice(std::vector<Event>& events) {
  if (events.size() > kShort) {
    std::stable_sort(events.begin(), events.end(), earlier);
    return;
  }
  for (std::size_t i = 1; i < events.size(); ++i) {
    if (!earlier(events[i], events[i - 1])) {
      continue;
    }
    const Event moving = events[i];
    std::size_t to = i;
    do {
      events[to] = events[to - 1];
      --to;
    } while (to > 0 && earlier(moving, events[to - 1]));
    events[to] = moving;
  }
}

}  // namespace

EventQueue::EventQueue(unsigned slice_bits, unsigned ring_bits)
    : slice_bits_(slice_bits),
      mask_((1ULL << ring_bits) - 1),
      heads_(mask_ + 1, kEnd),
      occupied_((mask_ + 64) / 64, 0) {
  WEFT_CHECK(ring_bits >= 6 && ring_bits <= 24);
}

void EventQueue::insert_open(const Event& event) {
  // Nearly always at the end: what happens now comes after what was planned for now.
  auto at = current_.end();
  const auto first = current_.begin() + static_cast<std::ptrdiff_t>(cursor_);
  while (at != first && event.when < (at - 1)->when) {
    --at;
  }
  current_.insert(at, event);
}

void EventQueue::push_far(const Event& event) {
  far_.push_back({event, far_order_++});
  std::push_heap(far_.begin(), far_.end(), [](const Far& a, const Far& b) {
    return a.event.when != b.event.when ? a.event.when > b.event.when : a.order > b.order;
  });
}

void EventQueue::pull_far() {
  while (!far_.empty() && slice_of(far_.front().event.when) - open_ < ring_size()) {
    std::pop_heap(far_.begin(), far_.end(), [](const Far& a, const Far& b) {
      return a.event.when != b.event.when ? a.event.when > b.event.when : a.order > b.order;
    });
    const Event event = far_.back().event;
    far_.pop_back();
    chain(slice_of(event.when), event);
  }
}

std::uint64_t EventQueue::next_occupied() const {
  const std::uint64_t start = (open_ + 1) & mask_;
  const std::size_t words = occupied_.size();
  std::size_t word = start / 64;
  std::uint64_t bits = occupied_[word] & (~0ULL << (start % 64));
  for (std::size_t step = 0; bits == 0 && step <= words; ++step) {
    word = word + 1 == words ? 0 : word + 1;
    bits = occupied_[word];
  }
  const std::uint64_t at = word * 64 + static_cast<std::uint64_t>(std::countr_zero(bits));
  return open_ + 1 + ((at - start) & mask_);
}

bool EventQueue::open_next() {
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
  open_ = next_occupied();
  const std::uint64_t at = open_ & mask_;
  std::uint32_t index = heads_[at];
  heads_[at] = kEnd;
  occupied_[at / 64] &= ~(1ULL << (at % 64));
  while (index != kEnd) {
    Node& node = nodes_[index];
    current_.push_back(node.event);
    const std::uint32_t next = node.next;
    node.next = free_;
    free_ = index;
    index = next;
  }
  in_ring_ -= current_.size();
  std::reverse(current_.begin(), current_.end());
  sort_slice(current_);
  if (!far_.empty()) {
    pull_far();
  }
  if (in_ring_ != 0) {
    __builtin_prefetch(&nodes_[heads_[next_occupied() & mask_]]);
  }
  return true;
}

std::size_t EventQueue::memory() const {
  return nodes_.capacity() * sizeof(Node) + heads_.capacity() * sizeof(std::uint32_t) +
         occupied_.capacity() * 8 + far_.capacity() * sizeof(Far) +
         current_.capacity() * sizeof(Event);
}

}  // namespace weft::emu
