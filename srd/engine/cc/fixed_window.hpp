// Owns the control that does nothing: a constant window, for ideal networks and as a baseline.
#pragma once

#include "srd/engine/cc/cc_policy.hpp"

namespace weft::srd {

class FixedWindow {
 public:
  explicit FixedWindow(const CcTuning& tuning) : window_(WindowBounds(tuning).initial_bytes()) {}

  void on_ack(const AckSample&) {}
  void on_loss(TimePoint, Bytes, LossKind, std::optional<PathId>) {}
  [[nodiscard]] Bytes window() const { return window_; }
  [[nodiscard]] Rate pacing_rate() const { return {}; }

 private:
  Bytes window_;
};

}  // namespace weft::srd
