// Owns the receiver's view of one peer's sequence numbers: what has arrived, and outcomes worth
// telling.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "srd/engine/psn_bitmap.hpp"
#include "srd/engine/types.hpp"

namespace weft::srd {

class ReceiveWindow {
 public:
  enum class Verdict : std::uint8_t { fresh, duplicate, outside };

  struct Result {
    Psn psn;
    std::uint8_t code = 0;     // Status or a wire::kResult code
    std::uint8_t attempt = 0;  // only with the latter
  };

  // Forgets everything: the next packet opens a window of its own.
  void reset() { *this = ReceiveWindow{}; }
  [[nodiscard]] bool open() const { return open_; }

  // Every number before this one is settled.
  [[nodiscard]] Psn cumulative() const { return base_; }
  // One past the highest number that has been accepted.
  [[nodiscard]] Psn top() const { return top_; }
  [[nodiscard]] std::uint64_t word(Psn psn) const { return bits_.word(psn); }

  // The sender has heard that every number before this one is settled.
  [[nodiscard]] Psn una() const { return una_; }
  // The sender's `una` in a packet that moves nothing. It may be past the top, if the sender has
  // lost interest in packets that never came.
  void note_una(Psn una) {
    const Psn heard = top_.before(una) ? top_ : una;
    if (una_.before(heard)) {
      una_ = heard;
    }
  }

  // The sender has no interest in numbers before `una` any more. [wire 4.1]
  void advance(Psn una) {
    if (!open_) {
      open_ = true;
      una_ = base_ = top_ = una;
      return;
    }
    if (una_.before(una)) {
      una_ = una;
    }
    forget_results_before(una);
    if (!base_.before(una)) {
      return;
    }
    if (una.minus(base_) >= PsnBitmap::kBits) {
      bits_.clear_all();
    } else {
      bits_.clear_range(base_, una);
    }
    base_ = una;
    if (top_.before(base_)) {
      top_ = base_;
    }
    base_ = bits_.consume(base_, top_);
  }

  [[nodiscard]] Verdict classify(Psn psn) const {
    if (psn.before(base_)) {
      return Verdict::duplicate;
    }
    if (psn.minus(base_) >= PsnBitmap::kSpan) {
      return Verdict::outside;
    }
    return psn.before(top_) && bits_.test(psn) ? Verdict::duplicate : Verdict::fresh;
  }

  // Only for a fresh number.
  void accept(Psn psn) {
    if (psn == base_ && psn == top_) [[likely]] {  // in order: no bit is set, none was
      ++base_;
      ++top_;
      return;
    }
    bits_.set(psn);
    if (!psn.before(top_)) {
      top_ = psn.plus(1);
    }
    if (psn == base_) {
      base_ = bits_.consume(base_, top_);
    }
  }

  // Notes the refusal of a fresh number, to be told until the sender has moved past it. False: no
  // room. A place is kept for every older number that is missing, because it may yet be refused:
  // the sender cannot move past it before that, so no place would ever become free. [wire 4.3]
  [[nodiscard]] bool note(Psn psn, Status status) {
    if (!may_note(psn)) {
      return false;
    }
    results_[results_used_++] = {psn, static_cast<std::uint8_t>(status)};
    return true;
  }
  // Whether note() has room for this number.
  [[nodiscard]] bool may_note(Psn psn) const {
    bool before_another = false;
    for (const Result& result : results()) {
      before_another = before_another || psn.before(result.psn);
    }
    return results_used_ != results_.size() &&
           (before_another || results_used_ + 1U + missing_before(psn) <= results_.size());
  }
  [[nodiscard]] std::span<const Result> results() const {
    return std::span(results_).first(results_used_);
  }

 private:
  // Numbers of the window before `psn` that have not arrived; counting stops where it no longer
  // matters.
  [[nodiscard]] std::uint32_t missing_before(Psn psn) const {
    std::uint32_t missing = 0;
    for (Psn at = base_; at != psn && missing <= results_.size(); ++at) {
      missing += bits_.test(at) ? 0 : 1;
    }
    return missing;
  }
  void forget_results_before(Psn una) {
    std::uint8_t kept = 0;
    for (std::uint8_t i = 0; i < results_used_; ++i) {
      if (!results_[i].psn.before(una)) {
        results_[kept++] = results_[i];
      }
    }
    results_used_ = kept;
  }

  bool open_ = false;
  std::uint8_t results_used_ = 0;
  Psn una_;  // the latest that the sender has said
  Psn base_;
  Psn top_;
  PsnBitmap bits_;
  std::array<Result, wire::kMaxRecordedResults> results_{};
};

}  // namespace weft::srd
