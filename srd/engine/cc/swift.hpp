// Owns Swift: the delay of the whole path against a target that is larger for smaller windows.
#pragma once

#include <cstdint>

#include "srd/engine/cc/cc_policy.hpp"

namespace weft::srd {

class Swift {
 public:
  explicit Swift(const CcTuning& tuning);

  void on_ack(const AckSample& sample);
  void on_loss(TimePoint now, Bytes bytes, LossKind kind, std::optional<PathId> path);
  [[nodiscard]] Bytes window() const { return static_cast<Bytes>(window_ > mtu_ ? window_ : mtu_); }
  // Below one packet per round trip the window cannot go, so packets are spaced out instead.
  [[nodiscard]] Rate pacing_rate() const;

  // The delay aimed at with the present window, in nanoseconds.
  [[nodiscard]] double target() const;

 private:
  // False if the last decrease is less than a round trip ago.
  bool decrease(TimePoint now, double factor);

  WindowBounds bounds_;
  double mtu_;
  double base_target_;  // ns
  double flow_range_;   // ns: what the smallest window may add to the target
  double window_;       // bytes; down to a small part of a packet
  double rtt_;          // ns, the latest
  TimePoint last_decrease_ = TimePoint::min();
  std::uint8_t losses_in_a_row_ = 0;  // timeouts without an acknowledgement between them
};

}  // namespace weft::srd
