// Owns what happens when time passes: overdue acknowledgements, lost tails, dead peers, waiting
// requests.
//
// Acknowledgements have a queue of their own, because they all wait equally long. For the rest each
// peer has one deadline, the earliest of next_deadline(): requests and packets whose back-off ends,
// packets that expire, a tail whose last acknowledgement is missing, paths to probe, and a peer
// that owes an answer and is silent. Sending adds pacing to these. When the deadline is due,
// on_peer_timeout() looks at all of them: what is not due costs a comparison.
#include <algorithm>

#include "srd/engine/engine.hpp"
#include "srd/engine/mutation.hpp"

namespace weft::srd {
namespace {

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
  const bool tail_silent =
      o.window.oldest_in_flight() != nullptr && peer.heard && o.timer.tail_probe_due() <= now;
  if (tail_silent) {
    o.timer.on_tail_probe();
    o.tail_probe_wanted = true;
    ++counters_.tail_probes;
  }
  if (o.tail_probe_wanted || o.has_work() || path_probe_due(o) <= now) {
    make_ready(peer);
  }
}

void Engine::expire_packets(TimePoint now, Peer& peer) {
  Outbound& o = *peer.out;
  SendSlot* slot = o.window.oldest_in_flight();
  if (slot == nullptr || o.timer.expiry_of(slot->sent_at) > now) {
    return;
  }
  const TimePoint latest = now - o.timer.retransmit_wait();  // before it doubles
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
  o.timer.on_timeout(now, since, patience_);
  if (o.timer.has_become_impaired()) {
    ++counters_.impaired_remote_conn_events;
  }
  if (!o.timer.has_died(patience_)) {
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
  const bool wanted = busy || !out.timer.is_out_of_touch(due, patience_);
  return !out.muted && wanted ? due : kNever;
}

// Nothing is in flight that could time out, and yet something has to come: the bytes of a read, or
// credits.
bool Engine::owed_by_peer(const Outbound& out) const {
  return !out.muted && out.window.oldest_in_flight() == nullptr &&
         (mutated(Mutation::ask_for_nothing) || out.reads_outstanding != 0 ||
          (out.has_work() && !has_credit(out)));
}

// A peer that owes us something may have died meanwhile: ask, and count silence as timeouts.
// [wire 4.7]
void Engine::ask_for_life(TimePoint now, Peer& peer) {
  Outbound& o = *peer.out;
  if (!owed_by_peer(o) || o.timer.question_due() > now) {
    return;
  }
  const bool unanswered = o.timer.question_open();
  const TimePoint asked_before = o.timer.on_question(now);
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

TimePoint Engine::next_deadline(const Peer& peer) const {
  TimePoint next = kNever;
  if (!peer.out) {
    return next;
  }
  const Outbound& o = *peer.out;
  next = std::min(next, path_probe_due(o));
  if (const SendSlot* slot = o.window.oldest_in_flight()) {
    next = std::min({next, o.timer.expiry_of(slot->sent_at), o.timer.tail_probe_due()});
  }
  if (owed_by_peer(o)) {
    next = std::min(next, o.timer.question_due());
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
