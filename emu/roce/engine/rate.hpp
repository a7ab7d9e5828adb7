// Owns the sending rate of a queue pair under congestion notifications, after DCQCN (Zhu et al.,
// SIGCOMM 2015): cut by a running estimate of how often they come, then back in three stages.
#pragma once

#include <algorithm>
#include <cstdint>

#include "srd/base/time.hpp"
#include "srd/base/units.hpp"

namespace weft::roce {

// Without notifications it limits nothing. After one it paces packets until the rate is back at the
// line's.
class RateControl {
 public:
  [[nodiscard]] bool limits() const { return limiting_; }
  [[nodiscard]] TimePoint next_send() const { return limiting_ ? next_send_ : TimePoint{}; }
  [[nodiscard]] Rate rate() const { return Rate::bits_per_second(current_); }

  // Cuts the rate by half of `alpha_`, the estimate of congestion, which each notification raises.
  void congested(TimePoint now, Rate line) {
    line_ = line.bits_per_second();
    if (!limiting_) {
      limiting_ = true;
      current_ = line_;
      alpha_ = kOne;
      next_send_ = now;
    }
    target_ = current_;
    current_ = std::max(current_ - current_ / 2 * alpha_ / kOne, line_ / kSlowest);
    alpha_ += (kOne - alpha_) / kGain;
    stage_ = 0;
    recover_at_ = now + kRecover;
    forget_at_ = now + kForget;
  }

  // Called before each packet.
  void advance(TimePoint now) {
    for (; limiting_ && recover_at_ <= now; recover_at_ += kRecover) {
      if (stage_++ >= kFastStages) {
        target_ = std::min(target_ + line_ / kStep, line_);
      }
      current_ = (current_ + target_ + 1) / 2;
      limiting_ = current_ < line_ - line_ / kSlowest;
    }
    for (; limiting_ && forget_at_ <= now; forget_at_ += kForget) {
      alpha_ -= alpha_ / kGain;
    }
  }
  // Called after each packet with data; the next may leave when this one would have passed at the
  // present rate.
  void sent(TimePoint now, Bytes bytes) {
    if (limiting_) {
      next_send_ = std::max(now, next_send_) + rate().time_for(bytes);
    }
  }

 private:
  // The estimate is forgotten by 1/16 every 55 us; the rate recovers every 300 us, first half way
  // to what it was, five times, then towards a target that grows by 1 % of the line each time. It
  // never falls below a thousandth of the line.
  static constexpr std::uint64_t kOne = 1 << 16;
  static constexpr std::uint64_t kGain = 16;
  static constexpr std::uint64_t kSlowest = 1000;
  static constexpr std::uint64_t kStep = 100;
  static constexpr std::uint32_t kFastStages = 5;
  static constexpr Duration kRecover = std::chrono::microseconds{300};
  static constexpr Duration kForget = std::chrono::microseconds{55};

  // Rates in bits per second; `alpha_` is the estimate, as a share of kOne.
  bool limiting_ = false;
  std::uint32_t stage_ = 0;
  std::uint64_t line_ = 0;
  std::uint64_t current_ = 0;
  std::uint64_t target_ = 0;
  std::uint64_t alpha_ = kOne;
  TimePoint next_send_{};
  TimePoint recover_at_{};
  TimePoint forget_at_{};
};

}  // namespace weft::roce
