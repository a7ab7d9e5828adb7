// Owns counting the chunks of a ring.
#include "integration/workloads/chunk_ring.hpp"

#include <algorithm>

namespace weft::workloads {
namespace {

// How far a value is ahead of a count; more than half of all values: it is behind.
std::uint32_t ahead(std::uint32_t value, std::uint64_t count) {
  return static_cast<std::uint32_t>(value - count) % Mark::kMaxValue;
}
constexpr std::uint32_t kBehind = Mark::kMaxValue / 2;
static_assert(kMaxRingPlaces < kBehind);

}  // namespace

// Acknowledgements come in any order.
void RingSender::on_acknowledged(std::uint32_t place) {
  acknowledged_[place] = true;
  while (acknowledged_[settled_ % places()]) {
    acknowledged_[settled_ % places()] = false;
    ++settled_;
  }
}

// A head that was overtaken by a later one says nothing new.
bool RingSender::take_head(std::uint32_t value) {
  const std::uint32_t more = ahead(value, head_);
  if (more >= kBehind) {
    return true;
  }
  if (more > written_ - head_) {
    return false;
  }
  head_ += more;
  return true;
}

void RingReceiver::take(Ordering ordering, const Mark& mark, OrderingCounters& totals,
                        std::uint64_t& waiting_now) {
  if (mark.group >= states_.size()) {
    ++totals.stray;
  } else if (ordering == Ordering::count) {
    take_counted(mark, totals, waiting_now);
  } else if (const auto value = numbered_.take(ordering, mark, totals, waiting_now)) {
    believe(*value, totals);
  }
}

// A place is used again only when its chunk has been taken, so what a place lacks is never made up
// for by a later chunk.
void RingReceiver::take_counted(const Mark& mark, OrderingCounters& totals,
                                std::uint64_t& waiting_now) {
  PlaceState& state = states_[mark.group];
  bool& flag = mark.counter ? state.told : state.written;
  totals.counters += mark.counter ? 1U : 0U;
  if (flag) {
    ++totals.stray;
    return;
  }
  flag = true;
  for (PlaceState* next = &states_[tail_ % states_.size()]; next->written && next->told;
       next = &states_[tail_ % states_.size()]) {
    waiting_now -= next->held ? 1U : 0U;
    *next = {};
    ++tail_;
  }
  if (mark.counter && state.told) {  // still
    state.held = true;
    ++totals.held;
    totals.deepest = std::max(totals.deepest, ++waiting_now);
  }
}

// Of counters that overtake each other the latest says all.
void RingReceiver::believe(std::uint32_t value, OrderingCounters& totals) {
  const std::uint32_t more = ahead(value, tail_);
  if (more >= kBehind) {
    return;
  }
  if (tail_ + more > taken_ + states_.size()) {
    ++totals.stray;
    return;
  }
  tail_ += more;
}

}  // namespace weft::workloads
