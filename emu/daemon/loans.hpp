// Owns the record of frames that stay in a process's ring while they are inside of the modelled
// network, which saves one of two copies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "srd/base/time.hpp"

namespace weft::daemon {

// One per slot, in the order of the ring. Frames come back in any order, but a ring can only be
// released up to the oldest frame that is still out: hence a queue whose front moves over all that
// are back. Numbers count up for ever, and index the table modulo its size.
class Loans {
 public:
  // A frame at that position of the ring, known there as `handle`. Returns its number here.
  std::uint64_t lend(std::uint64_t position, std::uint32_t handle, TimePoint now) {
    if (next_ - first_ == loans_.size()) {
      grow();
    }
    // Field by field: a whole loan would be put together elsewhere, and copied before it is there.
    Loan& loan = at(next_);
    loan.position = position;
    loan.since = now;
    loan.handle = handle;
    loan.back = false;
    return next_++;
  }
  void give_back(std::uint64_t number) {
    at(number).back = true;
    while (first_ != next_ && at(first_).back) {
      ++first_;
    }
  }

  [[nodiscard]] bool empty() const { return first_ == next_; }
  // Of the oldest that is still out.
  [[nodiscard]] std::uint64_t position() const { return at(first_).position; }
  [[nodiscard]] std::uint32_t handle() const { return at(first_).handle; }
  [[nodiscard]] TimePoint since() const { return at(first_).since; }

 private:
  struct Loan {
    std::uint64_t position = 0;
    TimePoint since{};
    std::uint32_t handle = 0;
    bool back = false;
  };

  [[nodiscard]] Loan& at(std::uint64_t number) { return loans_[number & mask_]; }
  [[nodiscard]] const Loan& at(std::uint64_t number) const { return loans_[number & mask_]; }
  void grow() {
    std::vector<Loan> larger(loans_.empty() ? 64 : 2 * loans_.size());
    for (std::uint64_t number = first_; number != next_; ++number) {
      larger[number & (larger.size() - 1)] = at(number);
    }
    loans_ = std::move(larger);
    mask_ = loans_.size() - 1;
  }

  std::vector<Loan> loans_;  // a power of two of them
  std::uint64_t mask_ = 0;   // their number less one
  std::uint64_t first_ = 0;  // the oldest that is out
  std::uint64_t next_ = 0;
};

}  // namespace weft::daemon
