// Owns what happens when time passes: overdue acknowledgements, lost tails, dead peers, waiting
// requests.
//
// Acknowledgements have a queue of their own, because they all wait equally long. For the rest each
// peer has one deadline, the earliest of next_deadline(): requests and packets whose back-off ends,
// packets that expire, a tail whose last acknowledgement is missing, paths to probe, and a peer
// that owes an answer and is silent. Sending adds pacing to these. When the deadline is due,
// on_peer_timeout() looks at all of them: what is not due costs a comparison.
#include <algorithm>
#include <utility>

#include "srd/engine/engine.hpp"
#include "srd/engine/mutation.hpp"

namespace weft::srd {
namespace {

constexpr std::uint32_t kMaxBackoffShift = 6;
constexpr std::uint32_t kTimeoutsToDie = 3;  // at least, whatever the clock says
constexpr int kPatience = 4;                 // timeouts before a silent debtor is asked
constexpr Duration kShortestNap = std::chrono::microseconds{1};

}  // namespace

void Engine::on_timeout(TimePoint at) {
  const TimePoint now = advance(at);
  schedule_.queue_overdue_replies(now);
  while (Peer* const peer = schedule_.take_due(now)) {
    on_peer_timeout(now, *peer);
    const TimePoint next = next_deadline(*peer);
    if (next != kNever) {
      schedule_.arm(*peer, std::max(next, now + kShortestNap));
    }
  }
}

void Engine::on_peer_timeout(TimePoint now, Peer& peer) {
  if (!peer.out) {
    return;
  }
  Outbound& o = *peer.out;
  release_waiting(now, o.queues);
  while (o.window.release_deferred(now)) {
  }
  expire_packets(now, peer);
  ask_for_life(now, peer);
  const bool tail_silent = o.window.oldest_in_flight() != nullptr && !o.tail_probed && peer.heard &&
                           o.last_progress + o.tail_wait <= now;
  if (tail_silent) {
    o.tail_probed = true;
    o.tail_probe_wanted = true;
    ++counters_.tail_probes;
  }
  if (o.tail_probe_wanted || o.has_work() || path_probe_due(o) <= now) {
    make_ready(peer);
  }
}

// A packet expires a timeout after it has left or, if that was later, after the peer has answered a
// packet of ours: in a queue that grows faster than the estimate learns of it every packet is older
// than the timeout, while answers go on telling what is lost. As in RFC 6298, 5.3. Grants of
// credits are no answers.
TimePoint Engine::expiry_of(const Outbound& out, const SendSlot& slot) {
  return std::max(slot.sent_at, out.last_answer) + out.retransmit_wait;
}

void Engine::expire_packets(TimePoint now, Peer& peer) {
  Outbound& o = *peer.out;
  SendSlot* slot = o.window.oldest_in_flight();
  if (slot == nullptr || expiry_of(o, *slot) > now) {
    return;
  }
  const TimePoint latest = now - o.retransmit_wait;  // before it doubles
  if (died_of_silence(now, peer, slot->sent_at)) {
    return;
  }
  for (; slot != nullptr && slot->sent_at <= latest; slot = o.window.oldest_in_flight()) {
    ++counters_.lost_by_timeout;
    ++counters_.retrans_timeout_events;
    lose(now, peer, *slot, PathEvent::timeout);
  }
}

// One more timeout without a sign of life; the first one since `since`. True if that ended the
// peer.
bool Engine::died_of_silence(TimePoint now, Peer& peer, TimePoint since) {
  Outbound& o = *peer.out;
  if (o.timeouts == 0) {
    o.silence = Duration::zero();
    o.timed_out_at = since;
  }
  // No wait is meant to be longer than max_rto: what is beyond it this process has slept through,
  // stopped or without a core, and heard nobody.
  o.silence += std::min(now - o.timed_out_at, config_.max_rto);
  o.timed_out_at = now;
  ++o.timeouts;
  ++o.backoff;
  update_waits(o);
  if (o.timeouts == kTimeoutsToDie) {
    ++counters_.impaired_remote_conn_events;
  }
  if (o.timeouts < kTimeoutsToDie || o.silence < config_.peer_timeout) {
    return false;
  }
  lose_peer(now, peer);
  return true;
}

// When the next abandoned path shall be probed. A peer for whom there is no work may die unnoticed:
// after a while without a sign of life it is left alone.
TimePoint Engine::path_probe_due(const Outbound& out) const {
  const TimePoint due = out.paths.next_probe();
  const bool busy = out.window.oldest_in_flight() != nullptr || out.has_work();
  const bool wanted = busy || due - out.last_progress < config_.peer_timeout;
  return !out.muted && wanted ? due : kNever;
}

// Nothing is in flight that could time out, and yet something has to come: the bytes of a read, or
// credits.
bool Engine::owed_by_peer(const Outbound& out) const {
  return !out.muted && out.window.oldest_in_flight() == nullptr &&
         (mutated(Mutation::ask_for_nothing) || out.reads_outstanding != 0 ||
          (out.has_work() && !has_credit(out)));
}

// When a peer that owes us something is to be asked. A debtor has time; a question is answered at
// once, and without an answer it is as lost as any packet.
TimePoint Engine::question_due(const Outbound& out) {
  return out.asked_at > out.last_progress ? out.asked_at + out.retransmit_wait
                                          : out.last_progress + kPatience * out.retransmit_wait;
}

// A peer that owes us something may have died meanwhile: ask, and count silence as timeouts.
// [wire 4.7]
void Engine::ask_for_life(TimePoint now, Peer& peer) {
  Outbound& o = *peer.out;
  if (!owed_by_peer(o) || question_due(o) > now) {
    return;
  }
  const bool unanswered = o.asked_at > o.last_progress;
  const TimePoint asked_before = std::exchange(o.asked_at, now);
  if (unanswered && died_of_silence(now, peer, asked_before)) {
    return;
  }
  if (has_credit(o)) {
    o.tail_probe_wanted = true;
  } else {
    o.ask_again = true;
  }
  make_ready(peer);
}

// Requests whose back-off is over go back to where they came from.
void Engine::release_waiting(TimePoint now, WorkQueues& queues) {
  const auto is_due = [&](std::uint32_t index) { return works_[index].not_before <= now; };
  const auto release = [&](std::uint32_t index) {
    Work& work = works_[index];
    queues.remove(works_, index, work);
    if (work.kind == WorkKind::read) {
      // A read that was refused counts as outstanding: behind new ones, which wait for it, it would
      // wait for ever.
      queues.push_front(works_, Queue::reads, index, work);
    } else {
      queues.push_back(works_, Queue::singles, index, work);
    }
  };
  for (std::uint32_t n = 0; n < kBackOffs; ++n) {
    const Queue queue = WorkQueues::back_off(n);
    while (!queues.empty(queue) && is_due(queues.front(queue))) {
      release(queues.front(queue));
    }
  }
  queues.for_each(works_, Queue::held_back, [&](std::uint32_t index) {
    if (is_due(index)) {
      release(index);
    }
  });
}

// The back-off ends with a measured round trip, not with any answer: while all packets are sent
// twice none is measured, and a wait that fell back to the old estimate would go on sending
// everything twice.
//
// How long to wait for an answer follows from the round-trip time and from how long there was none.
// The wait for a tail is shorter than a retransmission timeout: asking costs a packet without
// payload.
void Engine::update_waits(Outbound& out) const {
  const Duration base =
      std::clamp(out.rtt.timeout() + config_.ack_delay, min_rto_, config_.max_rto);
  // Until then nothing is known of queues, such as many first windows make.
  const std::uint32_t doublings = std::max(out.backoff, out.rtt.seasoned() ? 0U : 1U);
  out.retransmit_wait =
      std::min(base * (1 << std::min(doublings, kMaxBackoffShift)), config_.max_rto);
  const Duration tail = out.rtt.mean() + out.rtt.mean() / 2 + config_.ack_delay;
  out.tail_wait = out.rtt.measured() ? std::min(tail, out.retransmit_wait) : out.retransmit_wait;
}

TimePoint Engine::next_deadline(const Peer& peer) const {
  TimePoint next = kNever;
  if (!peer.out) {
    return next;
  }
  const Outbound& o = *peer.out;
  next = std::min(next, path_probe_due(o));
  if (const SendSlot* slot = o.window.oldest_in_flight()) {
    next = std::min(next, expiry_of(o, *slot));
    if (!o.tail_probed) {
      next = std::min(next, o.last_progress + o.tail_wait);
    }
  }
  if (owed_by_peer(o)) {
    next = std::min(next, question_due(o));
  }
  if (const SendSlot* slot = o.window.oldest_deferred()) {
    next = std::min(next, slot->sent_at);
  }
  const auto wait_for = [&](std::uint32_t index) {
    next = std::min(next, works_[index].not_before);
  };
  for (std::uint32_t n = 0; n < kBackOffs; ++n) {
    const Queue queue = WorkQueues::back_off(n);
    if (!o.queues.empty(queue)) {
      wait_for(o.queues.front(queue));
    }
  }
  o.queues.for_each(works_, Queue::held_back, wait_for);
  return next;
}

}  // namespace weft::srd
