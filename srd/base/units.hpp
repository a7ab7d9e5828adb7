// Owns byte counts and data rates, and the exact integer arithmetic between them and time.
#pragma once

#include <cstdint>

#include "srd/base/time.hpp"

namespace weft {

using Bytes = std::uint64_t;

class Rate {
 public:
  constexpr Rate() = default;
  [[nodiscard]] static constexpr Rate bits_per_second(std::uint64_t bps) { return Rate{bps}; }
  [[nodiscard]] static constexpr Rate gbps(double g) {
    return Rate{static_cast<std::uint64_t>(g * 1e9 + 0.5)};
  }

  [[nodiscard]] constexpr std::uint64_t bits_per_second() const { return bps_; }
  [[nodiscard]] constexpr bool is_zero() const { return bps_ == 0; }

  // Time to serialise `bytes`, in picoseconds: nanoseconds are too coarse at 400 Gb/s (64 B = 1.28
  // ns).
  [[nodiscard]] constexpr std::uint64_t picoseconds_for(Bytes bytes) const {
    constexpr std::uint64_t kPerByte = 8 * 1'000'000'000'000ULL;
    constexpr Bytes kFitsIn64Bits = ~std::uint64_t{0} / kPerByte;
    if (bytes <= kFitsIn64Bits) [[likely]] {  // a packet: dividing 128 bits costs ten times as much
      return bytes * kPerByte / bps_;
    }
    return static_cast<std::uint64_t>(static_cast<unsigned __int128>(bytes) * kPerByte / bps_);
  }
  // The same in nanoseconds, rounded up.
  [[nodiscard]] constexpr Duration time_for(Bytes bytes) const {
    return Duration{static_cast<std::int64_t>((picoseconds_for(bytes) + 999) / 1000)};
  }
  // Whole bytes that fit into `d` at this rate.
  [[nodiscard]] constexpr Bytes bytes_in(Duration d) const {
    return static_cast<Bytes>(static_cast<unsigned __int128>(bps_) *
                              static_cast<std::uint64_t>(d.count()) / 8'000'000'000ULL);
  }

  friend constexpr auto operator<=>(Rate, Rate) = default;

 private:
  explicit constexpr Rate(std::uint64_t bps) : bps_(bps) {}
  std::uint64_t bps_ = 0;
};

}  // namespace weft
