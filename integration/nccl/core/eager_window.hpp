// Owns which eager messages of a sending end are still open, and whether it may send another one.
#pragma once

#include <cstdint>

#include "integration/nccl/core/control_wire.hpp"

namespace weft::nccl {

// A message is open until it has been acknowledged and matched with an announced buffer. The next
// one may be sent if it is fewer than kEagerWindow numbers after the oldest open one. So a receiver
// never keeps more than kEagerWindow messages.
class EagerWindow {
 public:
  [[nodiscard]] bool has_room() const { return next_ - first_ < kEagerWindow; }
  [[nodiscard]] std::uint32_t next() const { return next_; }
  [[nodiscard]] bool has_unacknowledged() const { return unacknowledged_ != 0; }
  void begin() {
    unacknowledged_ |= bit(next_);
    unmatched_ |= bit(next_++);
  }
  void acknowledge(std::uint32_t number) {
    unacknowledged_ &= ~bit(number);
    advance();
  }
  void match(std::uint32_t number) {
    unmatched_ &= ~bit(number);
    advance();
  }

 private:
  [[nodiscard]] static constexpr std::uint32_t bit(std::uint32_t number) {
    return 1U << number % kEagerWindow;
  }
  void advance() {
    while (first_ != next_ && ((unacknowledged_ | unmatched_) & bit(first_)) == 0) {
      ++first_;
    }
  }

  std::uint32_t next_{kFirstSequence};
  std::uint32_t first_{kFirstSequence};  // the oldest open one
  std::uint32_t unacknowledged_ = 0;
  std::uint32_t unmatched_ = 0;
};

}  // namespace weft::nccl
