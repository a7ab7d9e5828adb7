// Owns the strong integer id: ids of different things neither convert into nor compare with each
// other.
#pragma once

#include <compare>
#include <concepts>
#include <cstddef>
#include <functional>

namespace weft {

template <class Tag, std::unsigned_integral Rep>
class Id {
 public:
  using rep = Rep;
  constexpr Id() = default;
  explicit constexpr Id(Rep value) : value_(value) {}
  [[nodiscard]] constexpr Rep value() const { return value_; }
  friend constexpr auto operator<=>(Id, Id) = default;

 private:
  Rep value_ = 0;
};

}  // namespace weft

template <class Tag, class Rep>
struct std::hash<weft::Id<Tag, Rep>> {
  std::size_t operator()(weft::Id<Tag, Rep> id) const noexcept {
    return std::hash<Rep>{}(id.value());
  }
};
