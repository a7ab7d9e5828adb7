// Owns the ring of REPS.
#include "srd/engine/paths/reps.hpp"

#include <algorithm>

namespace weft::srd {
namespace {

// A path loses kHaste times the share of its packets by which its round trip is too long: more than
// that share, because most acknowledgements speak for several packets, and only one is measured.
constexpr std::uint32_t kHaste = 2;
// A quarter of the usual queueing delay counts as too slow as well: where all paths are equally
// bad, some packets look for better ones, which a repair may have brought back.
constexpr std::uint32_t kCuriosity = 4;
constexpr std::int64_t kRttWeight = 16;

}  // namespace

void RepsPolicy::react(PathId path, PathEvent event, Duration rtt) {
  switch (event) {
    case PathEvent::good:
    case PathEvent::congested: {
      const bool measured = rtt > Duration::zero();
      const bool keep = measured ? !too_slow(clamp_to_u32(rtt)) : event == PathEvent::good;
      if (keep) {
        add(path.value());
      }
      return;
    }
    case PathEvent::timeout:
      return remove(path.value());  // beyond the paper: a path that just failed is not recycled
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
      fresh_ &= static_cast<std::uint8_t>(~(1U << slot));
    }
  }
}

}  // namespace weft::srd
