// Owns protective load balancing: one path at a time, exchanged when it stays congested or goes
// silent.
#pragma once

#include <cstdint>

#include "srd/engine/paths/path_policy.hpp"

namespace weft::srd {

// Acknowledgements are counted in rounds of one base RTT. A round with at least half of them marked
// is congested; after three such rounds in a row, or a timeout, another path is drawn.
class PlbPolicy {
 public:
  PlbPolicy(std::uint16_t paths, std::uint64_t seed, const PathTuning& tuning)
      : random_(seed),
        round_time_(clamp_to_u32(tuning.base_rtt)),
        paths_(paths),
        path_(random_.below(paths)) {}

  [[nodiscard]] PathId pick(TimePoint) const { return PathId{path_}; }
  void on_feedback(TimePoint now, PathId path, PathEvent event, Duration) {
    if (path.value() != path_) {
      return;  // of a path that was left
    }
    if (event == PathEvent::timeout) {
      move();
      return;
    }
    if (now >= round_end_) {
      end_round(now);
    }
    ++seen_;
    marked_ += event == PathEvent::good || event == PathEvent::probe_ok ? 0U : 1U;
  }

 private:
  static constexpr std::uint8_t kRoundsToMove = 3;

  void end_round(TimePoint now) {
    if (seen_ > 0) {
      congested_rounds_ =
          2 * marked_ >= seen_ ? static_cast<std::uint8_t>(congested_rounds_ + 1) : std::uint8_t{0};
    }
    if (congested_rounds_ >= kRoundsToMove) {
      move();
    }
    seen_ = 0;
    marked_ = 0;
    round_end_ = now + Duration{round_time_};
  }
  void move() {
    congested_rounds_ = 0;
    if (paths_ > 1) {  // any other one
      const auto step =
          static_cast<std::uint16_t>(1 + random_.below(static_cast<std::uint16_t>(paths_ - 1)));
      path_ = static_cast<std::uint16_t>((path_ + step) % paths_);
    }
  }

  TimePoint round_end_ = TimePoint::min();
  PathRandom random_;
  std::uint32_t round_time_;
  std::uint32_t seen_ = 0;
  std::uint32_t marked_ = 0;
  std::uint16_t paths_;
  std::uint16_t path_;
  std::uint8_t congested_rounds_ = 0;
};

}  // namespace weft::srd
