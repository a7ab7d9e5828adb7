// Owns the sums of rates over time, and the translation of faults into them.
#include "emu/sim/rate_over_time.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "emu/fabric/picos.hpp"

namespace weft::sim {
namespace {

// Of a fault that repeats; later ones are left out, which only lets more through.
constexpr std::uint32_t kMaxOccurrences = 4096;

// The begin or the end of one occurrence.
struct Turn {
  double when = 0;
  std::size_t fault = 0;
  int by = 0;  // +1 or -1
};

// By time. Several turns may come at one moment; link_rate() takes them together.
std::vector<Turn> turns_of(const std::vector<const fabric::Fault*>& faults) {
  std::vector<Turn> turns;
  for (std::size_t index = 0; index < faults.size(); ++index) {
    const fabric::Fault& fault = *faults[index];
    const std::uint32_t times =
        fault.every > Duration::zero() ? std::min(fault.times, kMaxOccurrences) : 1;
    for (std::uint32_t n = 0; n < times; ++n) {
      const auto from = static_cast<double>(fabric::picos(fault.at + fault.every * n));
      turns.push_back({from, index, 1});
      if (fault.lasts > Duration::zero()) {
        turns.push_back({from + static_cast<double>(fabric::picos(fault.lasts)), index, -1});
      }
    }
  }
  std::sort(turns.begin(), turns.end(),
            [](const Turn& a, const Turn& b) { return a.when < b.when; });
  return turns;
}

bool takes_down(const fabric::Fault& fault) {
  return fault.target == fabric::Fault::Target::node || fault.impairment.down;
}

}  // namespace

void RateOverTime::add(const RateOverTime& other) {
  changes_.insert(changes_.end(), other.changes_.begin(), other.changes_.end());
}

void RateOverTime::settle() {
  std::sort(changes_.begin(), changes_.end(),
            [](const Change& a, const Change& b) { return a.when < b.when; });
  steps_.assign(1, {});
  for (const Change& change : changes_) {
    const Step& last = steps_.back();
    if (change.when > last.from) {
      steps_.push_back(
          {change.when, last.rate, last.before + (change.when - last.from) * last.rate});
    }
    steps_.back().rate += change.by;
    steps_.back().before += change.bytes;
  }
  changes_.clear();
}

// Without what gets through at that very moment.
double RateOverTime::carried_before(double when) const {
  const auto after = std::lower_bound(steps_.begin(), steps_.end(), when,
                                      [](const Step& step, double at) { return step.from < at; });
  if (after == steps_.begin()) {
    return 0;
  }
  const Step& step = *(after - 1);
  return step.before + (when - step.from) * step.rate;
}

double RateOverTime::carried_by(double from, double bytes) const {
  if (bytes <= 0) {
    return from;
  }
  // The integral has to grow by `bytes` from `from` on. It is reached either within a step or, when
  // bytes are allowed at once, at the begin of the next one.
  const double wanted = carried_before(from) + bytes;
  const auto after =
      std::lower_bound(steps_.begin(), steps_.end(), wanted,
                       [](const Step& step, double amount) { return step.before < amount; });
  constexpr double kNever = std::numeric_limits<double>::infinity();
  const double latest = after == steps_.end() ? kNever : after->from;
  if (after == steps_.begin()) {
    return std::max(from, latest);
  }
  const Step& step = *(after - 1);
  constexpr double kMinStepRate = 1e-12;  // what sums of steps leave of 0
  const double own =
      step.rate > kMinStepRate ? step.from + (wanted - step.before) / step.rate : kNever;
  return std::max(from, std::min(own, latest));
}

double fastest_ps_per_byte(const fabric::LinkProperties& link, double fastest_factor) {
  // Over 1024 bytes, so that rounding to whole picoseconds hardly matters.
  return static_cast<double>(link.rate.picoseconds_for(1024)) / fastest_factor / 1024;
}

RateOverTime link_rate(const fabric::LinkProperties& link,
                       const std::vector<const fabric::Fault*>& faults, std::optional<Bytes> queue,
                       Bytes mtu) {
  RateOverTime result;
  const double own = 1 / fastest_ps_per_byte(link, 1);
  // The fabric keeps a slowed link at this rate or above.
  const double least = 1 / fastest_ps_per_byte({.rate = fabric::kMinRate}, 1);
  const std::vector<Turn> turns = turns_of(faults);
  std::vector<int> active(faults.size(), 0);
  double factor = 1;
  double fastest = 1;
  double rate = own;
  result.change(0, own);
  for (std::size_t at = 0; at < turns.size();) {
    const double when = turns[at].when;
    for (; at < turns.size() && turns[at].when == when; ++at) {
      active[turns[at].fault] += turns[at].by;
    }
    bool down = false;
    double now = 1;
    for (std::size_t i = 0; i < faults.size(); ++i) {
      down = down || (active[i] > 0 && takes_down(*faults[i]));
      // Occurrences of one fault may overlap; each counts.
      now *= active[i] > 0 ? std::pow(faults[i]->impairment.rate_factor, active[i]) : 1;
    }
    if (now < factor && !queue) {
      now = factor;  // without a limit to what may be queued, nothing can be said
    } else if (now < factor) {
      result.allow(when, when > 0 ? static_cast<double>(*queue) * fastest : 0);
    }
    factor = now;
    fastest = std::max(fastest, factor);
    const double next = down ? 0 : std::max(own * factor, least);
    if (next != rate) {
      result.change(when, next - rate);
      result.allow(when, static_cast<double>(mtu));
      rate = next;
    }
  }
  return result;
}

}  // namespace weft::sim
