// Owns which paths to one peer are believed to work: a path that times out is abandoned, probed,
// and taken back when it answers.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>

#include "srd/engine/paths/path_policy.hpp"

namespace weft::srd {

struct PathHealthTuning {
  Duration base_rtt = std::chrono::microseconds{14};
  std::uint8_t timeouts_to_abandon = 1;  // in a row on one path; 0: never
  Duration probe_interval =
      std::chrono::milliseconds{10};  // longest; the first probe leaves much earlier
};

enum class PathState : std::uint8_t {
  good,
  skip,         // timed out, but not often enough: left alone for a moment
  assumed_bad,  // not used for data, probed
};

// What became of a path.
enum class PathChange : std::uint8_t { none, abandoned, recovered };

// Costs a healthy peer nothing but one test per packet: the table is made at the first timeout.
class PathHealth {
 public:
  PathHealth() = default;
  PathHealth(std::uint16_t paths, const PathHealthTuning& tuning);

  [[nodiscard]] bool all_good() const { return suspects_ == 0; }
  [[nodiscard]] PathState state(TimePoint now, PathId path) const;
  [[nodiscard]] bool usable(TimePoint now, PathId path) const {
    return all_good() || state(now, path) == PathState::good;
  }
  [[nodiscard]] std::uint16_t bad_paths() const { return bad_; }

  // Whatever proves delivery takes a path back.
  PathChange on_feedback(TimePoint now, PathId path, PathEvent event, Duration rtt) {
    if (all_good() && (event != PathEvent::timeout || timeouts_to_abandon_ == 0)) [[likely]] {
      note_congestion(now, event, rtt);
      return PathChange::none;
    }
    return on_suspect(now, path, event, rtt);
  }

  // A usable path if there is one: at `first`, or the next one after it. Otherwise the path that
  // has been bad longest, each time another one.
  [[nodiscard]] PathId find_usable(TimePoint now, PathId first);

  // For some round trips after the first timeout of a failure only paths are used that have proven
  // themselves since: behind a broken link there may be many more bad ones than are known yet.
  [[nodiscard]] bool cautious(TimePoint now) const { return now < cautious_until_; }
  [[nodiscard]] bool proven(PathId path) const {
    return (proven_[path.value() / 64] >> (path.value() % 64) & 1) != 0;
  }
  // The first proven path at or after `path`, or `path` if there is none.
  [[nodiscard]] PathId find_proven(PathId path) const;

  // The path that brought something last while one was suspected, unless it has failed after that.
  // In a failure there is no surer one; when the next one begins, it is still the last one's.
  [[nodiscard]] std::optional<PathId> witness() const { return witness_; }

  // When the next probe is due.
  [[nodiscard]] TimePoint next_probe() const { return next_probe_; }
  // A path to probe now. Probes of one path leave at growing distance, and never before the last
  // one had `answer_time`. While the peer is silent it is hardly the paths' fault: a few at a time.
  [[nodiscard]] std::optional<PathId> take_probe(TimePoint now, Duration answer_time, bool silent);

 private:
  struct Entry {
    TimePoint since;  // of being bad, or of the last attempt at it; skip: until when
    TimePoint probe;  // assumed_bad: when the next one is due
    PathState state = PathState::good;
    std::uint8_t timeouts = 0;  // in a row
    std::uint8_t probes = 0;    // sent since it is bad
  };

  // A packet that took so many times the smallest RTT has met a queue.
  static constexpr double kRttOfCongestion = 1.65;
  void prove(PathId path, bool works);
  void note_congestion(TimePoint now, PathEvent event, Duration rtt) {
    const std::uint32_t measured = clamp_to_u32(rtt);
    if (measured > 0) {
      smallest_rtt_ = smallest_rtt_ == 0 ? measured : std::min(smallest_rtt_, measured);
      if (static_cast<double>(measured) >= kRttOfCongestion * smallest_rtt_) {
        last_queue_ = now;
      }
    }
    if (event == PathEvent::congested || event == PathEvent::trimmed) {
      last_queue_ = now;
    }
  }
  [[nodiscard]] bool congestion_possible(TimePoint now) const;
  PathChange on_suspect(TimePoint now, PathId path, PathEvent event, Duration rtt);
  PathChange on_timeout(TimePoint now, Entry& entry);
  PathChange recover(Entry& entry);
  void find_next_probe();

  // What packets and acknowledgements of a healthy peer look at comes first.
  TimePoint next_probe_ = kNever;
  std::uint32_t smallest_rtt_ = 0;  // 0: none yet
  std::uint16_t suspects_ = 0;      // entries that are not as new
  std::uint16_t bad_ = 0;
  TimePoint last_queue_ = TimePoint::min();  // when a packet last met one
  std::unique_ptr<Entry[]> entries_;
  TimePoint cautious_until_ = TimePoint::min();
  std::uint32_t base_rtt_ = 1;
  std::uint32_t probe_interval_ = 1;
  std::uint16_t paths_ = 1;
  std::uint8_t timeouts_to_abandon_ = 1;
  std::array<std::uint64_t, 4> proven_{};  // since caution began
  std::optional<PathId> witness_;
};

}  // namespace weft::srd
