// Owns the arithmetic of DCTCP.
#include "srd/engine/cc/dctcp.hpp"

namespace weft::srd {
namespace {

constexpr double kShareWeight = 1.0 / 16;
constexpr double kLossFactor = 0.5;

}  // namespace

void Dctcp::on_ack(const AckSample& sample) {
  const double acked = static_cast<double>(sample.acked);
  if (sample.rtt_valid && sample.rtt > Duration::zero()) {
    round_time_ = sample.rtt;
  }
  acked_ += acked;
  marked_ += sample.congested ? acked : 0;
  if (sample.now >= round_end_) {
    if (acked_ > 0) {
      marked_share_ += kShareWeight * (marked_ / acked_ - marked_share_);
    }
    if (marked_ > 0 && sample.now >= no_cut_before_) {
      window_ = bounds_.clamp(window_ * (1 - marked_share_ / 2));
      no_cut_before_ = sample.now + round_time_;
    }
    acked_ = 0;
    marked_ = 0;
    round_end_ = sample.now + round_time_;
  }
  if (!sample.congested) {
    window_ = bounds_.clamp(window_ + bounds_.min * acked / window_);  // one packet per window
  }
}

void Dctcp::on_loss(TimePoint now, Bytes, LossKind, std::optional<PathId>) {
  if (now >= no_cut_before_) {
    window_ = bounds_.clamp(window_ * kLossFactor);
    no_cut_before_ = now + round_time_;
  }
}

}  // namespace weft::srd
