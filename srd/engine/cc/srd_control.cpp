// Owns the arithmetic of the default congestion control.
#include "srd/engine/cc/srd_control.hpp"

#include <algorithm>
#include <cmath>

namespace weft::srd {
namespace {

// Of NSCC's two targets the lower one, 0.75 base RTT, with and without trimming: the queue of many
// senders settles above the target, by what they add in a round trip.
constexpr bool kTargetOfTrimming = true;
constexpr double kGamma = 0.8;          // strength of the decrease
constexpr double kGiveBack = 0.15;      // of what exceeds one bandwidth-delay product, a round trip
constexpr double kSmallestStep = 0.5;   // one decrease at most halves
constexpr double kAdaptGate = 8;        // adapt only below this fraction of the maximum window
constexpr double kNoQueue = 1'000'000;  // picoseconds of delay that count as an empty network
constexpr double kLeastRttWeight = 1.0 / 8;
constexpr double kMostRttGrowth = 4;  // of one sample over the average
constexpr double kMostEtas = 4;       // constant increases made up for after a pause
constexpr double kPaceBelow = 2;      // packets: more precise than whole packets in flight

// In packets. What is lost together says little about the fair share, so it does not lead to the
// floor.
constexpr double kFloor = 1.0 / 64;
constexpr double kLossFloor = 0.5;
constexpr double kLossFloorWithCredits = 8;
constexpr double kSilenceFloor = 4;

constexpr std::uint32_t kStandingRounds = 2;  // without marks: before a queue is believed in
constexpr double kTried = 1.0 / 8;
constexpr double kSameDelay = 1.0 / 16;
constexpr double kTolerableLoss = 1.0 / 32;  // without marks: of the bytes of a round
constexpr double kSilence = 2;               // round trips without an acknowledgement
constexpr Duration kLossMemory = std::chrono::milliseconds{100};  // a period of BaseRtt
constexpr Duration kRestoreInterval = std::chrono::milliseconds{100};

double picoseconds(Duration d) { return static_cast<double>(d.count()) * 1000; }
Duration from_picoseconds(double ps) { return Duration{static_cast<std::int64_t>(ps / 1000)}; }
std::uint32_t clock32(TimePoint now) { return static_cast<std::uint32_t>(nanoseconds(now)); }

}  // namespace

SrdControl::SrdControl(const CcTuning& tuning)
    : constants_(tuning.line_rate, picoseconds(std::max(tuning.base_rtt, Duration{1})),
                 static_cast<double>(tuning.mtu_wire), static_cast<double>(tuning.header),
                 kTargetOfTrimming),
      bounds_(tuning),
      base_rtt_(tuning.base_rtt),
      mtu_(bounds_.min),
      window_(bounds_.initial),
      smoothed_rtt_(static_cast<double>(base_rtt_.get().count())),
      credits_(tuning.credits) {
  bounds_.min = kFloor * mtu_;
}

Rate SrdControl::pacing_rate() const {
  if (window_ >= kPaceBelow * mtu_) {
    return {};
  }
  const double bits_per_second = window_ * 8e9 / smoothed_rtt_;
  return Rate::bits_per_second(static_cast<std::uint64_t>(std::max(bits_per_second, 1.0)));
}

PathFilter::View SrdControl::view(TimePoint now) const {
  return filter_.view(clock32(now), static_cast<std::uint32_t>(std::min(smoothed_rtt_, 4e9)));
}

void SrdControl::on_ack(const AckSample& sample) {
  const double acked = static_cast<double>(sample.acked);
  achieved_ += acked;
  ignored_ += acked;
  unapplied_acked_ += acked;
  round_acked_ += acked;
  marks_seen_ = marks_seen_ || sample.congested;
  end_silence(sample.now, sample.congested);
  if (sample.rtt_valid && sample.rtt > Duration::zero()) {
    base_rtt_.add(sample.now, sample.rtt, sample.congested);
    const Duration delay =
        std::clamp(sample.rtt - base_rtt_.get(), Duration{0}, Duration{4'000'000'000});
    note_delay(sample.now, delay);
    // A scheduler's pause is not the network's new length. What is alone in flight tells of a whole
    // round trip: an average over many of them would pace by a queue that is long gone.
    const double rtt =
        std::min(static_cast<double>(sample.rtt.count()), kMostRttGrowth * smoothed_rtt_);
    smoothed_rtt_ += std::clamp(mtu_ / window_, kLeastRttWeight, 1.0) * (rtt - smoothed_rtt_);
    filter_.add(sample.path, static_cast<std::uint32_t>(delay.count()), sample.congested,
                clock32(sample.now));
  }
  const PathFilter::View peer = view(sample.now);
  if (!quick_adapt(sample.now, false, peer.marked)) {
    control(sample.now, acked, peer);
  }
}

void SrdControl::control(TimePoint now, double acked, const PathFilter::View& peer) {
  const double delay = static_cast<double>(peer.delay) * 1000;
  if (delay >= constants_.target) {
    fast_ = false;
    empty_acked_ = 0;
    if (peer.marked) {
      decrease(now, delay);
    } else if (!marks_seen_ && standing_rounds_ >= kStandingRounds) {
      decrease(now, standing_delay_);
    } else if (marks_seen_) {
      pending_increase_ += constants_.fair_increase * acked;
    }
  } else if (!peer.marked) {
    increase_below_target(delay, acked);
  } else {
    give_back(now);
  }
  apply_increase(now);
  window_ = bounds_.clamp(window_);
}

// A queue stands if it never empties: not in a whole round trip, and not in the next one. But a
// delay that stays the same while the window goes down to an eighth is no queue: the peer is
// farther than was told.
void SrdControl::note_delay(TimePoint now, Duration delay) {
  least_delay_ = std::min(least_delay_, delay);
  if (now < round_end_) {
    return;
  }
  standing_delay_ = picoseconds(least_delay_);
  standing_rounds_ = standing_delay_ > constants_.target ? standing_rounds_ + 1 : 0;
  if (standing_rounds_ == 0 || marks_seen_ || now < no_distance_before_ ||
      std::abs(standing_delay_ - tried_delay_) > kSameDelay * tried_delay_) {
    tried_delay_ = standing_delay_;
    tried_window_ = window_;
  } else if (window_ <= kTried * tried_window_) {
    base_rtt_.accept(base_rtt_.get() + least_delay_);
    window_ = bounds_.clamp(tried_window_);
    standing_rounds_ = 0;
  }
  least_delay_ = Duration::max();
  round_end_ = now + from_picoseconds(smoothed_rtt_ * 1000);
}

// Most paths have a queue, but a short one. What a window holds beyond one bandwidth-delay product
// is nothing but queue: all senders give some of it back, and so come to equal windows.
void SrdControl::give_back(TimePoint now) {
  const double excess = window_ - constants_.bdp;
  const Duration once_per = from_picoseconds(smoothed_rtt_ * 1000);
  if (excess > 0 && (last_decrease_ == TimePoint::min() || now - last_decrease_ >= once_per)) {
    window_ -= kGiveBack * excess;
    last_decrease_ = now;
  }
}

void SrdControl::increase_below_target(double delay, double acked) {
  if (delay < kNoQueue) {
    empty_acked_ += acked;
    if (fast_ || empty_acked_ > window_) {
      fast_ = true;
      window_ += acked * constants_.fast_scale;
      return;
    }
  } else {
    empty_acked_ = 0;
  }
  fast_ = false;
  // Divided by the window when applied. Never faster than in an empty network: one acknowledgement
  // would turn a part of a packet into four packets, and those of 64 senders would collide.
  pending_increase_ += acked * std::min(constants_.alpha * (constants_.target - delay),
                                        constants_.fast_scale * std::max(window_, mtu_));
}

void SrdControl::apply_increase(TimePoint now) {
  const double round = std::max(constants_.base_rtt, smoothed_rtt_ * 1000);
  const double since = last_eta_ == TimePoint::min() ? round + 1 : picoseconds(now - last_eta_);
  const bool round_over = since > round;
  if (!round_over && unapplied_acked_ <= constants_.adjust_bytes) {
    return;
  }
  window_ += pending_increase_ / std::max(window_, mtu_);
  // By time, because small windows see few acknowledgements; by round trips, as decreases are, or a
  // long queue would be fed faster than it can be drained.
  if (round_over) {
    window_ += constants_.eta * std::min(since / round, kMostEtas);
    last_eta_ = now;
  }
  pending_increase_ = 0;
  unapplied_acked_ = 0;
}

void SrdControl::decrease(TimePoint now, double delay) {
  const Duration once_per = from_picoseconds(smoothed_rtt_ * 1000);
  if (last_decrease_ != TimePoint::min() && now - last_decrease_ < once_per) {
    return;
  }
  const double excess = (delay - constants_.target) / delay;
  window_ = bounds_.clamp(window_ * std::max(1 - kGamma * excess, kSmallestStep));
  last_decrease_ = now;
}

// When most paths lose, what was delivered in the last period is the best guess at the fair share.
bool SrdControl::quick_adapt(TimePoint now, bool loss, bool marked) {
  if (ignored_ < to_ignore_ && marked) {
    return true;
  }
  if (now <= period_end_) {
    return false;
  }
  const bool adapt = period_end_ != TimePoint::min() && (adapt_wanted_ || loss) &&
                     achieved_ < bounds_.max / kAdaptGate;
  if (adapt) {
    to_ignore_ = window_;
    ignored_ = 0;
    shrink_to(achieved_, loss_floor());
    adapt_wanted_ = false;
  }
  achieved_ = 0;
  period_end_ = now + from_picoseconds(constants_.base_rtt + constants_.target);
  return adapt;
}

void SrdControl::on_loss(TimePoint now, Bytes bytes, LossKind kind, std::optional<PathId> path) {
  ignored_ += static_cast<double>(bytes);
  no_distance_before_ = now + kLossMemory;
  if (path) {  // a queue that overflows holds about one base RTT
    filter_.add(*path, static_cast<std::uint32_t>(constants_.base_rtt / 1000), true, clock32(now));
  }
  const bool silent = last_ack_ != TimePoint::min() &&
                      static_cast<double>((now - last_ack_).count()) > kSilence * smoothed_rtt_;
  if (kind == LossKind::timeout && silent) {
    lose_in_silence(now);
    return;
  }
  const bool too_much = loses_too_much(bytes);
  if (!view(now).marked && !too_much) {
    return;
  }
  adapt_wanted_ = true;
  if (!quick_adapt(now, true, true)) {
    shrink_to(window_ - static_cast<double>(bytes), loss_floor());
  }
}

// A network that cannot mark speaks through losses only. A little loss is not congestion, though.
bool SrdControl::loses_too_much(Bytes bytes) {
  round_lost_ += static_cast<double>(bytes);
  const bool too_much =
      !marks_seen_ &&
      round_lost_ > std::max(kTolerableLoss * (round_acked_ + round_lost_), 2 * mtu_);
  if (round_acked_ + round_lost_ > 2 * window_) {
    round_acked_ /= 2;
    round_lost_ /= 2;
  }
  return too_much;
}

// Nothing at all comes back: the peer's process may not run, or everything is lost. Be careful, but
// come back at once when it turns out to have been a pause.
void SrdControl::lose_in_silence(TimePoint now) {
  before_silence_ = std::max(before_silence_, window_);
  const Duration once_per = from_picoseconds(smoothed_rtt_ * 1000);
  if (last_decrease_ == TimePoint::min() || now - last_decrease_ >= once_per) {
    shrink_to(window_ * kSmallestStep, kSilenceFloor);
    last_decrease_ = now;
  }
}

void SrdControl::end_silence(TimePoint now, bool marked) {
  last_ack_ = now;
  if (before_silence_ > 0) {
    if (!marked && now >= no_restore_before_) {
      window_ = bounds_.clamp(std::max(window_, before_silence_));
      filter_ = PathFilter{};  // what it heard about the silence was the peer's, not the paths'
      no_restore_before_ = now + kRestoreInterval;
    }
    before_silence_ = 0;
  }
}

double SrdControl::loss_floor() const { return credits_ ? kLossFloorWithCredits : kLossFloor; }

// Never grows, and goes no lower than `floor` packets unless it was there before.
void SrdControl::shrink_to(double window, double floor) {
  window_ = bounds_.clamp(std::min(window_, std::max(window, floor * mtu_)));
}

}  // namespace weft::srd
