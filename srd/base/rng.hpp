// Owns the one random generator: seeded, passed in, and giving the same numbers on every platform.
#pragma once

#include <bit>
#include <cstdint>

namespace weft {

// Mixes a 64-bit value; also the way to derive independent seeds and hashes from small integers.
[[nodiscard]] constexpr std::uint64_t mix64(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

// xoshiro256++ seeded through splitmix64.
class Rng {
 public:
  explicit constexpr Rng(std::uint64_t seed) {
    for (auto& word : state_) {
      word = mix64(seed);
      seed += 0x9E3779B97F4A7C15ULL;
    }
  }

  [[nodiscard]] constexpr std::uint64_t next() {
    const std::uint64_t result = std::rotl(state_[0] + state_[3], 23) + state_[0];
    const std::uint64_t shifted = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= shifted;
    state_[3] = std::rotl(state_[3], 45);
    return result;
  }

  // Uniform in [0, bound); bound must not be 0. The bias of the multiply-shift is below 2^-32.
  [[nodiscard]] constexpr std::uint32_t below(std::uint32_t bound) {
    return static_cast<std::uint32_t>(((next() >> 32) * bound) >> 32);
  }
  // Uniform in [low, high], both included.
  [[nodiscard]] constexpr std::uint64_t between(std::uint64_t low, std::uint64_t high) {
    const unsigned __int128 span = static_cast<unsigned __int128>(high - low) + 1;
    return low + static_cast<std::uint64_t>((next() * span) >> 64);
  }
  // Uniform in [0, 1).
  [[nodiscard]] constexpr double unit() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }
  [[nodiscard]] constexpr bool chance(double probability) { return unit() < probability; }

 private:
  std::uint64_t state_[4]{};
};

}  // namespace weft
