// Owns REPS: recycle the paths of clean acknowledgements, and stop exploring while something is
// broken.
#pragma once

#include <array>
#include <cstdint>

#include "srd/engine/paths/path_policy.hpp"

namespace weft::srd {

// Each unmarked acknowledgement puts its path into a ring of eight; each packet takes the oldest
// path there that was not yet used again, or a random one. A timeout freezes: only paths of the
// ring are used, in turn, and nothing is added, until the freeze time is over; then the ring is
// forgotten and a number of packets explore at random. A path that fails while it lies in the ring
// is removed from it.
class RepsPolicy {
 public:
  static constexpr std::uint8_t kRing = 8;

  RepsPolicy(std::uint16_t paths, std::uint64_t seed, const PathTuning& tuning);

  [[nodiscard]] PathId pick(TimePoint now);
  void on_feedback(TimePoint now, PathId path, PathEvent event, Duration rtt);
  [[nodiscard]] bool frozen() const { return frozen_until_ != TimePoint::min(); }

 private:
  void add(std::uint16_t path);
  void remove(std::uint16_t path);
  void thaw();

  std::array<std::uint16_t, kRing> ring_{};
  TimePoint frozen_until_ = TimePoint::min();
  PathRandom random_;
  std::uint32_t freeze_time_;
  std::uint32_t congestion_rtt_;  // a packet that took so long has met a queue
  std::uint16_t paths_;
  std::uint16_t explore_packets_;
  std::uint16_t explore_left_ = 0;
  std::uint8_t valid_ = 0;  // bit i: ring_[i] holds a path
  std::uint8_t fresh_ = 0;  // bit i: ring_[i] was not used again yet
  std::uint8_t head_ = 0;   // where the next path is added: the oldest entry
  bool may_freeze_ = true;  // no packet has met a queue, so that a timeout is no congestion
};
static_assert(sizeof(RepsPolicy) <= 32 + RepsPolicy::kRing * sizeof(std::uint16_t));

}  // namespace weft::srd
