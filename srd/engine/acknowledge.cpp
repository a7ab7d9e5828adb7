// Owns what a sender learns from an acknowledgement: what arrived, what did not, and along which
// paths.
//
// A packet in flight turns out to be lost in one of four ways, the surest first:
// - The peer says so: only its header has arrived, or it had no room to note the outcome
//   (take_result()).
// - A gap: more than path_reorder_tolerance packets that left later along the same path have
//   arrived. A path keeps its order (find_gaps()).
// - Time: a packet that left longer than RttEstimator::reorder_allowance() after it has arrived,
//   along whatever path. Paths differ in delay, but not by that much (find_losses()).
// - Silence: no answer for a retransmission timeout (expire_packets() in timers.cpp). Only this one
//   backs off.
// The last two make PathHealth suspect the path (PathEvent::timeout). If a packet taken for lost
// turns out to have arrived, LossDetector makes the third way more patient.
#include <algorithm>

#include "srd/engine/engine.hpp"
#include "srd/engine/mutation.hpp"

namespace weft::srd {
namespace {

constexpr std::uint64_t low_bits(std::uint32_t count) {
  return count >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << count) - 1;
}

}  // namespace

void Engine::on_ack(TimePoint now, TimePoint arrived, Peer& peer,
                    const wire::ParsedPacket& packet) {
  if (!peer.out) {
    counters_.drop(DropReason::ack_for_nothing);
    return;
  }
  Outbound& o = *peer.out;
  const wire::AckHeader header = packet.ack();
  // [wire 4.4] Without a window the peer can speak of the echo only: its numbers begin nowhere.
  const bool has_window = !packet.has(wire::kNoWindow);
  const Psn cumulative = has_window ? Psn{header.cumulative.value()} : o.window.una();
  if (o.window.next().before(cumulative)) {
    counters_.drop(DropReason::ack_not_sent);
    return;
  }
  if (cumulative.before(o.window.una()) && o.window.una().minus(cumulative) >= PsnBitmap::kBits) {
    counters_.drop(DropReason::ack_for_nothing);
    return;
  }
  ++counters_.acks_received;
  o.prefetch_to_control();
  peer.heard = true;
  o.timer.on_ack(now);

  AckSample sample;
  sample.now = now;
  sample.path = PathId{header.common.path.value()};
  sample.congested = packet.has(wire::kEchoCongested);
  if (packet.has(wire::kEchoValid)) {
    o.timer.on_answer(now);
    take_echo(now, arrived, peer, header, sample);
  }
  take_grant(peer, header);
  take_results(now, peer, packet, header.results);
  if (has_window) {
    take_sack(now, peer, packet, header, sample);
  }
  sample.in_flight = o.window.bytes_in_flight();
  find_gaps(now, peer);
  find_losses(now, peer);
  if (sample.acked != 0) {
    o.cc.on_ack(sample);
  }
  if (o.has_work()) {
    make_ready(peer);
  }
}

[[gnu::always_inline]] inline void Engine::take_echo(TimePoint now, TimePoint arrived, Peer& peer,
                                                     const wire::AckHeader& header,
                                                     AckSample& sample) {
  Outbound& o = *peer.out;
  const std::uint32_t elapsed =
      static_cast<std::uint32_t>(nanoseconds(now)) - header.echo_send_time.value();
  const std::uint32_t wait = header.wait.value();
  // [wire 4.4] A copy that lingered in the network or half the clock's range measures nothing. The
  // echo of an earlier transmission does: the time in it is that transmission's own.
  const bool probe = (header.common.flags & wire::kEchoProbe) != 0;
  const Psn psn{header.echo_psn.value()};
  const bool current =
      probe ? header.echo_send_time.value() == o.last_probe_time
            : o.window.contains(psn) && o.window.slot(psn).state != SendSlot::State::settled;
  if (current && elapsed <= 0x7FFFFFFF && wait <= elapsed) {
    // The network is judged by its own time; what is waited for takes that of the processes, too.
    const Duration whole{elapsed - wait};
    sample.rtt = std::max(whole - (now - arrived), Duration::zero());
    sample.rtt_valid = true;
    o.timer.on_round_trip(now, whole, patience_);
  }
  if (probe) {
    if (header.common.path.value() < config_.paths) {
      path_feedback(now, peer, sample.path, PathEvent::probe_ok, sample.rtt);
    }
    // The probe left so long ago: whatever left long before it and is not here is lost.
    if (sample.rtt_valid) {
      o.losses.on_arrival(now - Duration{elapsed});
    }
  }
}

void Engine::take_results(TimePoint now, Peer& peer, const wire::ParsedPacket& packet,
                          std::size_t count) {
  SendWindow& window = peer.out->window;
  for (std::size_t i = 0; i < count; ++i) {
    const wire::ResultEntry entry = packet.result(i);
    const Psn psn{entry.psn.value()};
    if (!window.contains(psn)) {
      continue;  // repeated until the peer has seen that we have moved on
    }
    SendSlot& slot = window.slot(psn);
    if (slot.state != SendSlot::State::settled) {
      take_result(now, peer, slot, entry);
    }
  }
}

void Engine::take_result(TimePoint now, Peer& peer, SendSlot& slot,
                         const wire::ResultEntry& entry) {
  Outbound& o = *peer.out;
  const bool again = slot.state == SendSlot::State::in_flight && slot.attempt == entry.attempt;
  switch (entry.code) {
    case wire::kResultTrimmed:
      if (again) {
        lose(now, peer, slot, PathEvent::trimmed);
      }
      break;
    case wire::kResultDeferred:
      if (again) {
        schedule_.arm(peer, o.window.mark_deferred(slot, now, config_.rnr_delay));
      }
      break;
    default:
      refuse_work(now, peer, slot, static_cast<Status>(entry.code));
      break;
  }
}

// visit(claim, first number of the word) for each word of the map with claims that are news.
template <class Visit>
[[gnu::always_inline]] inline void Engine::for_each_claim(const SendWindow& window,
                                                          const wire::ParsedPacket& packet,
                                                          const wire::AckHeader& header,
                                                          const Visit& visit) const {
  const Psn next = window.next();
  const Psn cumulative{header.cumulative.value()};
  const Psn mapped{cumulative.value() & ~63U};  // what the first word of the map begins with
  Psn end = cumulative;
  if (header.sack_words != 0) {
    end = mapped.plus(64U * header.sack_words);
  }
  if (next.before(end)) {
    end = next;
  }
  for (Psn at{window.una().value() & ~63U}; at.before(end); at = at.plus(64)) {
    // Settling moves una, and what is before it has no bits any more: ask for each word.
    const Psn una = window.una();
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
    claim &= ~window.settled_word(at);
    if (claim != 0) {
      visit(claim, at);
    }
  }
}

// [wire 4.4] How many of the newly acknowledged packets were marked is known, which ones only if it
// is one, or all.
inline Engine::OtherMarks Engine::take_marks(Outbound& out, const wire::ParsedPacket& packet,
                                             const wire::AckHeader& header,
                                             AckSample& sample) const {
  const auto more = static_cast<std::int32_t>(header.marked.value() - out.marked);
  if (more <= 0) [[likely]] {
    return OtherMarks::none;
  }
  out.marked = header.marked.value();
  std::uint32_t packets = 0;
  for_each_claim(out.window, packet, header, [&](std::uint64_t claim, Psn) {
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

// Everything that is claimed and was not known before.
void Engine::take_sack(TimePoint now, Peer& peer, const wire::ParsedPacket& packet,
                       const wire::AckHeader& header, AckSample& sample) {
  SendWindow& window = peer.out->window;
  const OtherMarks others = take_marks(*peer.out, packet, header, sample);
  gaps_.clear();
  for_each_claim(window, packet, header, [&](std::uint64_t claim, Psn at) {
    for (; claim != 0; claim &= claim - 1) {
      SendSlot& slot = window.slot(at.plus(static_cast<std::uint32_t>(std::countr_zero(claim))));
      ++sample.packets;
      sample.acked += SendWindow::charged(slot);
      sample.late |= take_slot(now, peer, slot, header, sample.rtt, others);
    }
  });
}

// True if the packet had been taken for lost.
[[gnu::always_inline]] inline bool Engine::take_slot(TimePoint now, Peer& peer, SendSlot& slot,
                                                     const wire::AckHeader& header, Duration rtt,
                                                     OtherMarks others) {
  Outbound& o = *peer.out;
  bool late = false;
  constexpr std::uint8_t kEchoMask = wire::kEchoValid | wire::kEchoProbe;
  const bool echoed = (header.common.flags & kEchoMask) == wire::kEchoValid &&
                      header.echo_psn.value() == slot.psn.value();
  // Which transmission arrived is known if there was only one, or if the echo says so.
  if (slot.attempt == 0 || (echoed && header.common.attempt == slot.attempt)) {
    const bool marked =
        echoed ? (header.common.flags & wire::kEchoCongested) != 0 : others == OtherMarks::all;
    credit_path(now, peer, slot, marked, echoed || others != OtherMarks::some,
                echoed ? rtt : Duration::zero());
    if (slot.state == SendSlot::State::in_flight) {
      o.losses.on_arrival(slot.sent_at);
      gaps_.note_arrival(slot);
    } else {
      late = true;
    }
  } else if (echoed) {
    ++counters_.spurious_retrans_pkts;
    late = true;
  }
  if (late) {
    o.losses.on_mistake();
  }
  tell(Event::Kind::packet_settled, now, peer, slot.psn, PathId{slot.path});
  const std::uint32_t index = slot.work;
  o.window.settle(slot);
  Work& work = works_[index];
  --work.outstanding;
  o.losses.on_settled();
  finish_if_done(index, work);
  return late;
}

// The path has brought a packet here. A policy that heard of a clean path where the mark is not
// known would go on with the paths that are full.
inline void Engine::credit_path(TimePoint now, Peer& peer, const SendSlot& slot, bool marked,
                                bool known, Duration rtt) {
  const PathId path{slot.path};
  if (known || mutated(Mutation::marks_in_bursts_count_once)) [[likely]] {
    path_feedback(now, peer, path, marked ? PathEvent::congested : PathEvent::good, rtt);
  } else {
    path_delivery(now, peer, path);
  }
}

void Engine::find_gaps(TimePoint now, Peer& peer) {
  gaps_.find(peer.out->window, config_.path_reorder_tolerance, [&](SendSlot& slot) {
    ++counters_.lost_by_gap;
    lose(now, peer, slot, PathEvent::gap);
  });
}

void Engine::find_losses(TimePoint now, Peer& peer) {
  Outbound& o = *peer.out;
  o.losses.find(o.window, o.timer.rtt(), [&](SendSlot& slot) {
    ++counters_.lost_by_time;
    lose(now, peer, slot, PathEvent::timeout);
  });
}

void Engine::lose(TimePoint now, Peer& peer, SendSlot& slot, PathEvent how) {
  Outbound& o = *peer.out;
  LossKind kind = LossKind::gap;
  switch (how) {
    case PathEvent::trimmed:
      kind = LossKind::trimmed;
      ++counters_.lost_by_trim;
      break;
    case PathEvent::timeout:
      kind = LossKind::timeout;
      break;
    default:
      break;
  }
  if (mutated(Mutation::settle_lost)) [[unlikely]] {
    const std::uint32_t index = slot.work;
    o.window.settle(slot);
    --works_[index].outstanding;
    finish_if_done(index, works_[index]);
    return;
  }
  o.window.mark_lost(slot);
  o.cc.on_loss(now, SendWindow::charged(slot), kind, PathId{slot.path});
  tell(Event::Kind::packet_lost, now, peer, slot.psn, PathId{slot.path},
       static_cast<std::uint64_t>(how));
  path_feedback(now, peer, PathId{slot.path}, how, Duration::zero());
  make_ready(peer);
}

[[gnu::always_inline]] inline void Engine::path_feedback(TimePoint now, Peer& peer, PathId path,
                                                         PathEvent event, Duration rtt) {
  PeerPaths& paths = peer.out->paths;
  if (event == PathEvent::timeout && mutated(Mutation::never_abandon_paths)) [[unlikely]] {
    return;
  }
  const std::uint16_t bad = paths.health().bad_paths();
  if (paths.on_feedback(now, path, event, rtt)) [[unlikely]] {
    ++counters_.paths_abandoned;
    tell(Event::Kind::path_abandoned, now, peer, Psn{}, path);
    schedule_.arm(peer, paths.next_probe());
  } else {
    note_recovery(now, peer, path, bad);
  }
}

// A packet came through, and its mark is not known.
void Engine::path_delivery(TimePoint now, Peer& peer, PathId path) {
  PeerPaths& paths = peer.out->paths;
  const std::uint16_t bad = paths.health().bad_paths();
  paths.on_delivery(now, path);
  note_recovery(now, peer, path, bad);
}

inline void Engine::note_recovery(TimePoint now, const Peer& peer, PathId path,
                                  std::uint16_t bad_before) {
  if (peer.out->paths.health().bad_paths() < bad_before) [[unlikely]] {
    ++counters_.paths_recovered;
    tell(Event::Kind::path_recovered, now, peer, Psn{}, path);
  }
}

// [wire 3.7] The peer's life that we spoke to is over. Accepted only if the notice quotes the life
// we last used for this peer.
void Engine::on_stale_notice(TimePoint now, Peer& peer, Life source, Life destination,
                             Life refused) {
  if (destination != config_.life) {
    counters_.drop(DropReason::stale_destination_life);
  } else if (!peer.life.is(refused) || !peer.life.is_followed_by(source)) {
    counters_.drop(DropReason::stale_source_life);
  } else {
    restart_peer(now, peer, source);
  }
}

}  // namespace weft::srd
