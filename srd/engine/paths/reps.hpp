// Owns REPS: recycle the paths of acknowledgements, weighed by their delay.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "srd/engine/paths/oblivious.hpp"
#include "srd/engine/paths/path_policy.hpp"

namespace weft::srd {

// Each acknowledgement puts its path into a ring of eight; each packet takes the oldest path there
// that was not yet used again, or explores. Beyond the paper, marks alone do not decide: if all
// leave a path at its first mark, its queue is empty a round trip later and another one is full. An
// acknowledgement that was measured is recycled unless its round trip took longer than usual; the
// longer, the less likely, so that about as much leaves a path as is too much. A path that fails
// while it lies in the ring is removed from it. Of the paper's freezing after a timeout there is
// nothing: PathHealth keeps packets off what fails, for every policy.
class RepsPolicy {
 public:
  static constexpr std::uint8_t kRing = 8;

  RepsPolicy(std::uint16_t paths, std::uint64_t seed) : random_(seed), round_(paths, mix64(seed)) {}

  [[nodiscard]] PathId pick(TimePoint) {
    if (fresh_ == 0) {
      return PathId{round_.next()};
    }
    // The first fresh entry at or after head_, which is the oldest.
    const int distance = std::countr_zero(std::rotr(fresh_, head_));
    const auto slot = static_cast<std::uint8_t>((head_ + distance) % kRing);
    fresh_ &= static_cast<std::uint8_t>(~(1U << slot));
    return PathId{ring_[slot]};
  }
  void on_feedback(TimePoint, PathId path, PathEvent event, Duration rtt) {
    if (event != PathEvent::good || rtt != Duration::zero()) {
      react(path, event, rtt);
      return;
    }
    add(path.value());
  }

 private:
  void add(std::uint16_t path) {
    ring_[head_] = path;
    fresh_ |= static_cast<std::uint8_t>(1U << head_);
    head_ = static_cast<std::uint8_t>((head_ + 1) % kRing);
  }
  void react(PathId path, PathEvent event, Duration rtt);
  void remove(std::uint16_t path);
  [[nodiscard]] bool too_slow(std::uint32_t rtt);

  std::array<std::uint16_t, kRing> ring_{};
  PathRandom random_;
  PathRound round_;              // explores: every path once a round
  std::uint32_t usual_rtt_ = 0;  // average of late; 0: not measured yet
  std::uint32_t least_rtt_ = 0;  // ever
  std::uint8_t fresh_ = 0;       // bit i: ring_[i] holds a path that was not used again yet
  std::uint8_t head_ = 0;        // where the next path is added: the oldest entry
};
static_assert(sizeof(RepsPolicy) <= 64);

}  // namespace weft::srd
