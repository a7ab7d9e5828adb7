// Owns holding counters back.
//
// This is what a proxy for GPUs has to do on a network that keeps no order: DeepEP's kernels, for
// example, wait for a counter and then read the data without looking at them.
#include "integration/workloads/ordering.hpp"

#include <algorithm>
#include <utility>

namespace weft::workloads {

void GroupArrivals::hold(OrderingCounters& totals, std::uint64_t& waiting_now) {
  ++totals.held;
  totals.deepest = std::max(totals.deepest, ++waiting_now);
}

// `waiting_now` is shared by all groups of a rank, so that totals.deepest says how many counters a
// proxy would have to remember at a time.
std::optional<std::uint32_t> GroupArrivals::take(Ordering ordering, const Mark& mark,
                                                 OrderingCounters& totals,
                                                 std::uint64_t& waiting_now) {
  totals.counters += mark.counter ? 1U : 0U;
  if (ordering == Ordering::sequence) {
    return take_in_sequence(mark, totals, waiting_now);
  }
  if (ordering != Ordering::count) {
    return mark.counter ? std::optional(mark.value) : std::nullopt;
  }
  if (!mark.counter) {
    ++arrived_;
    // No sender is two rounds ahead, so a second counter is none of ours.
  } else if (pending_) {
    ++totals.stray;
    return std::nullopt;
  } else {
    pending_ = mark.value;
    if (arrived_ < mark.value) {
      hold(totals, waiting_now);
      return std::nullopt;
    }
    arrived_ = 0;
    return std::exchange(pending_, std::nullopt);
  }
  if (!pending_ || arrived_ < *pending_) {
    return std::nullopt;
  }
  --waiting_now;
  arrived_ = 0;
  return std::exchange(pending_, std::nullopt);
}

// Takes the number that is due and everything behind it that has come early. Of several counters
// that become believable in a call the last one says all: those of a ring count from its beginning,
// and other groups have one in each section.
std::optional<std::uint32_t> GroupArrivals::take_in_sequence(const Mark& mark,
                                                             OrderingCounters& totals,
                                                             std::uint64_t& waiting_now) {
  const std::optional<std::uint32_t> counter =
      mark.counter ? std::optional(mark.value) : std::nullopt;
  const auto same = [&](const Early& one) { return one.sequence == mark.sequence; };
  if (std::any_of(early_.begin(), early_.end(), same)) {
    ++totals.stray;
    return std::nullopt;
  }
  if (mark.sequence != next_) {
    early_.push_back({mark.sequence, counter});
    if (counter) {
      hold(totals, waiting_now);
    }
    return std::nullopt;
  }
  std::optional<std::uint32_t> believed = counter;
  next_ = (next_ + 1) % Mark::kSequences;
  for (bool more = true; more;) {
    const auto found = std::find_if(early_.begin(), early_.end(),
                                    [&](const Early& one) { return one.sequence == next_; });
    more = found != early_.end();
    if (more) {
      if (found->counter) {
        --waiting_now;
        believed = found->counter;
      }
      early_.erase(found);
      next_ = (next_ + 1) % Mark::kSequences;
    }
  }
  return believed;
}

// Acknowledgements come in any order; the window moves on over those that are complete.
void SequenceWindow::acknowledge(std::uint32_t sequence) {
  acknowledged_ |= 1U << ((sequence - oldest_) % Mark::kSequences);
  while ((acknowledged_ & 1) != 0) {
    acknowledged_ >>= 1;
    ++oldest_;
  }
}

}  // namespace weft::workloads
