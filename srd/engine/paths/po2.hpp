// Owns the power of two choices: draw two paths, take the one with the lower smoothed round-trip
// time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "srd/engine/paths/path_policy.hpp"

namespace weft::srd {

class Po2Policy {
 public:
  Po2Policy(std::uint16_t paths, std::uint64_t seed, const PathTuning& tuning)
      : rtt_(std::make_unique<std::uint32_t[]>(paths)),
        random_(seed),
        loss_rtt_(clamp_to_u32(4 * tuning.base_rtt)),
        paths_(paths) {}

  [[nodiscard]] PathId pick(TimePoint) {
    const std::uint16_t a = random_.below(paths_);
    const std::uint16_t b = random_.below(paths_);
    const bool first = rtt_[a] <= rtt_[b];
    // Measurements age: the path that is not taken looks a little better each time, so that none is
    // avoided for ever. An unknown path counts as the best.
    std::uint32_t& refused = rtt_[first ? b : a];
    refused -= refused >> kForgetShift;
    return PathId{first ? a : b};
  }
  void on_feedback(TimePoint, PathId path, PathEvent event, Duration rtt) {
    std::uint32_t& smoothed = rtt_[path.value()];
    if (event == PathEvent::trimmed || event == PathEvent::gap || event == PathEvent::timeout) {
      smoothed = std::max(smoothed, loss_rtt_);
    } else if (rtt > Duration::zero()) {
      const std::uint32_t sample = clamp_to_u32(rtt);
      smoothed =
          smoothed == 0 ? sample : smoothed - (smoothed >> kSmoothShift) + (sample >> kSmoothShift);
    }
  }

 private:
  static constexpr int kSmoothShift = 3;
  static constexpr int kForgetShift = 7;

  std::unique_ptr<std::uint32_t[]> rtt_;  // smoothed, ns; 0: unknown
  PathRandom random_;
  std::uint32_t loss_rtt_;  // a path that loses counts as this slow
  std::uint16_t paths_;
};

}  // namespace weft::srd
