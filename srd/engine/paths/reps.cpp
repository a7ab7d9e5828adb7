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

// A path loses kHaste times the share of its packets by which its round trip is too long: more than
// that share, because most acknowledgements speak for several packets, and only one is measured.
constexpr std::uint32_t kHaste = 2;
// A quarter of the usual queueing delay counts as too slow as well: where all paths are equally
// bad, some packets look for better ones, which a repair may have brought back.
constexpr std::uint32_t kCuriosity = 4;
constexpr std::int64_t kRttWeight = 16;

}  // namespace

RepsPolicy::RepsPolicy(std::uint16_t paths, std::uint64_t seed, const PathTuning& tuning)
    : random_(seed),
      round_(paths, mix64(seed)),
      freeze_time_(clamp_to_u32(tuning.freeze_time)),
      congestion_rtt_(tuning.trimming
                          ? 0xFFFFFFFFU
                          : clamp_to_u32(Duration{static_cast<std::int64_t>(
                                kRttOfCongestion * static_cast<double>(tuning.base_rtt.count()))})),
      explore_packets_(tuning.trimming ? kExploreAfterFreeze
                                       : std::max<std::uint16_t>(tuning.bdp_packets, 1)) {}

void RepsPolicy::react(TimePoint now, PathId path, PathEvent event, Duration rtt) {
  if (frozen() && now > frozen_until_) {
    thaw();
  }
  may_freeze_ = may_freeze_ && clamp_to_u32(rtt) < congestion_rtt_;
  switch (event) {
    case PathEvent::good:
    case PathEvent::congested: {
      const bool measured = rtt > Duration::zero();
      const bool keep = measured ? !too_slow(clamp_to_u32(rtt)) : event == PathEvent::good;
      if (keep && !frozen()) {
        add(path.value());
      }
      return;
    }
    case PathEvent::timeout:
      remove(path.value());  // beyond the paper: a path that just failed is not recycled
      if (!frozen() && explore_left_ == 0 && may_freeze_ && freeze_time_ > 0) {
        frozen_until_ = now + Duration{freeze_time_};
      }
      return;
    case PathEvent::trimmed:
    case PathEvent::gap:
    case PathEvent::probe_ok:
      return;
  }
}

bool RepsPolicy::too_slow(std::uint32_t rtt) {
  if (usual_rtt_ == 0) {
    usual_rtt_ = least_rtt_ = rtt;
    return false;
  }
  least_rtt_ = std::min(least_rtt_, rtt);
  const std::uint32_t wanted = usual_rtt_ - (usual_rtt_ - least_rtt_) / kCuriosity;
  const auto error = static_cast<std::int64_t>(rtt) - usual_rtt_;
  usual_rtt_ = static_cast<std::uint32_t>(usual_rtt_ + error / kRttWeight);
  return rtt > wanted && random_.chance(std::min(kHaste * (rtt - wanted), rtt), rtt);
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
