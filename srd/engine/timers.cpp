// Owns what happens to a sender when time passes: lost packets and tails, dead peers, waiting
// requests.
//
// The scheduler itself keeps the time of delayed acknowledgements. For all else a peer has one
// deadline there, at the latest what next_deadline() says, the earliest of: requests and packets
// whose back-off ends, packets that expire, a tail whose last acknowledgement is missing, paths to
// probe, and a peer that owes an answer and is silent. transmit() arms it for pacing, too. When the
// deadline is due, Sender::on_timeout() looks at all of these: one that is not due costs a
// comparison.
#include <algorithm>

#include "srd/engine/engine_parts.hpp"
#include "srd/engine/mutation.hpp"

namespace weft::srd {
namespace {

constexpr std::uint16_t kProbesOfTheSilent = 4;  // in the time of an answer, as PathHealth's

}  // namespace

[[gnu::hot]] void Sender::on_timeout(TimePoint now) {
  release_waiting(now);
  while (window_.release_deferred(now)) {
  }
  expire_packets(now);
  ask_for_life(now);
  ask_for_first_answer(now);
  ask_for_tail(now);
  if (probes_wanted_ != 0 || has_work() || path_probe_due() <= now) {
    make_ready();
  }
}

[[gnu::hot]] void Sender::expire_packets(TimePoint now) {
  SendSlot* slot = window_.oldest_in_flight();
  if (slot == nullptr || timer_.expiry_of(slot->sent_at) > now) {
    return;
  }
  const TimePoint latest = now - timer_.expiry_wait();  // before it doubles
  if (died_of_silence(now, slot->sent_at)) {
    return;
  }
  for (; slot != nullptr && slot->sent_at <= latest; slot = window_.oldest_in_flight()) {
    ++parts_.counters.lost_by_timeout;
    ++parts_.counters.retrans_timeout_events;
    lose(now, *slot, PathEvent::timeout);
  }
}

// One more timeout without a sign of life; the first one since `since`. True if that ended the
// peer.
bool Sender::died_of_silence(TimePoint now, TimePoint since) {
  timer_.on_timeout(now, since, parts_.patience);
  if (timer_.has_become_impaired()) {
    ++parts_.counters.impaired_remote_conn_events;
  }
  if (!timer_.has_died(parts_.patience)) {
    return false;
  }
  give_up_peer(now);
  return true;
}

// When the next abandoned path is to be probed. A peer that we have no work for may die unnoticed:
// after peer_timeout without a sign of life its paths are not probed any more.
TimePoint Sender::path_probe_due() const {
  const TimePoint due = paths_.next_probe();
  const bool busy = window_.oldest_in_flight() != nullptr || has_work();
  const bool wanted = busy || !timer_.is_out_of_touch(due, parts_.patience);
  return !muted_ && wanted ? due : kNever;
}

// Nothing is in flight that could time out, and yet something has to come: the bytes of a read, or
// credits.
[[gnu::hot]] bool Sender::owed_by_peer() const {
  return !muted_ && window_.oldest_in_flight() == nullptr &&
         (mutated(Mutation::ask_for_nothing) || reads_outstanding_ != 0 ||
          (has_work() && !has_credit()));
}

TimePoint Sender::question_due() const {
  if (!has_work() || has_credit()) {
    return timer_.question_due();
  }
  return timer_.credit_question_due(credits_.waits_before_question(), credits_.turn_due(),
                                    parts_.patience);
}

// A peer that owes us something may have died meanwhile: ask, and count silence as timeouts.
// [wire 4.7]
[[gnu::hot]] void Sender::ask_for_life(TimePoint now) {
  if (!owed_by_peer() || question_due() > now) {
    return;
  }
  const bool unanswered = timer_.question_open();
  const TimePoint asked_before = timer_.on_question(now);
  if (unanswered && died_of_silence(now, asked_before)) {
    return;
  }
  const std::uint8_t questions = unanswered ? questions_after_silence() : std::uint8_t{1};
  if (has_credit()) {
    want_probes(now, questions);
  } else {
    requests_wanted_ = questions;
  }
  make_ready();
}

// Nothing that the peer was sent has been answered, ever. It waits behind the first windows of
// others, or was lost, or most paths are dead. So what would be sent again is asked for instead,
// along one path after the other: probes find a path that lives as well as packets do, and where
// there is a queue they hardly make it longer.
[[gnu::hot]] void Sender::ask_for_first_answer(TimePoint now) {
  const SendSlot* const slot = window_.oldest_in_flight();
  if (timer_.rtt().measured() || slot == nullptr ||
      timer_.first_question_due(slot->sent_at) > now) {
    return;
  }
  const bool in_vain = timer_.is_silent();
  if (died_of_silence(now, slot->sent_at)) {
    return;
  }
  (void)timer_.on_question(now);
  const std::uint32_t overdue =
      std::max<std::uint32_t>(window_.span(), in_vain ? questions_after_silence() : 1);
  want_probes(now, std::min<std::uint32_t>({overdue, parts_.config.paths, kProbesOfTheSilent}));
}

// The last packets are not acknowledged.
[[gnu::hot]] void Sender::ask_for_tail(TimePoint now) {
  if (timer_.rtt().measured() && window_.oldest_in_flight() != nullptr &&
      timer_.tail_probe_due(parts_.patience) <= now) {
    timer_.on_tail_probe(now);
    want_probes(now, 1);
    ++parts_.counters.tail_probes;
  }
}

// After one that was not answered, along several paths; where queues lose without a report, too
// many would make a bad case worse.
std::uint8_t Sender::questions_after_silence() const {
  const bool several = parts_.patience.losses_are_reported;
  return several ? static_cast<std::uint8_t>(std::min(parts_.config.paths, kProbesOfTheSilent)) : 1;
}

void Sender::want_probes(TimePoint now, std::uint32_t count) {
  probes_wanted_ = static_cast<std::uint16_t>(count);
  last_probe_time_ = probed_since_ = static_cast<std::uint32_t>(nanoseconds(now));
}

// In a probe, as each of them says how far the sender was told.
void Sender::say_heard(TimePoint now) {
  if (probes_wanted_ == 0) {
    want_probes(now, 1);
  }
  make_ready();
}

// Requests whose back-off is over go back to where they came from.
[[gnu::hot]] void Sender::release_waiting(TimePoint now) {
  const auto is_due = [&](std::uint32_t index) { return parts_.works[index].not_before <= now; };
  const auto release = [&](std::uint32_t index) {
    Work& work = parts_.works[index];
    queues_.remove(parts_.works.slab(), index, work);
    if (work.kind == WorkKind::read) {
      // To the front: a refused read still counts as outstanding. If as many reads were outstanding
      // as may be, the ones before it in the queue would wait for it to end, and it for them.
      queues_.push_front(parts_.works.slab(), Queue::reads, index, work);
    } else {
      queues_.push_back(parts_.works.slab(), Queue::singles, index, work);
    }
  };
  for (std::uint32_t n = 0; n < kBackOffs && queues_.has_refused(); ++n) {
    const Queue queue = WorkQueues::back_off(n);
    while (!queues_.empty(queue) && is_due(queues_.front(queue))) {
      release(queues_.front(queue));
    }
  }
  if (queues_.empty(Queue::held_back)) [[likely]] {
    return;
  }
  queues_.for_each(parts_.works.slab(), Queue::held_back, [&](std::uint32_t index) {
    if (is_due(index)) {
      release(index);
    }
  });
}

[[gnu::hot]] TimePoint Sender::next_deadline() const {
  TimePoint next = path_probe_due();
  if (const SendSlot* slot = window_.oldest_in_flight()) {
    const TimePoint question = timer_.rtt().measured() ? timer_.tail_probe_due(parts_.patience)
                                                       : timer_.first_question_due(slot->sent_at);
    next = std::min({next, timer_.expiry_of(slot->sent_at), question});
  }
  if (owed_by_peer()) {
    next = std::min(next, question_due());
  }
  if (const SendSlot* slot = window_.oldest_deferred()) {
    next = std::min(next, slot->sent_at);
  }
  const auto wait_for = [&](std::uint32_t index) {
    next = std::min(next, parts_.works[index].not_before);
  };
  for (std::uint32_t n = 0; n < kBackOffs && queues_.has_refused(); ++n) {
    const Queue queue = WorkQueues::back_off(n);
    if (!queues_.empty(queue)) {
      wait_for(queues_.front(queue));
    }
  }
  if (!queues_.empty(Queue::held_back)) [[unlikely]] {
    queues_.for_each(parts_.works.slab(), Queue::held_back, wait_for);
  }
  return next;
}

}  // namespace weft::srd
