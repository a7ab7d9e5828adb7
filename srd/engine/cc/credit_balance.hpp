// Owns the sender's side of receiver credits: what it may still send, and how much it asks for.
#pragma once

#include <algorithm>
#include <cstdint>

#include "srd/base/units.hpp"
#include "srd/wire/srd_header.hpp"

namespace weft::srd {

// [wire 3.8] Demand and grants travel in these, cumulative, modulo 2^32.
inline constexpr Bytes kBytesPerCredit = wire::kCreditUnit;

// [wire 4.8] Counts payload bytes; what is sent again is asked for again.
class CreditBalance {
 public:
  CreditBalance() = default;
  // From `least` to `most` bytes may be sent without asking.
  CreditBalance(Bytes least, Bytes most) : least_(least), most_(most) {}

  // So many more bytes wait to be sent.
  void want(Bytes bytes) { wanted_ += bytes; }
  // Bytes that were wanted will not be sent after all.
  void give_up(Bytes bytes) { spent_ += bytes; }

  [[nodiscard]] bool may_send(Bytes bytes) const { return spent_ + bytes <= allowed_ + blind(); }
  // False if no bytes wait to be sent.
  [[nodiscard]] bool wants_more() const { return spent_ < wanted_; }
  void on_sent(Bytes bytes) { spent_ += bytes; }

  // Older grants, which arrive late, are ignored.
  void on_grant(std::uint32_t cumulative) {
    const auto step = static_cast<std::int32_t>(cumulative - granted_);
    if (step > 0) {
      granted_ = cumulative;
      allowed_ += static_cast<Bytes>(step) * kBytesPerCredit;
    }
  }

  // What a credit request says now. What was asked for cannot be taken back, and a sender that
  // gives up what it wanted would hold the link for nothing: so no more is asked for than keeps the
  // next request in time.
  [[nodiscard]] std::uint32_t demand() const {
    const Bytes asked = wanted_ > blind() ? wanted_ - blind() : 0;
    const Bytes open = std::min(kWindowsAsked * most_ / kBytesPerCredit + 1, kMaxOpen);
    return static_cast<std::uint32_t>(std::min((asked + kBytesPerCredit - 1) / kBytesPerCredit,
                                               allowed_ / kBytesPerCredit + open));
  }
  // True if the receiver should hear of a larger demand than the last one it was told. Not while
  // it knows of enough to go on with: each packet that is sent again is wanted again.
  [[nodiscard]] bool should_request() const {
    const auto enough = static_cast<std::int32_t>(std::min(2 * most_ / kBytesPerCredit, kMaxOpen));
    return static_cast<std::int32_t>(demand() - requested_) > 0 &&
           static_cast<std::int32_t>(requested_ - granted_) <= enough;
  }
  void on_requested() { requested_ = demand(); }

 private:
  static constexpr Bytes kBlindShare = 32;
  // First windows that are asked for at a time. Chosen: nearly all of them are used up between two
  // requests, so that these are rare, and what is given up costs the others few round trips.
  static constexpr Bytes kWindowsAsked = 16;
  // Credits that may be asked for and not granted yet. Both ends compare counts modulo 2^32, which
  // says which one is later up to half of that.
  static constexpr Bytes kMaxOpen = Bytes{1} << 30;

  // What may leave before anything is granted. The receiver has not said yet whether it is free: a
  // long message soon hears, and loses at most its first window; a short one would be over by then,
  // and a thousand of them at once would all be lost. So the allowance begins where a message no
  // longer fits into the first window.
  [[nodiscard]] Bytes blind() const {
    const Bytes share = std::min(wanted_, most_) / kBlindShare;
    return std::clamp(share + (wanted_ > most_ ? wanted_ - most_ : 0), least_, most_);
  }

  Bytes wanted_ = 0;
  Bytes spent_ = 0;
  Bytes allowed_ = 0;
  Bytes least_ = 0;
  Bytes most_ = 0;
  std::uint32_t granted_ = 0;
  std::uint32_t requested_ = 0;
};

}  // namespace weft::srd
