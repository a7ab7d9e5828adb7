// Owns faults at work: their schedule, their sums on each link, paused hosts.
//
// apply() plans two events per occurrence: its begin, and its end if it has one. Then set_active()
// changes the list of faults that are active on each link, and refresh() merges that list anew into
// Trouble::sum, which is all that frames meet. So faults that overlap add up, and ending one does
// not end another.
#include <algorithm>
#include <cmath>
#include <utility>

#include "emu/fabric/fabric.hpp"
#include "srd/base/check.hpp"

namespace weft::fabric {
namespace {

// Fault events carry the fault's index and which end of an occurrence they are.
constexpr std::uint32_t kEnds = 0x80000000U;

// Salt: the draw for a frame's delay must differ from that for its loss at the same place and time.
constexpr std::uint64_t kDelayDice = 0x64656C6179ULL;

bool is_share(double p) { return p >= 0 && p <= 1; }

// What is wrong with the numbers of a fault, or nothing.
std::string check(const Fault& fault) {
  const Impairment& is = fault.impairment;
  if (!is_share(is.loss) || !is_share(is.corruption) || !is_share(is.duplication) ||
      !is_share(is.reordering) || !is_share(is.grey) || !is_share(is.burst.enter) ||
      !is_share(is.burst.leave) || !is_share(is.burst.loss) || !is_share(fault.share)) {
    return "a probability or share must lie between 0 and 1";
  }
  if (!(is.rate_factor > 0) || !std::isfinite(is.rate_factor) || is.rate_factor > 1000) {
    return "the rate factor must be positive; to stop a link, take it down";
  }
  if (is.extra_delay < Duration::zero() || is.jitter < Duration::zero() ||
      is.reorder_delay < Duration::zero() || fault.at < Duration::zero() ||
      fault.lasts < Duration::zero() || fault.every < Duration::zero()) {
    return "times must not be negative";
  }
  if (fault.every > Duration::zero() &&
      (fault.lasts == Duration::zero() || fault.lasts >= fault.every)) {
    return "a fault that repeats must last shorter than its period";
  }
  if (fault.times == 0 || fault.times > 100'000) {
    return "a fault may repeat 1 to 100000 times";
  }
  return {};
}

// In floating point, because the sum may overflow a Duration.
bool ends_within(Duration limit, const Fault& fault, std::uint32_t times) {
  const auto number = [](Duration d) { return static_cast<double>(d.count()); };
  return number(fault.at) + number(fault.every) * times + number(fault.lasts) <= number(limit);
}

}  // namespace

// Finds the links or ports that the fault names, and draws a share of the links, at least one. A
// switch that dies is all of its links being down.
Result<void> Fabric::resolve(AppliedFault& applied) {
  const Fault& fault = applied.fault;
  const auto bad = [&](const std::string& text) {
    return fail(ErrorCode::invalid_argument,
                "fault '" + (fault.name.empty() ? fault.where : fault.name) + "': " + text);
  };
  if (const std::string problem = check(fault); !problem.empty()) {
    return bad(problem);
  }
  if (fault.target == Fault::Target::links) {
    auto found = topology_.links_called(fault.where);
    if (!found) {
      return bad(found.error().message);
    }
    applied.links = std::move(*found);
    if (fault.share < 1) {
      const auto keep = std::max<std::size_t>(
          static_cast<std::size_t>(
              std::lround(fault.share * static_cast<double>(applied.links.size()))),
          1);
      for (std::size_t i = 0; i < keep; ++i) {
        std::swap(
            applied.links[i],
            applied.links[i + rng_.below(static_cast<std::uint32_t>(applied.links.size() - i))]);
      }
      applied.links.resize(keep);
      std::sort(applied.links.begin(), applied.links.end());
    }
    for (const LinkId link : applied.links) {
      const double left =
          fault.impairment.rate_factor *
          static_cast<double>(topology_.links()[link].properties.rate.bits_per_second());
      if (left < static_cast<double>(kMinRate.bits_per_second())) {
        return bad("the rate factor leaves " + std::to_string(left) + " bit/s of link " +
                   topology_.link_name(link) + "; the slowest that can be modelled is 2 Mb/s");
      }
    }
    return {};
  }
  const NodeId node = topology_.find(fault.where);
  const bool host = fault.target == Fault::Target::host;
  if (node == kNone || (topology_.nodes()[node].kind == Node::Kind::host) != host) {
    return bad(std::string("there is no ") + (host ? "host" : "switch") + " called '" +
               fault.where + "'");
  }
  if (host) {
    for (PortId port = 0; port < routes_.port_count(); ++port) {
      if (routes_.host_of(port) == node) {
        applied.ports.push_back(port);
      }
    }
    return {};
  }
  applied.fault.impairment = {};
  applied.fault.impairment.down = true;
  for (LinkId link = 0; link < links_.size(); ++link) {
    if (topology_.links()[link].from == node || topology_.links()[link].to == node) {
      applied.links.push_back(link);
    }
  }
  return {};
}

// All occurrences are planned at once: faults are few, and a schedule that is in the calendar needs
// no further care.
Result<std::uint32_t> Fabric::apply(Picos now, const Fault& fault) {
  now_ = std::max(now_, now);
  const std::uint32_t times = fault.every > Duration::zero() ? fault.times : 1;
  if (const Duration most{(kNoTime - 1 - now_) / 1000}; !ends_within(most, fault, times)) {
    return fail(ErrorCode::invalid_argument,
                "fault of '" + fault.where + "': it ends too late, for this network counts " +
                    std::to_string(most / std::chrono::hours{24}) + " days ahead at the most");
  }
  AppliedFault applied;
  applied.fault = fault;
  if (auto ok = resolve(applied); !ok) {
    return tl::unexpected<Error>(ok.error());
  }
  const auto index = static_cast<std::uint32_t>(faults_.size());
  faults_.push_back(std::move(applied));
  for (std::uint32_t n = 0; n < times; ++n) {
    const Picos start = now_ + picos(fault.at + fault.every * n);
    queue_.push({.when = start, .frame = index, .kind = CalendarEvent::Kind::fault});
    if (fault.lasts > Duration::zero()) {
      queue_.push({.when = start + picos(fault.lasts),
                   .frame = index | kEnds,
                   .kind = CalendarEvent::Kind::fault});
    }
  }
  return index;
}

void Fabric::end(Picos now, std::uint32_t fault) {
  now_ = std::max(now_, now);
  if (fault >= faults_.size() || faults_[fault].ended) {
    return;
  }
  while (faults_[fault].active > 0) {
    set_active(fault, false);
  }
  faults_[fault].ended = true;
}

void Fabric::change(std::uint32_t fault_and_phase) {
  const std::uint32_t fault = fault_and_phase & ~kEnds;
  if (!faults_[fault].ended) {
    set_active(fault, (fault_and_phase & kEnds) == 0);
  }
}

// An end without a begin does nothing: end() may have ended the occurrence before its time.
void Fabric::set_active(std::uint32_t fault, bool active) {
  AppliedFault& applied = faults_[fault];
  if (!active && applied.active == 0) {
    return;
  }
  applied.active += active ? 1U : static_cast<std::uint32_t>(-1);
  for (const PortId port : applied.ports) {
    set_paused(port, active);
  }
  for (const LinkId link : applied.links) {
    auto& list = trouble_of(link).active;
    if (active) {
      list.push_back(fault);
    } else if (const auto it = std::find(list.begin(), list.end(), fault); it != list.end()) {
      list.erase(it);
    }
    refresh(link);
  }
}

Fabric::Trouble& Fabric::trouble_of(LinkId link) {
  if (links_[link].trouble == 0) {
    links_[link].trouble = static_cast<std::uint32_t>(troubles_.size());
    troubles_.emplace_back();
  }
  return troubles_[links_[link].trouble];
}

void Fabric::refresh(LinkId id) {
  LinkState& link = links_[id];
  Trouble& trouble = troubles_[link.trouble];
  const bool was_down = trouble.sum.down;
  trouble.sum = {};
  for (const std::uint32_t fault : trouble.active) {
    trouble.sum.merge(faults_[fault].fault.impairment);
  }
  outages_ += trouble.sum.down != was_down ? 1U : 0U;
  if (trouble.sum.down && !was_down) {
    const Picos oldest = now_ - classes_[link.kind].delay;
    std::erase_if(trouble.outages, [&](const Outage& it) { return it.until < oldest; });
    trouble.outages.push_back({.from = now_, .until = kNoTime});
  } else if (!trouble.sum.down && was_down) {
    trouble.outages.back().until = now_;
  }
  // The rate may have changed. Frames that are planned already keep their departure; the time that
  // the queue takes is stretched, so that those queued later wait for as long as it would take at
  // the new rate. The limits are times to drain and stay as they are: the port's share of the
  // buffer, and its thresholds, shrink with the rate.
  const double own =
      static_cast<double>(topology_.links()[id].properties.rate.picoseconds_for(1024));
  const double slowed =
      std::min(own / trouble.sum.rate_factor, static_cast<double>(kMinRate.picoseconds_for(1024)));
  const double stretch = slowed / link.ps_per_kib;
  link.ps_per_kib = static_cast<std::uint32_t>(slowed);
  for (Picos* until : {&link.busy, &link.control}) {
    if (*until > now_ && stretch != 1) {
      *until = now_ + static_cast<Picos>(static_cast<double>(*until - now_) * stretch);
    }
  }
}

// Pauses may overlap; the frames that waited arrive, in their order, when the last pause ends.
void Fabric::set_paused(PortId port, bool paused) {
  const bool before = paused_[port] != 0;
  paused_[port] = static_cast<std::uint16_t>(paused_[port] + (paused ? 1 : -1));
  const bool after = paused_[port] != 0;
  if (before == after) {
    return;
  }
  pause_changes_.push_back({port, after});
  if (!after && port < held_.size()) {
    for (CalendarEvent& event : held_[port]) {
      event.when = now_;
      --held_count_;
      push_late(event);
    }
    held_[port].clear();
  }
}

// Whether the cable was cut before the frame had left its queue: it left, by plan, during an
// outage.
bool Fabric::was_cut(const CalendarEvent& event, const LinkState& via, Picos left) {
  for (const Outage& outage : troubles_[via.trouble].outages) {
    if (left > outage.from && left <= outage.until) {
      drop(event, LossReason::link_down, event.via);
      return true;
    }
  }
  return false;
}

// Extra delay, jitter and reordering act at the far end of the cable: the link's own queue does not
// feel them, and frames may overtake each other.
bool Fabric::hold_back(CalendarEvent& event, const LinkState& via) {
  const Impairment& is = troubles_[via.trouble].sum;
  Picos extra = picos(is.extra_delay);
  Rng dice_now(mix64(dice(event, event.via) ^ kDelayDice));
  if (is.jitter > Duration::zero()) {
    extra += static_cast<Picos>(dice_now.between(0, static_cast<std::uint64_t>(picos(is.jitter))));
  }
  if (is.reordering > 0 && dice_now.chance(is.reordering)) {
    extra += picos(is.reorder_delay);
  }
  if (extra == 0) {
    return false;
  }
  event.when += extra;
  push_late(event);
  return true;
}

// Draws in a fixed order, so that one seed gives one outcome: grey failures depend on the flow's
// hash alone, bursts on the link's state, the rest on chance.
bool Fabric::survives(Trouble& trouble, LinkId id, CalendarEvent& event, Rng& dice_now) {
  const Impairment& is = trouble.sum;
  const auto lost = [&](LossReason reason) {
    drop(event, reason, id);
    return false;
  };
  if (is.down) {
    return lost(LossReason::link_down);
  }
  if (event.size >= is.min_bytes) {
    if (is.grey > 0 && static_cast<double>((event.hash * 0x9E3779B1U) >> 8) < is.grey * 0x1000000) {
      return lost(LossReason::grey);
    }
    if (is.burst.enter > 0) {
      trouble.bursting =
          trouble.bursting ? !dice_now.chance(is.burst.leave) : dice_now.chance(is.burst.enter);
      if (trouble.bursting && dice_now.chance(is.burst.loss)) {
        return lost(LossReason::burst);
      }
    }
    if (is.loss > 0 && dice_now.chance(is.loss)) {
      return lost(LossReason::loss);
    }
  }
  if (is.corruption > 0 && dice_now.chance(is.corruption)) {
    event.flags |= kCorrupted;
    ++totals_.corrupted;
  }
  return true;
}

// A frame may be copied only if it survives. The copy is sent when the sink has found room for it
// (tell()).
bool Fabric::suffer(LinkState& link, LinkId id, CalendarEvent& event) {
  Trouble& trouble = troubles_[link.trouble];
  if (trouble.active.empty()) {
    return true;
  }
  Rng dice_now(dice(event, id));
  CalendarEvent copy = event;  // of the frame as it came, before this link has damaged it
  if (!survives(trouble, id, event, dice_now)) {
    return false;
  }
  if (trouble.sum.duplication > 0 && dice_now.chance(trouble.sum.duplication)) {
    notices_.push_back({copy, LossReason::loss, id, Notice::Kind::copied});
  }
  return true;
}

}  // namespace weft::fabric
