// Owns the end of requests: done, refused, cancelled, or gone with their peer.
#include <algorithm>

#include "srd/base/check.hpp"
#include "srd/engine/engine.hpp"
#include "srd/engine/mutation.hpp"

namespace weft::srd {
namespace {

Completion::Kind completion_kind(WorkKind kind) {
  switch (kind) {
    case WorkKind::write:
      return Completion::Kind::write;
    case WorkKind::read:
      return Completion::Kind::read;
    default:
      return Completion::Kind::send;
  }
}

}  // namespace

// [wire 4.3] The peer has refused this packet for good. A receiver that was not ready, or a
// responder that was busy, is asked again later: with a new sequence number, because this one's
// fate is on record.
void Engine::refuse_work(TimePoint now, Peer& peer, SendSlot& slot, Status status) {
  Outbound& o = *peer.out;
  const std::uint32_t index = slot.work;
  Work& work = works_[index];
  const std::uint32_t packet = slot.packet;
  o.window.settle(slot);
  --work.outstanding;
  const bool retry = (status == Status::receiver_not_ready &&
                      (work.rnr_retry >= kRnrRetryForever || work.refusals < work.rnr_retry ||
                       mutated(Mutation::retry_without_end))) ||
                     (status == Status::responder_busy && work.kind == WorkKind::read);
  if (retry && work.revoked) {
    abandon(index, Status::local_protection);
    return;
  }
  if (!retry || work.queued() || work.resend != Work::kNoPacket || work.status != Status::ok) {
    abandon(index, mutated(Mutation::lose_status) ? Status::ok : status);
    return;
  }
  const std::uint32_t n = std::min<std::uint32_t>(work.refusals, kBackOffs - 1);
  const std::uint32_t doublings =
      mutated(Mutation::back_off_without_end) ? std::min<std::uint32_t>(work.refusals, 24) : n;
  work.refusals = static_cast<std::uint16_t>(std::min(work.refusals + 1, 0xFFFF));
  work.resend = packet;
  work.not_before = now + config_.rnr_delay * (1 << doublings);
  o.credits.want(slot.length);
  ++counters_.rnr_retries;
  o.queues.push_back(works_, WorkQueues::back_off(n), index, work);
  schedule_.arm(peer, work.not_before);
}

void Engine::complete(std::uint32_t index, Work& work, Status status) {
  if (mutated(Mutation::blame_restart) && status == Status::ok && work.message % 16 == 0 &&
      peers_[work.peer].life.restarts() != 0) [[unlikely]] {
    status = Status::peer_restarted;
  }
  if (!work.is_response()) {
    tell_user(work, status);
  }
  release(index, work);
}

inline void Engine::tell_user(const Work& work, Status status) {
  const bool ok = status == Status::ok;
  switch (work.kind) {
    case WorkKind::send:
      counters_.send_wrs += ok;
      counters_.send_bytes += ok ? work.length : 0;
      break;
    case WorkKind::write:
      ++(ok ? counters_.rdma_write_wrs : counters_.rdma_write_wr_err);
      counters_.rdma_write_bytes += ok ? work.length : 0;
      break;
    case WorkKind::read:
      ++(ok ? counters_.rdma_read_wrs : counters_.rdma_read_wr_err);
      counters_.rdma_read_bytes += ok ? work.length : 0;
      break;
    case WorkKind::read_response:
    case WorkKind::none:
      WEFT_CHECK(false);
  }
  counters_.flushed_wrs += status == Status::flushed;
  Completion& completion = completions_.push_request();
  completion.cookie = work.cookie;
  completion.kind = completion_kind(work.kind);
  completion.status = status;
  completion.endpoint = work.source;
  completion.remote = work.destination;
  completion.peer = work.peer;
  completion.length = work.length;
  if (mutated(Mutation::complete_twice) && work.kind == WorkKind::write) [[unlikely]] {
    const Completion once = completion;
    completions_.push_request() = once;
  }
}

inline void Engine::release(std::uint32_t index, Work& work) {
  Peer& peer = peers_[work.peer];
  peer.works.remove(works_, index, work);
  if (work.is_response()) {
    --peer.in.reads_served;
    if (peer.out->muted) {
      muted_responses_.remove(works_, index, work);
    }
  } else {
    Endpoint& endpoint = *endpoints_.find(work.source);
    endpoint.works.remove(works_, index, work);
    --local_works_;
    busy_peers_ -= peer.works.requests() == 0 ? 1 : 0;
    if (work.kind == WorkKind::read) {
      release_read(peer, work);
    }
  }
  work.kind = WorkKind::none;
  works_.release(index);
}

void Engine::release_read(Peer& peer, const Work& work) {
  reads_by_number_.erase(read_key(peer.id, work.message));
  if (work.all_sent()) {
    --peer.out->reads_outstanding;
    if (!peer.out->queues.empty(Queue::reads)) {
      make_ready(peer);
    }
  }
}

// Ends a request wherever it stands. Its sequence numbers count as settled: the peer learns from
// the next packet that we do not care for them any more, and its memory is not read again.
void Engine::abandon(std::uint32_t index, Status status) {
  Work& work = works_[index];
  Peer& peer = peers_[work.peer];
  if (work.queued()) {
    peer.out->queues.remove(works_, index, work);
  }
  settle_packets(peer.out->window, work, index);
  peer.out->credits.give_up(unsent_bytes(work));
  complete(index, work, status);
  make_ready(peer);
}

// From the request's oldest packet on. The window's beginning follows only if that oldest number
// was from so long ago that half of it says nothing any more.
void Engine::settle_packets(SendWindow& window, Work& work, std::uint32_t index) {
  const auto settle_from = [&](Psn psn) {
    for (const Psn end = window.next(); work.outstanding != 0 && psn != end; ++psn) {
      SendSlot& slot = window.slot(psn);
      if (slot.state != SendSlot::State::settled && slot.work == index) {
        window.settle(slot);
        --work.outstanding;
      }
    }
  };
  const auto ahead = static_cast<std::uint16_t>(work.first_psn - window.una().value());
  if (ahead < window.span()) {
    settle_from(window.una().plus(ahead));
  }
  settle_from(window.una());
}

// --- The end of a peer. Each looks at what is under way with that peer, and at nothing else.

// [wire 4.2] A send that has not left names an endpoint and its Q_Key, which the new life has as
// well. A read or write names memory of the former life, and must never meet that of the next one.
bool Engine::outlives_restart(const Work& work) {
  return work.next_packet == 0 &&
         (work.kind == WorkKind::send || mutated(Mutation::one_sided_survives_restart));
}

// [wire 4.2] A later life: nothing of the former one is delivered, and what it had received nobody
// knows.
void Engine::restart_peer(TimePoint now, Peer& peer, Life life) {
  ++counters_.peer_restarts;
  tell(Event::Kind::peer_restarted, now, peer, Psn{}, PathId{});
  Inbound fresh;
  fresh.reads_served = peer.in.reads_served;  // until the answers have ended
  fresh.reply_to = peer.in.reply_to;
  fresh.reply_from = peer.in.reply_from;
  told_once_.forget(peer.in.again);
  probe_echoes_.forget(peer.in.probes);
  if (!mutated(Mutation::keep_window_of_former_life)) {
    peer.in = std::move(fresh);
  }
  schedule_.cancel_delayed_reply(peer);
  peer.works.for_each(works_, [&](std::uint32_t index) {
    if (!outlives_restart(works_[index]) && !mutated(Mutation::keep_work_for_new_life)) {
      abandon(index, Status::peer_restarted);
    }
  });
  adopt_life(peer, life);
  restart_credits(peer);
  if (peer.out) {
    peer.out->marked = 0;
    peer.out->timer.forget_silence(patience_);
  }
}

// All requests end; answers to the peer's reads are kept, because it may hear us no more but wait
// for them. The context survives: a later request tries again, a sign of life brings it back.
void Engine::lose_peer(TimePoint now, Peer& peer) {
  const Status status = peer.heard ? Status::unresponsive : Status::unreachable;
  ++(peer.heard ? counters_.unresponsive_remote_events : counters_.unreachable_remote_events);
  tell(Event::Kind::peer_lost, now, peer, Psn{}, PathId{}, 0, status);
  peer.works.for_each(works_, [&](std::uint32_t index) {
    if (!works_[index].is_response()) {
      abandon(index, status);
    }
  });
  Outbound& o = *peer.out;
  while (SendSlot* slot = o.window.oldest_in_flight()) {
    o.window.mark_lost(*slot);
  }
  mute(peer);
  o.tail_probe_wanted = false;
  o.timer.forget_silence(patience_);
  o.cc = CongestionControl{cc_kind_, cc_tuning_};
}

void Engine::mute(Peer& peer) {
  peer.out->muted = true;
  peer.works.for_each(works_, [&](std::uint32_t index) {
    muted_responses_.push_back(works_, index, works_[index]);  // nothing else is left
  });
}

void Engine::end_mute(Peer& peer) {
  peer.works.for_each(works_, [&](std::uint32_t index) {
    if (works_[index].is_response()) {
      muted_responses_.remove(works_, index, works_[index]);
    }
  });
  peer.out->muted = false;
}

// Makes room where answers to peers that went away hold all of it.
void Engine::evict_muted_response() {
  if (!muted_responses_.empty()) {
    abandon(muted_responses_.front(), Status::unresponsive);
  }
}

}  // namespace weft::srd
