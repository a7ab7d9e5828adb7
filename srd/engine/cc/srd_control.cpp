// Owns the arithmetic of the default congestion control.
#include "srd/engine/cc/srd_control.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

namespace weft::srd {
namespace {

// Queueing delay aimed at, in base RTTs: of a peer that has the whole line, and more for each
// halving of the rate. All see the same queue: senders that have less go on growing in it while
// senders that have more shrink, so that rates come together however few share the link. kTarget is
// what round trips are planned by, and what the steps follow from.
constexpr double kTargetOfAll = 0.45;
constexpr double kTargetPerOctave = 1.0 / 32;
constexpr double kTarget = 0.5;
// What n senders add in a round trip they take back in it: n eta = (d - target) bdp, so steps of
// bdp / 256 make the queue of 64 senders a quarter of a product longer.
constexpr double kStepsOfOneProduct = 256;
constexpr double kGiveBack = 0.15;      // of what exceeds one bandwidth-delay product, a round trip
constexpr double kSilenceStep = 0.5;    // of the window, a round trip
constexpr double kAdaptGate = 8;        // adapt only below this fraction of the maximum window
constexpr double kNoQueue = 1'000'000;  // picoseconds of delay that count as an empty network
constexpr double kMinRttWeight = 1.0 / 8;
constexpr double kMaxRttGrowth = 4;  // of one sample over the average
constexpr double kMaxEtas = 4;       // constant increases made up for after a pause
constexpr double kPaceBelow = 2;     // packets: more precise than whole packets in flight
// Packets: two coalesced acknowledgements, below which the engine asks for one for each packet.
// From here on four packets are let go at once.
constexpr double kBurstsFrom = 8;

// In packets. What is lost together says little about the fair share, so it does not lead to the
// floor.
constexpr double kFloor = 1.0 / 64;
constexpr double kLossFloor = 0.5;
constexpr double kLossFloorWithCredits = 8;
// Bytes acknowledged for each byte lost, below which the last of these floors sinks.
constexpr double kFloorSinksBelow = 0.25;
// Without a mark it sinks where two first windows more were lost than sixteen times what came back:
// that is no first flight, and two senders that keep a slow last hop busy lose less.
constexpr double kStarvedBelow = 1.0 / 16;
constexpr double kStarvedWindows = 2;
constexpr double kSilenceFloor = 4;

constexpr std::uint32_t kStandingRounds = 2;  // without marks: before a queue is believed in
constexpr double kTried = 1.0 / 8;
constexpr double kSameDelay = 1.0 / 16;
constexpr double kTolerableLoss = 1.0 / 32;  // of the bytes of a round

// In a queue that is too short to be measured only losses tell, one bit a packet. In equilibrium a
// sender loses kTolerableLoss and kLossPerOctave for each halving of its rate, and each packet
// moves the logarithm of the window by kLossStep of what it says. The variance of that logarithm is
// ln 2 p (1 - p) kLossStep / (2 kLossPerOctave): 0.03 where p is 0.2, which is a Jain index of
// 0.97.
constexpr double kLossPerOctave = 1.0 / 32;
constexpr double kLossStep = 1.0 / 64;
constexpr double kMaxLoss = 0.9;
constexpr int kOnePath = 2;  // losses in a row along the path of the one before: it is that path
constexpr double kLossesMissed = 8;  // in a row, of those expected: once in e^8 times by chance
// What is lost stays in the window until it is missed, so pacing alone must hold the rate.
constexpr double kRoomForLosses = 1.5;
constexpr double kMinRoomForLosses = 4;  // packets
constexpr double kSilence = 2;           // round trips without an acknowledgement
constexpr Duration kLossMemory = std::chrono::milliseconds{100};  // a period of BaseRtt
constexpr Duration kRestoreInterval = std::chrono::milliseconds{100};

double picoseconds(Duration d) { return static_cast<double>(d.count()) * 1000; }
Duration from_picoseconds(double ps) { return Duration{static_cast<std::int64_t>(ps / 1000)}; }
// Of a number above zero: exact for powers of two, and a straight line between them.
double log2_about(double x) {
  constexpr std::int64_t kOne = std::bit_cast<std::int64_t>(1.0);
  return static_cast<double>(std::bit_cast<std::int64_t>(x) - kOne) * 0x1p-52;
}
std::uint32_t clock32(TimePoint now) { return static_cast<std::uint32_t>(nanoseconds(now)); }

}  // namespace

SrdControl::SrdControl(const CcTuning& tuning)
    : constants_(tuning.line_rate, picoseconds(std::max(tuning.base_rtt, Duration{1})),
                 static_cast<double>(tuning.mtu_wire), static_cast<double>(tuning.header), kTarget),
      base_rtt_(tuning.base_rtt),
      header_(static_cast<double>(tuning.header)),
      sent_from_(WindowBounds(tuning).initial),
      round_window_(sent_from_),
      bounds_(tuning),
      mtu_(bounds_.min),
      window_(bounds_.initial),
      smoothed_rtt_(static_cast<double>(base_rtt_.get().count())),
      credits_(tuning.credits),
      congestion_is_reported_(tuning.trimming && tuning.credits) {
  bounds_.min = kFloor * mtu_;
  constants_.eta = constants_.bdp / kStepsOfOneProduct;
}

// Bursts at line rate overflow a short queue that the window alone would fit. A product and more is
// line rate anyway.
[[gnu::hot]] Rate SrdControl::pacing_rate() const {
  const double bursts_from = short_queue_ ? kPaceBelow : kBurstsFrom;
  const bool in_bursts = window_ >= bursts_from * mtu_ && window_ < constants_.bdp;
  if (window_ >= kPaceBelow * mtu_ && !in_bursts) {
    return {};
  }
  // What is not answered cannot grow. A window of nothing that grew by eta a round would have let a
  // packet go after so many rounds: eta t^2 / 2 is one packet.
  const double longest = std::sqrt(2 * mtu_ / constants_.eta);
  const double rounds = std::min(mtu_ / window_, longest);
  // In a longer queue the window has already shrunk to what the target allows: what is spaced out
  // by that queue as well comes too late, when it is gone.
  const double round = std::min(smoothed_rtt_, constants_.round() / 1000);
  const double bits_per_second = mtu_ * 8e9 / (rounds * round);
  return Rate::bits_per_second(static_cast<std::uint64_t>(std::max(bits_per_second, 1.0)));
}

[[gnu::hot]] Bytes SrdControl::window() const {
  double room = window_;
  if (short_queue_) {
    room = std::min(std::max(kRoomForLosses * window_, kMinRoomForLosses * mtu_), bounds_.max);
  }
  return static_cast<Bytes>(std::max(room, mtu_));
}

PathFilter::View SrdControl::view(TimePoint now) const {
  return filter_.view(clock32(now), static_cast<std::uint32_t>(std::min(smoothed_rtt_, 4e9)));
}

[[gnu::hot]] void SrdControl::on_ack(const AckSample& sample) {
  const double acked = static_cast<double>(sample.acked);
  achieved_ += acked;
  ignored_ += acked;
  round_acked_ += acked;
  starved_ = std::max(starved_ - acked / kStarvedBelow, 0.0);
  marks_seen_ = marks_seen_ || sample.congested;
  latest_marked_ = sample.congested;
  end_silence(sample);
  if (sample.rtt_valid && sample.rtt > Duration::zero()) {
    base_rtt_.add(sample.now, sample.rtt, sample.congested);
    const Duration delay =
        std::clamp(sample.rtt - base_rtt_.get(), Duration{0}, Duration{4'000'000'000});
    note_delay(sample.now, delay);
    // A scheduler's pause is not the network's new length. What is alone in flight tells of a whole
    // round trip: an average over many of them would pace by a queue that is long gone.
    const double rtt =
        std::min(static_cast<double>(sample.rtt.count()), kMaxRttGrowth * smoothed_rtt_);
    latest_delay_ = std::max(rtt - static_cast<double>(base_rtt_.get().count()), 0.0);
    const bool nearer = !measured_ && rtt < smoothed_rtt_;  // than was told
    const double weight = nearer ? 1.0 : std::clamp(mtu_ / window_, kMinRttWeight, 1.0);
    smoothed_rtt_ += weight * (rtt - smoothed_rtt_);
    measured_ = true;
    filter_.add(sample.path, static_cast<std::uint32_t>(delay.count()), sample.congested,
                clock32(sample.now));
  }
  const PathFilter::View peer = view(sample.now);
  if (short_queue_ && stays_short(sample.now, acked)) {
    last_eta_ = sample.now;
    return;
  }
  if (!quick_adapt(sample.now, false, peer.marked)) {
    control(sample.now, acked, peer);
  }
}

// A packet with a payload takes longer by its bytes, on our link and on the peer's at least.
void SrdControl::on_distance(Duration rtt) {
  const double more = 2 * (mtu_ - header_) / constants_.bdp * constants_.base_rtt;
  base_rtt_.limit(rtt + from_picoseconds(more));
}

[[gnu::hot]] void SrdControl::control(TimePoint now, double acked, const PathFilter::View& peer) {
  const double delay = static_cast<double>(peer.delay) * 1000;
  const double target = this->target();
  if (delay >= target) {
    fast_ = false;
    empty_acked_ = 0;
    decrease(acked, believed_delay(delay, peer.marked), target);
  } else if (!peer.marked) {
    increase_below_target(delay, target, acked);
  } else {
    give_back(now);
  }
  increase_by_time(now);
  window_ = bounds_.clamp(window_);
}

// How often the rate would have to double to be the line's.
double SrdControl::octaves_below_line() const {
  const double line = constants_.bdp / constants_.base_rtt * 1000 * smoothed_rtt_;
  return std::max(log2_about(line) - log2_about(std::max(window_, 1.0)), 0.0);
}

double SrdControl::target() const {
  return constants_.base_rtt * (kTargetOfAll + kTargetPerOctave * octaves_below_line());
}

// A network that marks vouches for its queues; in another one a queue has to stand. Of the two
// delays the smaller one: what has drained since must not shrink the window any more.
double SrdControl::believed_delay(double delay, bool marked) const {
  if (marks_seen_) {
    return marked ? delay : 0;
  }
  return standing_rounds_ >= kStandingRounds ? std::min(delay, standing_delay_) : 0;
}

// Would a queue be all that a round trip lasts longer, (base + target) / (base + delay) of the
// window would keep the link as busy with the queue at the target. Every acknowledgement takes its
// part of the rest, so that all samples of a round trip count, and those of equal rates alike at
// whatever distance.
void SrdControl::decrease(double acked, double delay, double target) {
  const double excess = std::max(delay - target, 0.0) / (constants_.base_rtt + delay);
  window_ -= acked * std::min(window_ / mtu_, 1.0) * excess;
}

// A queue stands if it never empties: not in a whole round trip, and not in the next one. But a
// delay that is still the same for packets of a window that has gone down to an eighth is no queue:
// the peer is farther than was told: what a round acknowledges left since the one before began. Of
// a round trip that grows or shrinks meanwhile the shorter one counts, or the round would outlast
// the queue that it is to tell of.
void SrdControl::note_delay(TimePoint now, Duration delay) {
  least_delay_ = std::min(least_delay_, delay);
  if (static_cast<double>((now - round_began_).count()) < std::min(round_rtt_, smoothed_rtt_)) {
    return;
  }
  standing_delay_ = picoseconds(least_delay_);
  standing_rounds_ = standing_delay_ > constants_.target ? standing_rounds_ + 1 : 0;
  if (standing_rounds_ == 0 || marks_seen_ || now < no_distance_before_ ||
      std::abs(standing_delay_ - tried_delay_) > kSameDelay * tried_delay_) {
    tried_delay_ = standing_delay_;
    tried_window_ = window_;
  } else if (sent_from_ <= kTried * tried_window_) {
    base_rtt_.accept(base_rtt_.get() + least_delay_);
    window_ = bounds_.clamp(tried_window_);
    standing_rounds_ = 0;
  }
  least_delay_ = Duration::max();
  sent_from_ = std::exchange(round_window_, window_);
  round_began_ = now;
  round_rtt_ = smoothed_rtt_;
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

[[gnu::hot]] void SrdControl::increase_below_target(double delay, double target, double acked) {
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
  // Never faster than in an empty network: one acknowledgement would turn a part of a packet into
  // four packets, and those of 64 senders would collide. A round trip shorter than the others' gets
  // as much less: a near sender would grow more often otherwise.
  const double window = std::max(window_, mtu_);
  window_ += acked * std::min(smoothed_rtt_ * 1000 / constants_.round(), 1.0) *
             std::min(constants_.alpha * (target - delay) / window, constants_.fast_scale);
}

// By time, because small windows see few acknowledgements, and near peers many round trips. By
// round trips where those last long, or a long queue would be fed faster than it can be drained.
void SrdControl::increase_by_time(TimePoint now) {
  const double round = std::max(constants_.round(), smoothed_rtt_ * 1000);
  const double since = last_eta_ == TimePoint::min() ? round : picoseconds(now - last_eta_);
  window_ += constants_.eta * std::min(since / round, kMaxEtas);
  last_eta_ = now;
}

// When most paths lose, what was delivered in the last period is the best guess at the fair share.
[[gnu::hot]] bool SrdControl::quick_adapt(TimePoint now, bool loss, bool marked) {
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
  const bool silent = last_ack_ != TimePoint::min() &&
                      static_cast<double>((now - last_ack_).count()) > kSilence * smoothed_rtt_;
  if (kind == LossKind::timeout && silent && !short_queue_) {
    lose_in_silence(now);  // the peer's affair: it says nothing about the path
    return;
  }
  // Of other losses than trimmed packets the sender learns when the samples from before them have
  // grown old: the latest one still tells what the queue was like.
  const bool was_long = kind != LossKind::trimmed && latest_delay_ * 1000 >= constants_.target;
  // What no queue has reported was lost by a link, or is not lost but waits in a long queue, as the
  // latest acknowledgement tells.
  if (congestion_is_reported_ && kind != LossKind::trimmed && measured_ && !was_long &&
      !latest_marked_ && queue_is_short(now)) {
    return;
  }
  if (path) {  // a queue that overflows holds a base RTT, or what passes it shows how little
    const double base = static_cast<double>(base_rtt_.get().count());
    const double seen = measured_ ? smoothed_rtt_ - base : 0;
    const double delay = credits_ ? constants_.base_rtt / 1000 : seen;
    filter_.add(*path, static_cast<std::uint32_t>(std::clamp(delay, 0.0, 4e9)), true, clock32(now));
  }
  starved_ = std::min(starved_ + static_cast<double>(bytes), 2 * kStarvedWindows * bounds_.initial);
  // One path that loses everything is its own affair.
  repeated_ = path && path == latest_lost_ ? std::min(repeated_ + 1, kOnePath) : 0;
  latest_lost_ = path;
  const bool again = repeated_ == kOnePath && filter_.several();
  const bool too_much = !again && loses_too_much(bytes);
  const PathFilter::View peer = view(now);
  if (!credits_ && !was_long && queue_is_short(now)) {
    if (too_much || (short_queue_ && !again)) {
      lose_in_short_queue(bytes);
    }
    return;
  }
  if (!peer.marked && (marks_seen_ || !too_much)) {
    return;
  }
  adapt_wanted_ = true;
  if (!quick_adapt(now, true, true)) {
    shrink_to(window_ - static_cast<double>(bytes), loss_floor());
  }
}

// A little loss is not congestion. Two packets may be lost in any case, so a window of a packet or
// less is judged by as many packets as it takes to tell two from the tolerable share.
bool SrdControl::loses_too_much(Bytes bytes) {
  round_lost_ += static_cast<double>(bytes);
  const bool too_much =
      round_lost_ > std::max(kTolerableLoss * (round_acked_ + round_lost_), 2 * mtu_);
  if (round_acked_ + round_lost_ > 2 * std::max(window_, mtu_ / kTolerableLoss)) {
    round_acked_ /= 2;
    round_lost_ /= 2;
  }
  return too_much;
}

// Packets are lost, and those that arrive were not delayed: bursts overflow a queue that holds a
// few packets, and what one period delivers, one packet or none, is a poor measure of the share. So
// each packet that arrives or does not moves the window a little, equally for equal rates at
// whatever distance. No window is worth more than the line.
void SrdControl::lose_in_short_queue(Bytes bytes) {
  if (!short_queue_) {
    const double line = constants_.bdp / constants_.base_rtt * 1000 * smoothed_rtt_;
    window_ = std::min(window_, line);
    short_queue_ = true;
  }
  losses_missed_ = 0;
  const double step = kLossStep * (1 - tolerated_loss()) * static_cast<double>(bytes) / mtu_;
  window_ = bounds_.clamp(window_ * (1 - std::min(step, 0.5)));
}

// False: there is a queue to be measured, or no losses any more.
bool SrdControl::stays_short(TimePoint now, double acked) {
  const double expected = tolerated_loss() * acked / mtu_;
  losses_missed_ += expected;
  short_queue_ = queue_is_short(now) && losses_missed_ < kLossesMissed;
  if (short_queue_) {
    window_ = bounds_.clamp(window_ * (1 + kLossStep * expected));
  }
  return short_queue_;
}

// No path shows a queue that could be aimed at.
bool SrdControl::queue_is_short(TimePoint now) const {
  const auto age = static_cast<std::uint32_t>(std::min(smoothed_rtt_, 4e9));
  return static_cast<double>(filter_.longest(clock32(now), age)) * 1000 < constants_.target;
}

double SrdControl::tolerated_loss() const {
  return std::min(kTolerableLoss + kLossPerOctave * octaves_below_line(), kMaxLoss);
}

// Nothing at all comes back: the peer's process may not run, or everything is lost. Be careful, but
// come back at once when it turns out to have been a pause.
void SrdControl::lose_in_silence(TimePoint now) {
  before_silence_ = std::max(before_silence_, window_);
  const Duration once_per = from_picoseconds(smoothed_rtt_ * 1000);
  if (last_decrease_ == TimePoint::min() || now - last_decrease_ >= once_per) {
    shrink_to(window_ * kSilenceStep, kSilenceFloor);
    last_decrease_ = now;
  }
}

// After a pause the peer answers the very packets that were taken for lost; where they are lost, it
// answers only what was sent again. Where congestion is reported a silence was none.
[[gnu::hot]] void SrdControl::end_silence(const AckSample& sample) {
  last_ack_ = sample.now;
  if (before_silence_ > 0) {
    const bool paused = sample.late && sample.now >= no_restore_before_;
    if ((paused || congestion_is_reported_) && !sample.congested) {
      window_ = bounds_.clamp(std::max(window_, before_silence_));
      filter_ = PathFilter{};  // what it heard about the silence was the peer's, not the paths'
      no_restore_before_ = sample.now + kRestoreInterval;
    }
    before_silence_ = 0;
  }
}

// Credits keep the last hop's queue short, so losses leave a floor that keeps it busy. They do
// nothing about a queue before it, or where the last link is slower than was told: where hardly
// anything gets through, the floor sinks with what does, or the headers of trimmed packets fill a
// slow link for ever. A first flight that is trimmed looks the same, but nothing of it has come
// back with a mark, and it is lost once. Where nothing gets through no mark comes back either, nor
// in a network that does not mark.
double SrdControl::loss_floor() const {
  if (!credits_) {
    return kLossFloor;
  }
  if (!latest_marked_ && starved_ < kStarvedWindows * bounds_.initial) {
    return kLossFloorWithCredits;
  }
  const double through = round_acked_ / std::max(round_lost_, 1.0);
  return std::clamp(through / kFloorSinksBelow * kLossFloorWithCredits, kLossFloor,
                    kLossFloorWithCredits);
}

// Never grows, and goes no lower than `floor` packets unless it was there before.
void SrdControl::shrink_to(double window, double floor) {
  window_ = bounds_.clamp(std::min(window_, std::max(window, floor * mtu_)));
}

}  // namespace weft::srd
