// Owns serial numbers (packet sequence numbers, lives): they wrap, so they have before() and no
// operator<.
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>

namespace weft {

// Serial-number arithmetic over the whole width of Rep. `a.before(b)` is meaningful only while the
// two are less than half the number space apart, which every window in this project guarantees.
template <class Tag, std::unsigned_integral Rep>
class Serial {
 public:
  using rep = Rep;
  constexpr Serial() = default;
  explicit constexpr Serial(Rep value) : value_(value) {}

  [[nodiscard]] constexpr Rep value() const { return value_; }
  [[nodiscard]] constexpr bool before(Serial other) const {
    return static_cast<std::make_signed_t<Rep>>(static_cast<Rep>(value_ - other.value_)) < 0;
  }
  // How far this lies after `start`; only for start not after this.
  [[nodiscard]] constexpr Rep minus(Serial start) const {
    return static_cast<Rep>(value_ - start.value_);
  }
  [[nodiscard]] constexpr Serial plus(Rep n) const { return Serial{static_cast<Rep>(value_ + n)}; }
  constexpr Serial& operator++() {
    ++value_;
    return *this;
  }
  friend constexpr bool operator==(Serial, Serial) = default;

 private:
  Rep value_ = 0;
};

struct PsnTag;
using Psn = Serial<PsnTag, std::uint32_t>;

}  // namespace weft
