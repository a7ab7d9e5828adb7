// Owns the bitmap policy: spray over all paths, but skip the ones that lately had trouble.
#pragma once

#include <cstdint>
#include <memory>

#include "srd/engine/paths/oblivious.hpp"
#include "srd/engine/paths/path_policy.hpp"

namespace weft::srd {

// A penalty per path. A penalised path is skipped; each choice takes one off the first path that it
// skips, and gives up skipping after one full round.
class BitmapPolicy {
 public:
  BitmapPolicy(std::uint16_t paths, std::uint64_t seed)
      : round_(paths, seed), penalty_(std::make_unique<std::uint8_t[]>(paths)) {}

  [[nodiscard]] PathId pick(TimePoint) {
    std::uint16_t path = round_.next();
    if (penalty_[path] > 0) [[unlikely]] {
      --penalty_[path];
      for (std::uint16_t i = 0; i < round_.paths() && penalty_[path] > 0; ++i) {
        path = round_.next();
      }
    }
    return PathId{path};
  }
  void on_feedback(TimePoint, PathId path, PathEvent event, Duration) {
    const std::uint8_t added = penalty_of(event);
    if (added > 0) {
      std::uint8_t& penalty = penalty_[path.value()];
      penalty = added > kMax - penalty ? kMax : static_cast<std::uint8_t>(penalty + added);
    }
  }

 private:
  static constexpr std::uint8_t kMax = 15;

  [[nodiscard]] static constexpr std::uint8_t penalty_of(PathEvent event) {
    switch (event) {
      case PathEvent::congested:
        return 1;
      case PathEvent::trimmed:
      case PathEvent::gap:
        return 4;
      case PathEvent::timeout:
        return kMax;
      case PathEvent::good:
      case PathEvent::probe_ok:
        break;
    }
    return 0;
  }

  PathRound round_;
  std::unique_ptr<std::uint8_t[]> penalty_;
};

}  // namespace weft::srd
