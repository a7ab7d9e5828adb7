// Owns the order of a collective's pieces.
//
// A ring runs in rounds: in each, a rank sends one part to its right neighbour and gets another
// from its left one, and passes on in the next round what it got (NCCL's ring). All-reduce takes
// twice as many rounds as all-gather and reduce-scatter, since sums go round first and results
// afterwards. What the bytes mean is of no interest here, only which of them can leave.
#include "integration/workloads/collective_run.hpp"

#include <algorithm>

namespace weft::workloads {

CollectiveRun::CollectiveRun(const CollectiveSpec& collective, std::uint32_t ranks,
                             std::uint32_t rank)
    : all_to_all_(collective.kind == CollectiveKind::all_to_all),
      ranks_(ranks),
      rank_(rank),
      part_(std::max<Bytes>((collective.bytes + ranks - 1) / ranks, 1)),
      ready_(ranks) {
  // A number of a piece must fit the immediate data, so large parts have larger slices instead of
  // more.
  const Bytes max_slices = kMaxPieces / (2 * ranks);
  slices_ =
      static_cast<std::uint32_t>(std::clamp<Bytes>((part_ + kSlice - 1) / kSlice, 1, max_slices));
  if (all_to_all_) {
    for (std::uint32_t i = 1; i < ranks; ++i) {
      senders_.push_back((rank + ranks - i) % ranks);
    }
    next_round_.assign(ranks, 0);
    came_.assign(std::size_t{ranks} * slices_, false);
    left_to_send_ = left_to_come_ = std::uint64_t{ranks - 1} * slices_;
    return;
  }
  rounds_ = (collective.kind == CollectiveKind::all_reduce ? 2 : 1) * (ranks - 1);
  senders_ = {(rank + ranks - 1) % ranks};
  next_round_.assign(slices_, 0);
  came_.assign(std::size_t{rounds_} * slices_, false);
  left_to_send_ = left_to_come_ = std::uint64_t{rounds_} * slices_;
}

// The last slice takes what is left, and is empty where rounding has used everything up.
std::uint32_t CollectiveRun::bytes_of(std::uint32_t slice) const {
  const Bytes size = (part_ + slices_ - 1) / slices_;
  const Bytes begin = std::min(part_, size * slice);
  return static_cast<std::uint32_t>(std::min(size, part_ - begin));
}

std::optional<CollectiveRun::Piece> CollectiveRun::next() {
  if (left_to_send_ == 0) {
    return std::nullopt;
  }
  const auto piece = all_to_all_ ? next_of_all_to_all() : next_of_ring();
  left_to_send_ -= piece ? 1U : 0U;
  return piece;
}

// What came in a round goes on in the next one; in the first round a rank sends a part of its own.
// Slices take turns (cursor_), so that a late one does not hold up the others.
std::optional<CollectiveRun::Piece> CollectiveRun::next_of_ring() {
  const std::uint32_t to = (rank_ + 1) % ranks_;
  if (!ready_[to]) {
    return std::nullopt;
  }
  for (std::uint32_t i = 0; i < slices_; ++i) {
    const std::uint32_t slice = (cursor_ + i) % slices_;
    const std::uint32_t round = next_round_[slice];
    if (round == rounds_ || (round != 0 && !came_[(round - 1) * slices_ + slice])) {
      continue;
    }
    ++next_round_[slice];
    cursor_ = (slice + 1) % slices_;
    return Piece{to, round * slices_ + slice, bytes_of(slice)};
  }
  return std::nullopt;
}

// A different order at each rank, by distance: otherwise all would send to the same rank at first.
std::optional<CollectiveRun::Piece> CollectiveRun::next_of_all_to_all() {
  for (std::uint32_t i = 0; i < ranks_ - 1; ++i) {
    const std::uint32_t distance = 1 + (cursor_ + i) % (ranks_ - 1);
    const std::uint32_t to = (rank_ + distance) % ranks_;
    if (!ready_[to] || next_round_[to] == slices_) {
      continue;
    }
    const std::uint32_t slice = next_round_[to]++;
    cursor_ = distance % (ranks_ - 1);
    return Piece{to, slice, bytes_of(slice)};
  }
  return std::nullopt;
}

// Pieces come from the network, in any order, so each is checked: from a rank that sends here, with
// a number that exists, and only once.
bool CollectiveRun::arrived(std::uint32_t from, std::uint32_t number) {
  if (std::find(senders_.begin(), senders_.end(), from) == senders_.end() ||
      number >= (all_to_all_ ? slices_ : came_.size())) {
    return false;
  }
  const std::size_t at = all_to_all_ ? std::size_t{from} * slices_ + number : number;
  if (came_[at]) {
    return false;
  }
  came_[at] = true;
  --left_to_come_;
  return true;
}

std::optional<std::uint32_t> CollectiveRun::missing() const {
  if (left_to_come_ == 0) {
    return std::nullopt;
  }
  for (const std::uint32_t from : senders_) {
    const std::size_t first = all_to_all_ ? std::size_t{from} * slices_ : 0;
    const std::size_t count = all_to_all_ ? slices_ : came_.size();
    for (std::size_t i = 0; i < count; ++i) {
      if (!came_[first + i]) {
        return from;
      }
    }
  }
  return std::nullopt;
}

}  // namespace weft::workloads
