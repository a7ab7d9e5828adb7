// Owns one collective as one rank carries it out: which piece goes to whom when what has come.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "integration/workloads/step_plan.hpp"

namespace weft::workloads {

// Along a ring in rounds, each in slices so that a piece goes on while the next one comes; an
// all-to-all sends to all others at once. Pieces may come in any order. Pure bookkeeping: the
// caller moves the bytes, and calls next() again after each arrived() or ready().
class CollectiveRun {
 public:
  static constexpr Bytes kSlice = 1 << 20;
  static constexpr std::uint32_t kMaxPieces = 1U << 18;  // of a rank, what an immediate can name

  CollectiveRun(const CollectiveSpec& collective, std::uint32_t ranks, std::uint32_t rank);

  struct Piece {
    std::uint32_t to = 0;      // rank
    std::uint32_t number = 0;  // what the receiver calls it
    std::uint32_t bytes = 0;
  };
  // The next piece that can leave; none: something must come first, or all have left.
  [[nodiscard]] std::optional<Piece> next();
  // False: no such piece is due from that rank.
  [[nodiscard]] bool arrived(std::uint32_t from, std::uint32_t number);
  // `to` has begun this collective: pieces may go there.
  void ready(std::uint32_t rank) { ready_[rank] = true; }
  // The ranks that send to this one.
  [[nodiscard]] const std::vector<std::uint32_t>& senders() const { return senders_; }
  [[nodiscard]] bool finished() const { return left_to_send_ == 0 && left_to_come_ == 0; }
  // A rank from which something is missing, if any.
  [[nodiscard]] std::optional<std::uint32_t> missing() const;

 private:
  [[nodiscard]] std::optional<Piece> next_of_ring();
  [[nodiscard]] std::optional<Piece> next_of_all_to_all();
  [[nodiscard]] std::uint32_t bytes_of(std::uint32_t slice) const;

  bool all_to_all_;
  std::uint32_t ranks_;
  // Bytes of one part: what a rank sends in one round of a ring, or to one other rank.
  std::uint32_t rank_;
  std::uint32_t rounds_ = 0;
  std::uint32_t slices_ = 1;
  Bytes part_ = 0;
  std::vector<bool> came_;                 // ring: by round and slice; else by rank and slice
  std::vector<std::uint32_t> next_round_;  // ring: by slice; else by rank: the next slice
  // By rank: it has begun this collective.
  std::vector<bool> ready_;
  std::vector<std::uint32_t> senders_;
  // Slice (ring) or rank by distance (all-to-all) whose turn is next.
  std::uint32_t cursor_ = 0;
  std::uint64_t left_to_send_ = 0;
  std::uint64_t left_to_come_ = 0;
};

}  // namespace weft::workloads
