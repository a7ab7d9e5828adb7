// Owns the paths to one peer: the policy that prefers some, and the health that forbids others.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "srd/engine/paths/path_health.hpp"
#include "srd/engine/paths/path_selector.hpp"

namespace weft::srd {

class PeerPaths {
 public:
  PeerPaths() = default;
  // A run has so many bytes at the most, but a packet at least.
  PeerPaths(PathSelector selector, const PathHealthTuning& tuning, std::uint32_t run = 0)
      : selector_(std::move(selector)), run_(run), health_(selector_.paths(), tuning) {}

  // The path for the next packet. Never one that is assumed bad while another one is good.
  [[nodiscard]] [[gnu::hot]] PathId pick(TimePoint now) {
    const PathId path = selector_.pick(now);
    return health_.all_good() ? path : avoid_bad(now, path);
  }
  // For new data of so many bytes: as pick(), but what leaves at the same time keeps to one path
  // for a run.
  [[nodiscard]] PathId pick_in_run(TimePoint now, std::uint32_t bytes) {
    if (run_ == 0) [[likely]] {
      return pick(now);
    }
    if (run_left_ < bytes || run_began_ != now || !health_.usable(now, run_path_)) {
      run_left_ = std::max(run_, bytes);
      run_began_ = now;
      run_path_ = pick(now);
    }
    run_left_ -= bytes;
    return run_path_;
  }
  // For a retransmission: as pick(), but another path than the one that lost it, if there is one.
  // `surest`: one that is known to work, rather than one that may help to find out.
  [[nodiscard]] PathId pick_other_than(TimePoint now, PathId lost_on, bool surest = false);

  // `path` if it is good, otherwise one that is.
  [[nodiscard]] PathId usable_near(TimePoint now, PathId path) {
    return health_.usable(now, path) ? path : health_.find_usable(now, path);
  }

  // A packet has arrived of which the policy is not to hear.
  PathChange on_delivery(TimePoint now, PathId path, PathEvent event) {
    return health_.on_feedback(now, path, event, Duration::zero());
  }
  [[gnu::hot]] PathChange on_feedback(TimePoint now, PathId path, PathEvent event, Duration rtt) {
    selector_.on_feedback(now, path, event, rtt);
    return health_.on_feedback(now, path, event, rtt);
  }

  [[nodiscard]] TimePoint next_probe() const { return health_.next_probe(); }
  [[nodiscard]] std::optional<PathId> take_probe(TimePoint now, Duration answer_time, bool silent) {
    return health_.take_probe(now, answer_time, silent);
  }

  [[nodiscard]] std::uint16_t paths() const { return selector_.paths(); }
  [[nodiscard]] const PathHealth& health() const { return health_; }

 private:
  [[nodiscard]] PathId avoid_bad(TimePoint now, PathId path);

  PathSelector selector_;
  std::uint32_t run_ = 0;
  std::uint32_t run_left_ = 0;
  TimePoint run_began_ = TimePoint::min();
  PathId run_path_;
  PathHealth health_;
};

}  // namespace weft::srd
