// Owns DCTCP: the window shrinks in proportion to the share of marked bytes, once per round trip.
#pragma once

#include "srd/engine/cc/cc_policy.hpp"

namespace weft::srd {

class Dctcp {
 public:
  explicit Dctcp(const CcTuning& tuning)
      : bounds_(tuning), round_time_(tuning.base_rtt), window_(bounds_.initial) {}

  void on_ack(const AckSample& sample);
  void on_loss(TimePoint now, Bytes bytes, LossKind kind, std::optional<PathId> path);
  [[nodiscard]] Bytes window() const { return static_cast<Bytes>(window_); }
  [[nodiscard]] Rate pacing_rate() const { return {}; }

 private:
  WindowBounds bounds_;
  Duration round_time_;  // the latest round-trip time
  double window_;
  double marked_share_ = 1;  // smoothed; careful at first
  double acked_ = 0;         // bytes of this round
  double marked_ = 0;
  TimePoint round_end_ = TimePoint::min();
  TimePoint no_cut_before_ = TimePoint::min();
};

}  // namespace weft::srd
