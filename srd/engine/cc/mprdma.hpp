// Owns the window of MP-RDMA: acknowledgement-clocked, one packet more per round trip, less for
// each mark.
#pragma once

#include "srd/engine/cc/cc_policy.hpp"

namespace weft::srd {

class MpRdma {
 public:
  explicit MpRdma(const CcTuning& tuning) : bounds_(tuning), window_(bounds_.initial) {}

  void on_ack(const AckSample& sample) {
    const double acked = static_cast<double>(sample.acked);
    const double change = sample.congested ? -acked / 4 : acked * bounds_.min / window_;
    window_ = bounds_.clamp(window_ + change);
  }
  void on_loss(TimePoint, Bytes bytes, LossKind, std::optional<PathId>) {
    window_ = bounds_.clamp(window_ - static_cast<double>(bytes));
  }
  [[nodiscard]] Bytes window() const { return static_cast<Bytes>(window_); }
  [[nodiscard]] Rate pacing_rate() const { return {}; }

 private:
  WindowBounds bounds_;  // min is one packet
  double window_;
};

}  // namespace weft::srd
