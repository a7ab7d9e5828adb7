// Owns what a sender learns from an acknowledgement: what has arrived, what has not, and along
// which paths.
//
// A packet in flight turns out to be lost in one of four ways, the surest first:
// - The peer says so: only the packet's header has arrived, or the peer had no room to note the
//   outcome (take_result()).
// - A gap: more than path_reorder_tolerance packets that left later along the same path have
//   arrived. A path keeps its order (find_gaps()).
// - Time: a packet that left longer than RttEstimator::reorder_allowance() after it has arrived,
//   along whatever path. Paths differ in delay, but not by that much (find_losses()).
// - Silence: no answer for a retransmission timeout (expire_packets() in timers.cpp). Only this one
//   backs off.
// The last two make PathHealth suspect the path (PathEvent::timeout). If a packet taken for lost
// turns out to have arrived, LossDetector makes the third way more patient.
#include <algorithm>

#include "srd/engine/engine_parts.hpp"
#include "srd/engine/mutation.hpp"

namespace weft::srd {
namespace {

constexpr std::uint64_t low_bits(std::uint32_t count) {
  return count >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << count) - 1;
}

}  // namespace

[[gnu::hot]] bool Sender::on_ack(TimePoint now, TimePoint arrived,
                                 const wire::ParsedPacket& packet) {
  const wire::AckHeader header = packet.ack();
  // [wire 4.4] Without a window the peer can speak of the echo only: its numbers begin nowhere.
  const bool has_window = !packet.has(wire::kNoWindow);
  const Psn cumulative = has_window ? Psn{header.cumulative.value()} : window_.una();
  if (window_.next().before(cumulative)) {
    parts_.counters.drop(DropReason::ack_not_sent);
    return false;
  }
  if (cumulative.before(window_.una()) && window_.una().minus(cumulative) >= PsnBitmap::kBits) {
    parts_.counters.drop(DropReason::ack_for_nothing);
    return false;
  }
  ++parts_.counters.acks_received;
  prefetch(&cc_, sizeof cc_);
  heard_ = true;
  timer_.on_ack(now);

  AckSample sample;
  sample.now = now;
  sample.path = PathId{header.common.path.value()};
  sample.congested = packet.has(wire::kEchoCongested);
  if (packet.has(wire::kEchoValid)) {
    timer_.on_answer(now);
    take_echo(now, arrived, header, sample);
  }
  if (packet.has(wire::kCreditValid)) {
    take_grant(arrived, header.credit.value());
  }
  parts_.gaps.clear();
  take_results(now, packet, header.results, sample);
  if (has_window) {
    take_sack(now, packet, header, sample);
    find_gaps(now);
  }
  sample.in_flight = window_.bytes_in_flight();
  find_losses(now);
  if (sample.acked != 0) {
    cc_.on_ack(sample);
  }
  if (has_work()) {
    if (parts_.asks_distance && how_far_.due(now)) {
      requests_wanted_ = 1;
    }
    make_ready();
  }
  // Waits may have become much shorter. What is in flight expires later than its tail is asked for.
  if (window_.bytes_in_flight() != 0) {
    parts_.schedule.arm(peer_, timer_.tail_probe_due(parts_.patience));
  }
  return true;
}

[[gnu::always_inline]] inline void Sender::take_echo(TimePoint now, TimePoint arrived,
                                                     const wire::AckHeader& header,
                                                     AckSample& sample) {
  const std::uint32_t elapsed =
      static_cast<std::uint32_t>(nanoseconds(now)) - header.echo_send_time.value();
  const std::uint32_t wait = header.wait.value();
  // [wire 4.4] The echo of a packet that is settled already measures nothing: it may be of a copy
  // that the network has held back. Nor does an echo older than half the clock's range. That of an
  // earlier transmission does: the time in it is that transmission's own.
  const bool probe = (header.common.flags & wire::kEchoProbe) != 0;
  const Psn psn{header.echo_psn.value()};
  const bool current =
      probe ? header.echo_send_time.value() - probed_since_ <= last_probe_time_ - probed_since_
            : window_.contains(psn) && window_.slot(psn).state != SendSlot::State::settled;
  if (current && elapsed <= 0x7FFFFFFF && wait <= elapsed) {
    // Congestion control sees the time in the network alone. The timers see the time that the two
    // processes took as well, for that is how long an answer takes.
    const Duration whole{elapsed - wait};
    sample.rtt = std::max(whole - (now - arrived), Duration::zero());
    sample.rtt_valid = true;
    timer_.on_round_trip(now, whole, parts_.patience);
  }
  if (probe) {
    if (header.common.path.value() < parts_.config.paths) {
      path_feedback(now, sample.path, PathEvent::probe_ok, sample.rtt);
    }
    // The probe left `elapsed` ago and is here: what left long before it and is not, is lost.
    if (sample.rtt_valid) {
      losses_.on_arrival(now - Duration{elapsed});
    }
  }
}

void Sender::take_results(TimePoint now, const wire::ParsedPacket& packet, std::size_t count,
                          AckSample& sample) {
  for (std::size_t i = 0; i < count; ++i) {
    const wire::ResultEntry entry = packet.result(i);
    const Psn psn{entry.psn.value()};
    if (!window_.contains(psn)) {
      continue;  // repeated until the peer has seen that we have moved on
    }
    SendSlot& slot = window_.slot(psn);
    if (slot.state != SendSlot::State::settled) {
      take_result(now, slot, entry, sample);
    }
  }
}

void Sender::take_result(TimePoint now, SendSlot& slot, const wire::ResultEntry& entry,
                         AckSample& sample) {
  const bool again = slot.state == SendSlot::State::in_flight && slot.attempt == entry.attempt;
  switch (entry.code) {
    case wire::kResultTrimmed:
      if (again) {
        lose(now, slot, PathEvent::trimmed);
      }
      break;
    case wire::kResultDeferred:
      if (again) {
        note_refused_arrival(slot);
        credits_.want(slot.length);
        parts_.schedule.arm(peer_, window_.mark_deferred(slot, now, parts_.config.rnr_delay));
      }
      break;
    default:
      if (slot.state == SendSlot::State::in_flight && slot.attempt == 0) {
        note_refused_arrival(slot);  // of which transmission is known: there was only one
      }
      // The network has delivered it, whatever the peer thinks of it: a sender of which everything
      // is refused must not keep the window of its last losses.
      ++sample.packets;
      sample.acked += SendWindow::charged(slot);
      refuse(now, slot, static_cast<Status>(entry.code));
      break;
  }
}

// The latest transmission of this packet has arrived, whatever became of it there: what left before
// it may turn out to be lost.
inline void Sender::note_arrival(const SendSlot& slot) {
  losses_.on_arrival(slot.sent_at);
  parts_.gaps.note_arrival(slot);
}

// So has that of a packet which the peer could not take. Each such answer puts off the
// retransmission timeout: where nothing that arrives is taken, nothing else would tell of losses.
inline void Sender::note_refused_arrival(const SendSlot& slot) {
  if (!mutated(Mutation::refusals_show_nothing)) {
    note_arrival(slot);
  }
}

// [wire 4.3] The peer has refused this packet for good. A receiver that was not ready, or a
// responder that was busy, is asked again later: with a new sequence number, because this one's
// fate is on record.
void Sender::refuse(TimePoint now, SendSlot& slot, Status status) {
  const std::uint32_t index = slot.work;
  Work& work = parts_.works[index];
  const std::uint32_t packet = slot.packet;
  settle(slot);
  --work.outstanding;
  const bool retry = (status == Status::receiver_not_ready &&
                      (work.rnr_retry >= kRnrRetryForever || work.refusals < work.rnr_retry ||
                       mutated(Mutation::retry_without_end))) ||
                     (status == Status::responder_busy && work.kind == WorkKind::read);
  if (retry && work.revoked) {
    parts_.works.abandon(index, Status::local_protection);
    return;
  }
  if (!retry || work.queued() || work.resend != Work::kNoPacket || work.status != Status::ok) {
    parts_.works.abandon(index, mutated(Mutation::lose_status) ? Status::ok : status);
    return;
  }
  const std::uint32_t n = std::min<std::uint32_t>(work.refusals, kBackOffs - 1);
  const std::uint32_t doublings =
      mutated(Mutation::back_off_without_end) ? std::min<std::uint32_t>(work.refusals, 24) : n;
  work.refusals = static_cast<std::uint16_t>(std::min(work.refusals + 1, 0xFFFF));
  work.resend = packet;
  work.not_before = now + parts_.config.rnr_delay * (1 << doublings);
  credits_.want(slot.length);
  ++parts_.counters.rnr_retries;
  queues_.push_back(parts_.works.slab(), WorkQueues::back_off(n), index, work);
  parts_.schedule.arm(peer_, work.not_before);
}

// visit(claim, first number of the word) for each word of the map with claims that are news.
template <class Visit>
[[gnu::always_inline]] inline void Sender::for_each_claim(const wire::ParsedPacket& packet,
                                                          const wire::AckHeader& header,
                                                          const Visit& visit) const {
  const Psn next = window_.next();
  const Psn cumulative{header.cumulative.value()};
  const Psn mapped{cumulative.value() & ~63U};  // what the first word of the map begins with
  Psn end = cumulative;
  if (header.sack_words != 0) {
    end = mapped.plus(64U * header.sack_words);
  }
  if (next.before(end)) {
    end = next;
  }
  for (Psn at{window_.una().value() & ~63U}; at.before(end); at = at.plus(64)) {
    // Settling moves una, and what is before it has no bits any more: ask for each word.
    const Psn una = window_.una();
    std::uint64_t claim = 0;
    if (at.before(cumulative)) {
      claim = low_bits(cumulative.minus(at));
    }
    if (!at.before(mapped) && at.minus(mapped) / 64 < header.sack_words) {
      claim |= packet.sack_word(at.minus(mapped) / 64);
    }
    if (at.before(una)) {
      claim &= ~low_bits(una.minus(at));
    }
    if (next.minus(at) < 64) {
      claim &= low_bits(next.minus(at));
    }
    claim &= ~window_.settled_word(at);
    if (claim != 0) {
      visit(claim, at);
    }
  }
}

// [wire 4.4] The peer tells how many packets it has seen marked, and its echo one of them. So which
// of the newly acknowledged packets were marked is known only if it is one, or all.
inline Sender::OtherMarks Sender::take_marks(const wire::ParsedPacket& packet,
                                             const wire::AckHeader& header, AckSample& sample) {
  const auto more = static_cast<std::int32_t>(header.marked.value() - marked_);
  if (more <= 0) [[likely]] {
    return OtherMarks::none;
  }
  marked_ = header.marked.value();
  std::uint32_t packets = 0;
  for_each_claim(packet, header, [&](std::uint64_t claim, Psn) {
    packets += static_cast<std::uint32_t>(std::popcount(claim));
  });
  sample.marked = std::min(static_cast<std::uint32_t>(more), packets);
  if (mutated(Mutation::marks_in_bursts_count_once)) [[unlikely]] {
    sample.marked = std::min(sample.marked, 1U);
  }
  if (sample.marked == packets) {
    return OtherMarks::all;
  }
  return sample.marked == 1 && sample.congested ? OtherMarks::none : OtherMarks::some;
}

// Settles every packet that this acknowledgement is the first to claim.
[[gnu::hot]] void Sender::take_sack(TimePoint now, const wire::ParsedPacket& packet,
                                    const wire::AckHeader& header, AckSample& sample) {
  const OtherMarks others = take_marks(packet, header, sample);
  for_each_claim(packet, header, [&](std::uint64_t claim, Psn at) {
    for (; claim != 0; claim &= claim - 1) {
      SendSlot& slot = window_.slot(at.plus(static_cast<std::uint32_t>(std::countr_zero(claim))));
      ++sample.packets;
      sample.acked += SendWindow::charged(slot);
      sample.late |= take_slot(now, slot, header, sample.rtt, others);
    }
  });
}

// True if the packet had been taken for lost.
[[gnu::always_inline]] inline bool Sender::take_slot(TimePoint now, SendSlot& slot,
                                                     const wire::AckHeader& header, Duration rtt,
                                                     OtherMarks others) {
  bool late = false;
  constexpr std::uint8_t kEchoMask = wire::kEchoValid | wire::kEchoProbe;
  const bool echoed = (header.common.flags & kEchoMask) == wire::kEchoValid &&
                      header.echo_psn.value() == slot.psn.value();
  // Which transmission arrived is known if there was only one, or if the echo says so.
  if (slot.attempt == 0 || (echoed && header.common.attempt == slot.attempt)) {
    const bool marked =
        echoed ? (header.common.flags & wire::kEchoCongested) != 0 : others == OtherMarks::all;
    credit_path(now, slot, marked, echoed || others != OtherMarks::some,
                echoed ? rtt : Duration::zero());
    if (slot.state == SendSlot::State::in_flight) {
      note_arrival(slot);
    } else {
      late = true;
    }
  } else if (echoed) {
    ++parts_.counters.spurious_retrans_pkts;
    late = true;
  }
  if (late) {
    losses_.on_mistake();
  }
  parts_.tell(Event::Kind::packet_settled, now, peer_.id, slot.psn, PathId{slot.path});
  const std::uint32_t index = slot.work;
  settle(slot);
  Work& work = parts_.works[index];
  --work.outstanding;
  losses_.on_settled();
  parts_.works.finish_if_done(index, work);
  return late;
}

// The path has brought a packet to the peer. Where it is not known whether the packet was marked
// (`known` is false), the policy is not told: taken for a clean one, it would keep the policy on
// paths that are full. Of a run it hears once, as it was asked once: if each packet brought its
// path back, one path would soon have taken the place of all others.
inline void Sender::credit_path(TimePoint now, const SendSlot& slot, bool marked, bool known,
                                Duration rtt) {
  const PathId path{slot.path};
  const PathEvent event = marked ? PathEvent::congested : PathEvent::good;
  if (!known && !mutated(Mutation::marks_in_bursts_count_once)) [[unlikely]] {
    path_delivery(now, path, PathEvent::congested);
  } else if (parts_.config.path_run != 0 && !ends_run(slot) &&
             !mutated(Mutation::runs_come_back_whole)) {
    path_delivery(now, path, event);
  } else {
    path_feedback(now, path, event, rtt);
  }
}

// The last packet of a run has met what the others have queued.
bool Sender::ends_run(const SendSlot& slot) {
  const Psn following{slot.psn.value() + 1};
  if (!window_.contains(following)) {
    return true;
  }
  const SendSlot& next = window_.slot(following);
  return next.path != slot.path || next.sent_at != slot.sent_at;
}

void Sender::find_gaps(TimePoint now) {
  parts_.gaps.find(window_, parts_.config.path_reorder_tolerance, [&](SendSlot& slot) {
    ++parts_.counters.lost_by_gap;
    lose(now, slot, PathEvent::gap);
  });
}

void Sender::find_losses(TimePoint now) {
  losses_.find(window_, timer_.rtt(), [&](SendSlot& slot) {
    ++parts_.counters.lost_by_time;
    lose(now, slot, PathEvent::timeout);
  });
}

void Sender::lose(TimePoint now, SendSlot& slot, PathEvent how) {
  LossKind kind = LossKind::gap;
  switch (how) {
    case PathEvent::trimmed:
      kind = LossKind::trimmed;
      ++parts_.counters.lost_by_trim;
      break;
    case PathEvent::timeout:  // an answer has shown it, or silence
      kind = timer_.is_silent() ? LossKind::timeout : LossKind::gap;
      break;
    default:
      break;
  }
  if (mutated(Mutation::settle_lost)) [[unlikely]] {
    const std::uint32_t index = slot.work;
    settle(slot);
    --parts_.works[index].outstanding;
    parts_.works.finish_if_done(index, parts_.works[index]);
    return;
  }
  if (parts_.patience.losses_are_reported && how != PathEvent::trimmed) {
    credits_.on_lost_on_the_way(slot.length);
  } else {
    credits_.on_lost(slot.length);
  }
  window_.mark_lost(slot);
  cc_.on_loss(now, SendWindow::charged(slot), kind, PathId{slot.path});
  parts_.tell(Event::Kind::packet_lost, now, peer_.id, slot.psn, PathId{slot.path},
              static_cast<std::uint64_t>(how));
  path_feedback(now, PathId{slot.path}, how, Duration::zero());
  make_ready();
}

[[gnu::always_inline]] inline void Sender::path_feedback(TimePoint now, PathId path,
                                                         PathEvent event, Duration rtt) {
  if (event == PathEvent::timeout && mutated(Mutation::never_abandon_paths)) [[unlikely]] {
    return;
  }
  const PathChange change = paths_.on_feedback(now, path, event, rtt);
  if (change != PathChange::none) [[unlikely]] {
    note_change(now, path, change);
  }
}

// A packet came through, which says nothing to the policy.
void Sender::path_delivery(TimePoint now, PathId path, PathEvent event) {
  const PathChange change = paths_.on_delivery(now, path, event);
  if (change != PathChange::none) [[unlikely]] {
    note_change(now, path, change);
  }
}

void Sender::note_change(TimePoint now, PathId path, PathChange change) {
  if (change == PathChange::abandoned) {
    ++parts_.counters.paths_abandoned;
    parts_.tell(Event::Kind::path_abandoned, now, peer_.id, Psn{}, path);
    parts_.schedule.arm(peer_, paths_.next_probe());
  } else {
    ++parts_.counters.paths_recovered;
    parts_.tell(Event::Kind::path_recovered, now, peer_.id, Psn{}, path);
  }
}

}  // namespace weft::srd
