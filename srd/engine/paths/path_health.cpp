// Owns the life of a path: abandoned, probed, taken back.
//
// A time-out says that a packet was lost, not why. One that stands alone lets the path be skipped
// for a moment; so many in a row (timeouts_to_abandon) let it be abandoned, and more of them where
// a queue was seen lately, because congestion hits all paths while failures come alone. An
// abandoned path carries probes only, at growing intervals; whatever arrives along it proves that
// it works. Right after any time-out the choice is cautious for a while: paths that have proved
// themselves since then are preferred.
#include "srd/engine/paths/path_health.hpp"

#include <algorithm>
#include <bit>

namespace weft::srd {
namespace {

// All in base RTTs.
constexpr int kFirstProbe = 4;        // a flap is often over sooner than a timeout takes
constexpr int kSkip = 4;              // also: further timeouts within it are the same trouble
constexpr int kCaution = 8;           // long enough to prove most paths
constexpr int kCongestionMemory = 8;  // a queue met so long ago may still explain a loss

// More timeouts in a row that it takes where congestion may be the cause ...
constexpr int kMoreWhenCongested = 2;
// ... once one path of so many is gone. Failures come alone, congestion hits all paths.
constexpr int kShareThatFails = 4;

constexpr int kMaxDoublings = 10;
constexpr int kProbesOfTheSilent = 4;  // in the time of an answer

}  // namespace

PathHealth::PathHealth(std::uint16_t paths, const PathHealthTuning& tuning)
    : base_rtt_(std::max(clamp_to_u32(tuning.base_rtt), 1U)),
      probe_interval_(std::max(clamp_to_u32(tuning.probe_interval), 1U)),
      paths_(paths),
      timeouts_to_abandon_(tuning.timeouts_to_abandon) {}

PathState PathHealth::state(TimePoint now, PathId path) const {
  if (!entries_ || path.value() >= paths_) {
    return PathState::good;
  }
  const Entry& entry = entries_[path.value()];
  const bool over = entry.state == PathState::skip && now >= entry.since;
  return over ? PathState::good : entry.state;
}

bool PathHealth::congestion_possible(TimePoint now) const {
  return last_queue_ != TimePoint::min() &&
         now - last_queue_ < kCongestionMemory * Duration{std::max(base_rtt_, smallest_rtt_)};
}

PathChange PathHealth::on_suspect(TimePoint now, PathId path, PathEvent event, Duration rtt) {
  note_congestion(now, event, rtt);
  if (path.value() >= paths_) {
    return PathChange::none;
  }
  switch (event) {
    case PathEvent::timeout:
      if (!entries_) {
        entries_ = std::make_unique<Entry[]>(paths_);
      }
      if (!cautious(now)) {
        cautious_until_ = now + kCaution * Duration{base_rtt_};
        proven_.fill(0);
      }
      prove(path, false);
      if (witness_ == path) {
        witness_.reset();
      }
      return on_timeout(now, entries_[path.value()]);
    case PathEvent::good:
    case PathEvent::congested:
      prove(path, true);
      [[fallthrough]];
    case PathEvent::probe_ok:  // a probe is small: it proves little
      witness_ = path;
      [[fallthrough]];
    case PathEvent::trimmed:  // the header came through
      if (entries_) {
        return recover(entries_[path.value()]);
      }
      return PathChange::none;
    case PathEvent::gap:
      return PathChange::none;
  }
  return PathChange::none;
}

void PathHealth::prove(PathId path, bool works) {
  std::uint64_t& word = proven_[path.value() / 64];
  const std::uint64_t bit = std::uint64_t{1} << (path.value() % 64);
  word = works ? word | bit : word & ~bit;
}

PathId PathHealth::find_proven(PathId path) const {
  const std::size_t start = path.value() / 64U;
  std::uint64_t word = proven_[start] & (~std::uint64_t{0} << (path.value() % 64));
  for (std::size_t step = 0; step <= proven_.size(); ++step) {
    const std::size_t at = (start + step) % proven_.size();
    if (step != 0) {
      word = proven_[at];
    }
    if (word != 0) {
      return PathId{
          static_cast<std::uint16_t>(at * 64 + static_cast<unsigned>(std::countr_zero(word)))};
    }
  }
  return path;
}

PathChange PathHealth::on_timeout(TimePoint now, Entry& entry) {
  if (entry.state == PathState::assumed_bad ||
      (entry.state == PathState::skip && now < entry.since)) {
    return PathChange::none;
  }
  if (entry.timeouts == 0) {
    ++suspects_;
  }
  entry.timeouts = static_cast<std::uint8_t>(std::min(entry.timeouts + 1, 255));
  int needed = timeouts_to_abandon_;
  if (kShareThatFails * bad_ >= paths_ && congestion_possible(now)) {
    needed += kMoreWhenCongested;
  }
  if (entry.timeouts < needed) {
    entry.state = PathState::skip;
    entry.since = now + kSkip * Duration{base_rtt_};
    return PathChange::none;
  }
  ++bad_;
  entry.state = PathState::assumed_bad;
  entry.since = now;
  entry.probes = 0;
  entry.probe = now + std::min(kFirstProbe * Duration{base_rtt_}, Duration{probe_interval_});
  next_probe_ = std::min(next_probe_, entry.probe);
  return PathChange::abandoned;
}

PathChange PathHealth::recover(Entry& entry) {
  if (entry.timeouts == 0) {
    return PathChange::none;
  }
  const bool was_bad = entry.state == PathState::assumed_bad;
  entry = Entry{};
  --suspects_;
  if (!was_bad) {
    return PathChange::none;
  }
  --bad_;
  find_next_probe();
  return PathChange::recovered;
}

// For when no path is known to be good: the next usable one, or else the one that was left alone
// longest.
PathId PathHealth::find_usable(TimePoint now, PathId first) {
  std::uint16_t longest = first.value();
  for (std::uint16_t i = 0; i < paths_; ++i) {
    const auto path = static_cast<std::uint16_t>((first.value() + i) % paths_);
    if (usable(now, PathId{path})) {
      return PathId{path};
    }
    if (entries_[path].since < entries_[longest].since) {
      longest = path;
    }
  }
  Entry& entry = entries_[longest];
  entry.since = std::max(now, entry.since);  // the packet that takes it now is an attempt
  return PathId{longest};
}

// The path to be probed now, if any. Peers that do not answer at all (`silent`) have all paths
// abandoned, and would otherwise be probed along each of them.
std::optional<PathId> PathHealth::take_probe(TimePoint now, Duration answer_time, bool silent) {
  if (now < next_probe_) {
    return std::nullopt;
  }
  std::uint16_t first = paths_;  // the one that has waited longest
  for (std::uint16_t path = 0; path < paths_; ++path) {
    const Entry& entry = entries_[path];
    if (entry.state == PathState::assumed_bad && entry.probe <= now &&
        (first == paths_ || entry.probe < entries_[first].probe)) {
      first = path;
    }
  }
  if (first == paths_) {
    return std::nullopt;
  }
  Entry& entry = entries_[first];
  entry.probes = static_cast<std::uint8_t>(std::min(entry.probes + 1, kMaxDoublings));
  const Duration distance =
      std::min((kFirstProbe << entry.probes) * Duration{base_rtt_}, Duration{probe_interval_});
  entry.probe = now + std::max(answer_time, distance);
  find_next_probe();
  if (silent) {
    next_probe_ = std::max(next_probe_, now + answer_time / kProbesOfTheSilent);
  }
  return PathId{first};
}

void PathHealth::find_next_probe() {
  next_probe_ = kNever;
  if (bad_ == 0) {
    return;
  }
  for (std::uint16_t path = 0; path < paths_; ++path) {
    if (entries_[path].state == PathState::assumed_bad) {
      next_probe_ = std::min(next_probe_, entries_[path].probe);
    }
  }
}

}  // namespace weft::srd
