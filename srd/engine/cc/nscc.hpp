// Owns NSCC, the sender-based congestion control of Ultra Ethernet: ECN and delay, each yes or no,
// make four cases, and a quick adaptation to what was delivered when things are very wrong.
#pragma once

#include "srd/engine/cc/cc_policy.hpp"

namespace weft::srd {

// The constants that follow from the network. Scaled from a reference network of 100 Gb/s and 12
// us.
struct NsccConstants {
  // Times in picoseconds, sizes in bytes on the wire, the target in base RTTs.
  NsccConstants(Rate line_rate, double base_rtt, double mtu, double header, double target_rtts);

  double bdp;
  double base_rtt;
  double target;           // queueing delay aimed at
  double alpha;            // proportional increase: bytes per picosecond below the target
  double fair_increase;    // bytes per window
  double eta;              // bytes per base RTT, always
  double fast_scale;       // share of acknowledged bytes added while the network is empty
  double adapt_threshold;  // a delay beyond it means that things are very wrong
  double adjust_bytes;  // increases are applied when so much is acknowledged, or a base RTT is over
  double scale_a;       // BDP over the reference network's BDP
  double scale_b;       // target over the reference network's RTT

  // A round trip with the queue at the target.
  [[nodiscard]] double round() const { return base_rtt + target; }
};

class Nscc {
 public:
  explicit Nscc(const CcTuning& tuning);

  void on_ack(const AckSample& sample);
  void on_loss(TimePoint now, Bytes bytes, LossKind kind, std::optional<PathId> path);
  [[nodiscard]] Bytes window() const { return static_cast<Bytes>(window_); }
  [[nodiscard]] Rate pacing_rate() const { return {}; }
  [[nodiscard]] const NsccConstants& constants() const { return constants_; }

 private:
  void average_delay(double delay, bool congested);
  // True if this event must not change the window any further.
  [[nodiscard]] bool quick_adapt(TimePoint now, bool loss, bool congested, double delay,
                                 Bytes in_flight);
  void increase_below_target(double delay, double acked);
  void decrease(TimePoint now);
  void apply_increase(TimePoint now);

  NsccConstants constants_;
  WindowBounds bounds_;
  Duration base_rtt_;
  Duration
      smallest_rtt_;  // delay is counted from it: a near peer has less than the network's base RTT
  double window_;
  double pending_increase_ = 0;  // bytes times bytes: divided by the window when applied
  double unapplied_acked_ = 0;
  double average_delay_ = 0;  // picoseconds
  double empty_acked_ = 0;    // bytes acknowledged in a row without any queueing
  double achieved_ = 0;       // bytes acknowledged in this adaptation period
  double to_ignore_ = 0;      // bytes in flight at the last adaptation: their marks are old news
  double ignored_ = 0;
  TimePoint period_end_ = TimePoint::min();  // min: no period yet
  TimePoint last_decrease_ = TimePoint::min();
  TimePoint last_apply_ = TimePoint::min();
  bool fast_ = false;
  bool adapt_wanted_ = false;  // something was lost since the last adaptation
};

}  // namespace weft::srd
