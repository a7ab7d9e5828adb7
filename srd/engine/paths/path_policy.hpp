// Owns what all path policies share: what is reported about a path, how they are tuned, and a small
// generator.
#pragma once

#include <cstdint>

#include "srd/base/rng.hpp"
#include "srd/base/time.hpp"
#include "srd/engine/types.hpp"

namespace weft::srd {

// What the sender learned about one path. Report only what surely concerns that path: the path that
// an acknowledgement echoes, or the path of the transmission that timed out.
enum class PathEvent : std::uint8_t {
  good,       // delivered, not marked
  congested,  // delivered, marked
  trimmed,    // a switch cut the payload off
  gap,        // a later packet of the same path arrived, this one did not
  timeout,    // nothing came back
  probe_ok,   // a probe was answered
};

struct PathTuning {
  Duration base_rtt = std::chrono::microseconds{14};
};

// Four bytes of generator, because there is one per peer: a mixed counter, good enough to choose
// paths.
class PathRandom {
 public:
  explicit constexpr PathRandom(std::uint64_t seed)
      : state_(static_cast<std::uint32_t>(mix64(seed))) {}
  // Uniform in [0, bound).
  [[nodiscard]] constexpr std::uint16_t below(std::uint16_t bound) {
    return static_cast<std::uint16_t>((static_cast<std::uint64_t>(next()) * bound) >> 32);
  }
  // True with a probability of part / whole.
  [[nodiscard]] constexpr bool chance(std::uint32_t part, std::uint32_t whole) {
    return (static_cast<std::uint64_t>(next()) * whole) >> 32 < part;
  }

 private:
  constexpr std::uint32_t next() {
    state_ += 0x9E3779B9U;
    std::uint32_t x = state_;
    x = (x ^ (x >> 16)) * 0x85EBCA6BU;
    x = (x ^ (x >> 13)) * 0xC2B2AE35U;
    return x ^ (x >> 16);
  }

  std::uint32_t state_;
};

// Durations of a network fit into 32 bits of nanoseconds (4 s); longer ones are as good as 4 s.
[[nodiscard]] constexpr std::uint32_t clamp_to_u32(Duration d) {
  if (d.count() <= 0) {
    return 0;
  }
  return d.count() >= 0xFFFFFFFFLL ? 0xFFFFFFFFU : static_cast<std::uint32_t>(d.count());
}

}  // namespace weft::srd
