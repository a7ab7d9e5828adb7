// Owns oblivious spraying: every path once per round, in an order that changes with each round.
#pragma once

#include <bit>

#include "srd/engine/paths/path_policy.hpp"

namespace weft::srd {

// Counts through the paths XORed with a mask that is redrawn at each wrap. Where the number of
// paths is no power of two, indices beyond it are left out: less than every second one.
class PathRound {
 public:
  PathRound(std::uint16_t paths, std::uint64_t seed)
      : random_(seed), paths_(paths), size_(std::bit_ceil(paths)) {
    mask_ = random_.below(size_);
    next_ = random_.below(size_);  // peers do not start at the same path
  }

  [[nodiscard]] std::uint16_t next() {
    for (;;) {
      if (next_ == size_) {
        next_ = 0;
        mask_ = random_.below(size_);
      }
      const auto path = static_cast<std::uint16_t>(next_++ ^ mask_);
      if (path < paths_) {
        return path;
      }
    }
  }
  [[nodiscard]] std::uint16_t paths() const { return paths_; }

 private:
  PathRandom random_;
  std::uint16_t paths_;
  std::uint16_t size_;
  std::uint16_t mask_ = 0;
  std::uint16_t next_ = 0;
};

class ObliviousPolicy {
 public:
  ObliviousPolicy(std::uint16_t paths, std::uint64_t seed) : round_(paths, seed) {}

  [[nodiscard]] PathId pick(TimePoint) { return PathId{round_.next()}; }
  void on_feedback(TimePoint, PathId, PathEvent, Duration) {}

 private:
  PathRound round_;
};

}  // namespace weft::srd
