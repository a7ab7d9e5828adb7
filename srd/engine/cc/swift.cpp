// Owns the arithmetic of Swift.
#include "srd/engine/cc/swift.hpp"

#include <algorithm>
#include <cmath>

namespace weft::srd {
namespace {

constexpr double kAdditive = 1;           // packets per round trip
constexpr double kBeta = 0.8;             // strength of the decrease
constexpr double kMaxDecrease = 0.5;      // at one step
constexpr double kMinWindow = 1.0 / 128;  // packets
constexpr double kBaseTarget = 1.5;       // in base RTTs
constexpr double kFlowRange = 1.5;        // in base RTTs
// And in packets, which on a slow link take longer than the round trip: a target below a few of
// them leaves the link idle whenever they come unevenly.
constexpr double kBasePackets = 4;
constexpr double kFlowPackets = 8;
// The target grows with 1/sqrt(window) between these windows, in packets: N flows that share a
// queue make it swing by about sqrt(N).
constexpr double kFlowWindowMin = 0.1;
constexpr double kFlowWindowMax = 100;
constexpr std::uint8_t kLossesToCollapse = 5;

double packet_time(const CcTuning& tuning) {
  return static_cast<double>(tuning.line_rate.time_for(tuning.mtu_wire).count());
}

}  // namespace

Swift::Swift(const CcTuning& tuning)
    : bounds_(tuning),
      mtu_(bounds_.min),
      base_target_(kBaseTarget * static_cast<double>(tuning.base_rtt.count()) +
                   kBasePackets * packet_time(tuning)),
      flow_range_(kFlowRange * static_cast<double>(tuning.base_rtt.count()) +
                  kFlowPackets * packet_time(tuning)),
      window_(bounds_.initial),
      rtt_(static_cast<double>(tuning.base_rtt.count())) {
  bounds_.min = mtu_ * kMinWindow;
}

double Swift::target() const {
  const double packets = std::clamp(window_ / mtu_, kFlowWindowMin, kFlowWindowMax);
  const double low = 1 / std::sqrt(kFlowWindowMax);
  const double high = 1 / std::sqrt(kFlowWindowMin);
  return base_target_ + flow_range_ * (1 / std::sqrt(packets) - low) / (high - low);
}

void Swift::on_ack(const AckSample& sample) {
  losses_in_a_row_ = 0;
  if (!sample.rtt_valid) {
    return;
  }
  rtt_ = std::max(1.0, static_cast<double>(sample.rtt.count()));
  const double aim = target();
  if (rtt_ < aim) {
    const double acked = static_cast<double>(sample.acked);
    const double step = window_ >= mtu_ ? kAdditive * mtu_ * acked / window_ : kAdditive * acked;
    window_ = bounds_.clamp(window_ + step);
  } else {
    decrease(sample.now, std::max(1 - kBeta * (rtt_ - aim) / rtt_, kMaxDecrease));
  }
}

void Swift::on_loss(TimePoint now, Bytes, LossKind kind, std::optional<PathId>) {
  // Packets that are lost together count once.
  if (!decrease(now, kMaxDecrease) || kind != LossKind::timeout) {
    return;
  }
  losses_in_a_row_ = static_cast<std::uint8_t>(std::min(losses_in_a_row_ + 1, 255));
  if (losses_in_a_row_ > kLossesToCollapse) {
    window_ = bounds_.min;
  }
}

bool Swift::decrease(TimePoint now, double factor) {
  const Duration once_per{static_cast<std::int64_t>(rtt_)};
  if (last_decrease_ != TimePoint::min() && now - last_decrease_ < once_per) {
    return false;
  }
  window_ = bounds_.clamp(window_ * factor);
  last_decrease_ = now;
  return true;
}

Rate Swift::pacing_rate() const {
  if (window_ >= mtu_) {
    return {};
  }
  const double bits_per_second = window_ * 8 * 1e9 / rtt_;
  return Rate::bits_per_second(static_cast<std::uint64_t>(std::max(bits_per_second, 1.0)));
}

}  // namespace weft::srd
