// Owns what happens to a packet between two engines.
//
// send() decides everything at once: whether the packet is lost, cut, marked, damaged, doubled or
// late, and when it arrives. From then on it waits in a heap ordered by time. Where ports have a
// rate it passes that heap twice, first until it reaches the receiving port, then until the port's
// queue has served it.
#include "emu/world/network.hpp"

#include <algorithm>

#include "srd/engine/mutation.hpp"
#include "srd/wire/srd_header.hpp"

namespace weft::world {
namespace {

// A cut packet may be shorter than its header says.
std::size_t payload_start(const VirtualNetwork::InFlight& packet) {
  return std::min<std::size_t>(packet.header_size, packet.bytes.size());
}

}  // namespace

std::uint32_t VirtualNetwork::attach(const srd::Address& address) {
  hosts_.push_back(address);
  ports_.emplace_back();
  return static_cast<std::uint32_t>(hosts_.size() - 1);
}

std::uint32_t VirtualNetwork::host_at(const srd::Address& address) const {
  const auto found = std::find(hosts_.begin(), hosts_.end(), address);
  return found == hosts_.end() ? kNobody : static_cast<std::uint32_t>(found - hosts_.begin());
}

void VirtualNetwork::heal() {
  rules_.clear();
  dead_paths_.clear();
  cut_.clear();
  link_.loss = link_.burst = link_.duplicate = link_.reorder = 0;
  link_.corrupt = link_.trim = link_.mark = 0;
  for (Port& port : ports_) {
    port.burst_left = 0;
  }
}

// Faults are decided when the packet leaves, and show in what arrives.
void VirtualNetwork::send(TimePoint now, std::uint32_t from, const srd::TxPacket& packet) {
  InFlight copy = fresh();
  copy.from = from;
  copy.to = host_at(packet.to);
  copy.source = hosts_[from];
  copy.path = packet.path;
  copy.ecn = packet.ecn;
  copy.header_size = packet.header_size;
  // Payload is copied here, so the sender's memory may change or go from now on.
  copy.bytes.assign(packet.header.begin(), packet.header.begin() + packet.header_size);
  for (const auto& piece : packet.payload) {
    copy.bytes.insert(copy.bytes.end(), piece.begin(), piece.end());
  }
  ++counts_.sent;
  note(now, NetworkEvent::sent, copy);

  const Verdict verdict = judge(copy);
  if (verdict.lose) {
    counts_.lost += srd::mutated(srd::Mutation::lose_uncounted) ? 0 : 1;
    note(now, NetworkEvent::lost, copy);
    recycle(std::move(copy));
    return;
  }
  const TimePoint arrival = through_sending_port(now, copy);
  if (verdict.trim) {
    trim(now, copy);
  }
  if (verdict.mark && copy.ecn != srd::Ecn::not_capable) {
    copy.ecn = srd::Ecn::congested;
    ++counts_.marked;
  }
  const std::size_t payload_at = payload_start(copy);
  if (verdict.corrupt_header) {
    damage(copy, 0, payload_at);
  }
  if (verdict.corrupt_payload) {
    damage(copy, payload_at, copy.bytes.size() - payload_at);
  }
  if (verdict.corrupt_header || verdict.corrupt_payload) {
    ++counts_.corrupted;
    note(now, NetworkEvent::corrupted, copy);
  }
  if (verdict.duplicate) {
    InFlight twin = copy;
    ++counts_.duplicated;
    note(now, NetworkEvent::duplicated, twin);
    // The copy comes up to 30 us behind the original.
    schedule(arrival + verdict.delay + Duration{1 + rng_.below(30'000)}, std::move(twin));
  }
  schedule(arrival + verdict.delay, std::move(copy));
}

void VirtualNetwork::inject(TimePoint when, InFlight packet) {
  ++counts_.injected;
  note(when, NetworkEvent::injected, packet);
  schedule(when, std::move(packet));
}

// A cut link and a dead path lose the packet before any chance is drawn for it. Scripts come before
// chance, so a script meets the same packets whatever the probabilities are.
VirtualNetwork::Verdict VirtualNetwork::judge(const InFlight& packet) {
  Verdict verdict;
  if (packet.to == kNobody || cut_.contains({packet.from, packet.to}) ||
      dead_paths_.contains({packet.from, packet.path.value()})) {
    verdict.lose = true;
    return verdict;
  }
  judge_by_script(packet, verdict);
  judge_by_chance(packet, verdict);
  return verdict;
}

// Every rule that matches counts the packet, so two rules may act on one.
void VirtualNetwork::judge_by_script(const InFlight& packet, Verdict& verdict) {
  const Packet kind = kind_of(packet.bytes);
  for (Rule& rule : rules_) {
    if (rule.count == 0 || !matches(rule.kind, kind) || (rule.from && *rule.from != packet.from) ||
        (rule.to && *rule.to != packet.to) || (rule.path && *rule.path != packet.path.value())) {
      continue;
    }
    if (rule.skip > 0) {
      --rule.skip;
      continue;
    }
    --rule.count;
    switch (rule.action) {
      case Action::lose:
        verdict.lose = true;
        break;
      case Action::duplicate:
        verdict.duplicate = true;
        break;
      case Action::delay:
        verdict.delay = rule.delay;
        break;
      case Action::corrupt_header:
        verdict.corrupt_header = true;
        break;
      case Action::corrupt_payload:
        verdict.corrupt_payload = true;
        break;
      case Action::trim:
        verdict.trim = true;
        break;
      case Action::mark:
        verdict.mark = true;
        break;
    }
  }
}

// A burst of losses hits everything that the host sends, whatever its path.
void VirtualNetwork::judge_by_chance(const InFlight& packet, Verdict& verdict) {
  Port& port = ports_[packet.from];
  if (port.burst_left > 0) {
    --port.burst_left;
    verdict.lose = true;
  } else if (link_.burst > 0 && rng_.chance(link_.burst)) {
    port.burst_left = link_.burst_length;
    verdict.lose = true;
  }
  verdict.lose |= link_.loss > 0 && rng_.chance(link_.loss);
  verdict.duplicate |= link_.duplicate > 0 && rng_.chance(link_.duplicate);
  verdict.trim |= link_.trim > 0 && rng_.chance(link_.trim);
  verdict.mark |= link_.mark > 0 && rng_.chance(link_.mark);
  if (link_.corrupt > 0 && rng_.chance(link_.corrupt)) {
    const bool in_header = packet.bytes.size() == packet.header_size || rng_.below(2) == 0;
    (in_header ? verdict.corrupt_header : verdict.corrupt_payload) = true;
  }
  if (link_.reorder > 0 && rng_.chance(link_.reorder)) {
    verdict.delay += Duration{static_cast<std::int64_t>(
        rng_.between(1, static_cast<std::uint64_t>(link_.reorder_delay.count())))};
    ++counts_.reordered;
  }
}

// Returns when the packet reaches the receiving port: after the sending port, if ports have a rate,
// and the flight. Jitter never changes the order of a path; only `reorder` and `duplicate`, which
// are added later, do.
TimePoint VirtualNetwork::through_sending_port(TimePoint now, InFlight& packet) {
  Duration flight = link_.latency + link_.path_skew * packet.path.value();
  if (link_.jitter > Duration::zero()) {
    flight += Duration{static_cast<std::int64_t>(
        rng_.between(0, static_cast<std::uint64_t>(link_.jitter.count())))};
  }
  TimePoint arrival = now + flight;
  if (!link_.rate.is_zero()) {
    Port& out = ports_[packet.from];
    out.egress_free = std::max(out.egress_free, now) + link_.rate.time_for(packet.bytes.size());
    arrival = out.egress_free + flight;
    packet.queues = true;
  }
  // Not before the packet ahead of it on the same path.
  const std::uint64_t route = (std::uint64_t{packet.from} << 32) | packet.to;
  TimePoint& last = last_arrival_[{route, packet.path.value()}];
  arrival = std::max(arrival, last);
  last = arrival;
  return arrival;
}

// The queue of a port is not a list: its length follows from the time until the port is free. Marks
// or trims the packet if the queue is long; false if the packet is lost, because the queue is full
// and nothing trims.
bool VirtualNetwork::through_receiving_port(TimePoint when, InFlight& packet) {
  Port& in = ports_[packet.to];
  const Bytes queued = in.ingress_free > when ? link_.rate.bytes_in(in.ingress_free - when) : 0;
  if (queued > link_.queue_limit) {
    if (!link_.trim_when_full || packet.bytes.size() == packet.header_size) {
      return false;
    }
    trim(when, packet);
  }
  if (queued > link_.mark_above && packet.ecn != srd::Ecn::not_capable) {
    packet.ecn = srd::Ecn::congested;
    ++counts_.marked;
  }
  in.ingress_free = std::max(in.ingress_free, when) + link_.rate.time_for(packet.bytes.size());
  packet.queues = false;
  return true;
}

// Flips one bit of the `size` bytes from `first` on.
void VirtualNetwork::damage(InFlight& packet, std::size_t first, std::size_t size) {
  if (size == 0) {
    return;
  }
  packet.genuine = false;
  const std::size_t at = first + rng_.below(static_cast<std::uint32_t>(size));
  packet.bytes[at] ^= std::byte{1} << rng_.below(8);
}

void VirtualNetwork::trim(TimePoint now, InFlight& packet) {
  if (packet.bytes.size() <= packet.header_size) {
    return;
  }
  packet.bytes.resize(packet.header_size);
  packet.trimmed = true;
  packet.genuine = false;
  ++counts_.trimmed;
  note(now, NetworkEvent::trimmed, packet);
}

// Packets lie in slots, so that the heap moves small entries. Slots and buffers are used again,
// because long runs would spend their time on allocation otherwise.
void VirtualNetwork::schedule(TimePoint when, InFlight&& packet) {
  std::uint32_t slot = 0;
  if (free_slots_.empty()) {
    slot = static_cast<std::uint32_t>(slots_.size());
    slots_.emplace_back();
  } else {
    slot = free_slots_.back();
    free_slots_.pop_back();
  }
  slots_[slot] = std::move(packet);
  queue_.push_back({when, order_++, slot});
  std::push_heap(queue_.begin(), queue_.end(), [](const Scheduled& a, const Scheduled& b) {
    return a.when != b.when ? a.when > b.when : a.order > b.order;
  });
}

TimePoint VirtualNetwork::next_event() const {
  return queue_.empty() ? kNever : queue_.front().when;
}

// A packet is scheduled twice where ports have a rate: when it reaches the receiving port, and when
// it is through its queue.
bool VirtualNetwork::receive(TimePoint now, InFlight& packet) {
  while (!queue_.empty() && queue_.front().when <= now) {
    const TimePoint when = take_next(packet);
    if (!packet.queues) {
      ++counts_.delivered;
      note(now, NetworkEvent::delivered, packet);
      return true;
    }
    if (through_receiving_port(when, packet)) {
      const TimePoint through = ports_[packet.to].ingress_free;
      schedule(through, std::move(packet));
    } else {
      ++counts_.lost;
      note(when, NetworkEvent::lost, packet);
      recycle(std::move(packet));
    }
  }
  return false;
}

TimePoint VirtualNetwork::take_next(InFlight& packet) {
  std::pop_heap(queue_.begin(), queue_.end(), [](const Scheduled& a, const Scheduled& b) {
    return a.when != b.when ? a.when > b.when : a.order > b.order;
  });
  const Scheduled next = queue_.back();
  queue_.pop_back();
  packet = std::move(slots_[next.slot]);
  free_slots_.push_back(next.slot);
  return next.when;
}

// A packet whose buffer was another packet's before, if one is spare.
VirtualNetwork::InFlight VirtualNetwork::fresh() {
  InFlight packet;
  if (!spare_.empty()) {
    packet.bytes = std::move(spare_.back());
    spare_.pop_back();
  }
  return packet;
}

void VirtualNetwork::recycle(InFlight&& packet) { spare_.push_back(std::move(packet.bytes)); }

// The digest has what engines can see; the observer hears of everything.
void VirtualNetwork::note(TimePoint when, NetworkEvent event, const InFlight& packet) {
  if (event == NetworkEvent::sent || event == NetworkEvent::delivered ||
      event == NetworkEvent::injected) {
    digest_.add(static_cast<std::uint64_t>(nanoseconds(when)) ^
                (static_cast<std::uint64_t>(event) << 60));
    digest_.add((std::uint64_t{packet.from} << 40) ^ (std::uint64_t{packet.to} << 16) ^
                packet.path.value());
    digest_.add(packet.bytes);
  }
  if (observer_) {
    observer_(when, event, packet);
  }
}

}  // namespace weft::world
