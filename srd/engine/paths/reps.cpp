// Owns the ring of REPS.
#include "srd/engine/paths/reps.hpp"

#include <algorithm>

namespace weft::srd {
namespace {

// With trimming a timeout is never congestion. Without, it is not if no packet before met a queue:
// if the largest RTT stayed below this multiple of the base RTT.
constexpr double kRttOfCongestion = 1.65;

// Packets that explore after a freeze; without trimming, a round trip's worth of them.
constexpr std::uint16_t kExploreAfterFreeze = 16;

}  // namespace

RepsPolicy::RepsPolicy(std::uint16_t paths, std::uint64_t seed, const PathTuning& tuning)
    : random_(seed),
      freeze_time_(clamp_to_u32(tuning.freeze_time)),
      congestion_rtt_(tuning.trimming
                          ? 0xFFFFFFFFU
                          : clamp_to_u32(Duration{static_cast<std::int64_t>(
                                kRttOfCongestion * static_cast<double>(tuning.base_rtt.count()))})),
      paths_(paths),
      explore_packets_(tuning.trimming ? kExploreAfterFreeze
                                       : std::max<std::uint16_t>(tuning.bdp_packets, 1)) {}

void RepsPolicy::react(TimePoint now, PathId path, PathEvent event, Duration rtt) {
  if (frozen() && now > frozen_until_) {
    thaw();
  }
  may_freeze_ = may_freeze_ && clamp_to_u32(rtt) < congestion_rtt_;
  switch (event) {
    case PathEvent::good:
      if (!frozen()) {
        add(path.value());
      }
      return;
    case PathEvent::timeout:
      remove(path.value());  // beyond the paper: a path that just failed is not recycled
      if (!frozen() && explore_left_ == 0 && may_freeze_ && freeze_time_ > 0) {
        frozen_until_ = now + Duration{freeze_time_};
      }
      return;
    case PathEvent::congested:
    case PathEvent::trimmed:
    case PathEvent::gap:
    case PathEvent::probe_ok:
      return;
  }
}

void RepsPolicy::remove(std::uint16_t path) {
  for (std::uint8_t slot = 0; slot < kRing; ++slot) {
    if (ring_[slot] == path) {
      valid_ &= static_cast<std::uint8_t>(~(1U << slot));
      fresh_ &= static_cast<std::uint8_t>(~(1U << slot));
    }
  }
}

void RepsPolicy::thaw() {
  frozen_until_ = TimePoint::min();
  valid_ = 0;
  fresh_ = 0;
  head_ = 0;
  explore_left_ = explore_packets_;
}

}  // namespace weft::srd
