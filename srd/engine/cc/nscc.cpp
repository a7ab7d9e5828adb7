// Owns the arithmetic of NSCC.
#include "srd/engine/cc/nscc.hpp"

#include <algorithm>

namespace weft::srd {
namespace {

constexpr double kReferenceBdp = 150'000;     // bytes
constexpr double kReferenceRtt = 12'000'000;  // picoseconds
constexpr double kTargetWithTrimming = 0.75;  // base RTTs
constexpr double kTargetWithout = 1.0;
constexpr double kGamma = 0.8;           // strength of the decrease
constexpr double kMinStep = 0.5;         // one decrease at most halves
constexpr double kDelayWeight = 0.0125;  // of a new sample in the average
constexpr double kUnmarkedDelay = 0.25;  // of the base RTT: what a delay without a mark counts as
constexpr double kAdaptGate = 8;         // adapt only below this fraction of the maximum window
constexpr double kNoQueue = 1'000'000;   // picoseconds of delay that count as an empty network

double picoseconds(Duration d) { return static_cast<double>(d.count()) * 1000; }

// Between two times, where `since` may be "never".
bool passed(TimePoint now, TimePoint since, Duration d) {
  return since == TimePoint::min() || now - since > d;
}

}  // namespace

NsccConstants::NsccConstants(Rate line_rate, double base_rtt_ps, double mtu, double header,
                             double target_rtts)
    : base_rtt(base_rtt_ps) {
  const double payload = std::max(mtu - header, 1.0);
  bdp = static_cast<double>(line_rate.bits_per_second()) / 8 * base_rtt_ps / 1e12;
  target = target_rtts * base_rtt_ps;
  scale_a = bdp / kReferenceBdp;
  scale_b = target / kReferenceRtt;
  alpha = 4 * payload * scale_a * scale_b / target;
  fair_increase = 5 * payload * scale_a;
  eta = 0.15 * payload * scale_a;
  fast_scale = 0.25 * scale_a;
  adapt_threshold = 4 * target;
  adjust_bytes = 8 * mtu;
}

Nscc::Nscc(const CcTuning& tuning)
    : constants_(tuning.line_rate, picoseconds(std::max(tuning.base_rtt, Duration{1})),
                 static_cast<double>(tuning.mtu_wire), static_cast<double>(tuning.header),
                 tuning.trimming ? kTargetWithTrimming : kTargetWithout),
      bounds_(tuning),
      base_rtt_(std::max(tuning.base_rtt, Duration{1})),
      smallest_rtt_(base_rtt_),
      window_(bounds_.initial) {}

void Nscc::on_ack(const AckSample& sample) {
  const double acked = static_cast<double>(sample.acked);
  achieved_ += acked;
  ignored_ += acked;
  unapplied_acked_ += acked;
  double delay = average_delay_;  // without a measurement: as the last ones were
  if (sample.rtt_valid) {
    const Duration rtt = std::max(sample.rtt, Duration{0});
    smallest_rtt_ = std::min(smallest_rtt_, rtt);
    delay = picoseconds(rtt - smallest_rtt_);
    average_delay(delay, sample.congested);
  }
  if (quick_adapt(sample.now, false, sample.congested, delay, sample.in_flight)) {
    return;
  }
  if (delay >= constants_.target) {
    fast_ = false;
    empty_acked_ = 0;
    if (sample.congested) {
      decrease(sample.now);
    } else {
      pending_increase_ += constants_.fair_increase * acked;
    }
  } else if (!sample.congested) {
    increase_below_target(delay, acked);
  }  // marked, but little delay: a queue that is just building up; the path selector reacts, we do
     // not
  if (unapplied_acked_ > constants_.adjust_bytes || passed(sample.now, last_apply_, base_rtt_)) {
    apply_increase(sample.now);
  }
  window_ = bounds_.clamp(window_);
}

void Nscc::on_loss(TimePoint now, Bytes bytes, LossKind, std::optional<PathId>) {
  ignored_ += static_cast<double>(bytes);
  average_delay(constants_.base_rtt, true);  // a queue that overflows holds about one base RTT
  adapt_wanted_ = true;
  if (!quick_adapt(now, true, true, 0, 0)) {
    window_ = bounds_.clamp(window_ - static_cast<double>(bytes));
  }
}

void Nscc::average_delay(double delay, bool congested) {
  // A high delay without a mark means that the queue has drained since: it counts little.
  const double counted =
      !congested && delay > constants_.target ? kUnmarkedDelay * constants_.base_rtt : delay;
  average_delay_ += kDelayWeight * (counted - average_delay_);
}

bool Nscc::quick_adapt(TimePoint now, bool loss, bool congested, double delay, Bytes in_flight) {
  if (ignored_ < to_ignore_ && congested) {
    return true;
  }
  if (now <= period_end_) {
    return false;
  }
  const bool adapt = period_end_ != TimePoint::min() &&
                     (adapt_wanted_ || loss || delay > constants_.adapt_threshold) &&
                     achieved_ < bounds_.max / kAdaptGate;
  if (adapt) {
    to_ignore_ = in_flight > 0 ? static_cast<double>(in_flight) : window_;
    ignored_ = 0;
    window_ = bounds_.clamp(std::min(window_, achieved_));
    adapt_wanted_ = false;
  }
  achieved_ = 0;
  period_end_ = now + base_rtt_ + Duration{static_cast<std::int64_t>(constants_.target / 1000)};
  return adapt;
}

void Nscc::increase_below_target(double delay, double acked) {
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
  pending_increase_ += constants_.alpha * acked * (constants_.target - delay);
}

void Nscc::decrease(TimePoint now) {
  if (average_delay_ <= constants_.target || !passed(now, last_decrease_, base_rtt_)) {
    return;
  }
  const double excess = (average_delay_ - constants_.target) / average_delay_;
  window_ = bounds_.clamp(window_ * std::max(1 - kGamma * excess, kMinStep));
  last_decrease_ = now;
}

void Nscc::apply_increase(TimePoint now) {
  window_ += pending_increase_ / window_;
  if (passed(now, last_apply_, base_rtt_)) {
    window_ += constants_.eta;
    last_apply_ = now;
  }
  pending_increase_ = 0;
  unapplied_acked_ = 0;
}

}  // namespace weft::srd
