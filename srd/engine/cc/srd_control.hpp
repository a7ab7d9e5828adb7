// Owns the default congestion control: delay and marks as most paths see them decide about the
// peer; a single bad path is left to the path selector.
#pragma once

#include <optional>

#include "srd/engine/cc/base_rtt.hpp"
#include "srd/engine/cc/cc_policy.hpp"
#include "srd/engine/cc/nscc.hpp"
#include "srd/engine/cc/path_filter.hpp"

namespace weft::srd {

// Began as NSCC, with these differences (docs/paths-and-congestion.md derives the constants):
// - a quantile over the recently heard paths decides, not one packet and a slow average;
// - every acknowledgement takes its share of a decrease, and delay without a mark changes nothing;
// - delay counts from the measured base RTT of this peer, while target and steps are the network's;
// - below one packet per round trip the window goes on shrinking, and packets are spaced out, as
//   are those that would leave in bursts;
// - losses count as voices of their paths, and a peer that turns out to have been paused is not
//   taken for congested;
// - marks without much delay bring windows back towards one bandwidth-delay product;
// - without marks (no ECN in the network) a share of losses, and delay, hold the window back.
class SrdControl {
 public:
  explicit SrdControl(const CcTuning& tuning);

  void on_ack(const AckSample& sample);
  void on_loss(TimePoint now, Bytes bytes, LossKind kind, std::optional<PathId> path);
  void on_distance(Duration rtt);
  [[nodiscard]] Bytes window() const;
  [[nodiscard]] Rate pacing_rate() const;
  [[nodiscard]] Duration base_rtt() const { return base_rtt_.get(); }

 private:
  [[nodiscard]] PathFilter::View view(TimePoint now) const;
  void note_delay(TimePoint now, Duration delay);
  void control(TimePoint now, double acked, const PathFilter::View& peer);
  [[nodiscard]] double believed_delay(double delay, bool marked) const;
  [[nodiscard]] double octaves_below_line() const;
  [[nodiscard]] double target() const;
  [[nodiscard]] double tolerated_loss() const;
  void decrease(double acked, double delay, double target);
  void increase_below_target(double delay, double target, double acked);
  void increase_by_time(TimePoint now);
  void give_back(TimePoint now);
  [[nodiscard]] double loss_floor() const;
  [[nodiscard]] bool quick_adapt(TimePoint now, bool loss, bool marked);
  [[nodiscard]] bool loses_too_much(Bytes bytes);
  void lose_in_short_queue(Bytes bytes);
  [[nodiscard]] bool stays_short(TimePoint now, double acked);
  [[nodiscard]] bool queue_is_short(TimePoint now) const;
  void lose_in_silence(TimePoint now);
  void end_silence(const AckSample& sample);
  void shrink_to(double window, double floor);

  NsccConstants constants_;
  BaseRtt base_rtt_;
  PathFilter filter_;
  double header_;
  double latest_delay_ = 0;                 // ns: the queue of the latest round trip
  double sent_from_;                        // the window a round before this one began
  double round_window_;                     // the window when it began ...
  double round_rtt_ = 0;                    // ... and the round trip, ns
  double round_lost_ = 0;                   // bytes since the share of losses was last looked at
  double starved_ = 0;                      // bytes lost beyond what came back for them
  double losses_missed_ = 0;                // expected in a short queue since the latest one
  double standing_delay_ = 0;               // ps: the least of the last round trip
  double tried_delay_ = 0;                  // ps: stays while the window shrinks ...
  double tried_window_ = 0;                 // ... from here
  Duration least_delay_ = Duration::max();  // of this round trip
  TimePoint round_began_{};
  TimePoint last_decrease_ = TimePoint::min();
  TimePoint no_distance_before_ = TimePoint::min();
  TimePoint no_restore_before_ = TimePoint::min();
  std::uint32_t standing_rounds_ = 0;
  std::optional<PathId> latest_lost_;  // the path of the latest loss ...
  int repeated_ = 0;                   // ... and how many more there were in a row along it

  // What every acknowledgement looks at, in two cache lines.
  WindowBounds bounds_;
  double mtu_;
  double window_;        // bytes; may be a part of a packet
  double smoothed_rtt_;  // ns; until one was measured what was told
  double empty_acked_ = 0;
  double achieved_ = 0;  // bytes acknowledged in this adaptation period
  double to_ignore_ = 0;
  double ignored_ = 0;
  double round_acked_ = 0;     // bytes since the share of losses was last looked at
  double before_silence_ = 0;  // the window when the peer fell silent; 0: it talks
  TimePoint period_end_ = TimePoint::min();
  TimePoint last_eta_ = TimePoint::min();
  TimePoint last_ack_ = TimePoint::min();
  bool credits_;
  bool congestion_is_reported_;  // queues trim what they lose, and receivers ration the last hop
  bool measured_ = false;        // a round trip
  bool short_queue_ = false;     // too short to be measured: losses alone tell
  bool fast_ = false;
  bool adapt_wanted_ = false;
  bool marks_seen_ = false;     // the network marks or trims
  bool latest_marked_ = false;  // by the latest acknowledgement
};

}  // namespace weft::srd
