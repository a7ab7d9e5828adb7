// Owns what a sender does besides packets and time: work that comes and goes, credits, and the end
// of its peer.
#include "srd/engine/sender.hpp"

#include <algorithm>

#include "srd/engine/engine_parts.hpp"
#include "srd/engine/mutation.hpp"

namespace weft::srd {
namespace {

constexpr Bytes kMinStart = 4;  // packets that may always leave before the peer has answered

// The link is shared by all peers that are being sent to: so is what may leave before anyone has
// answered. Otherwise a host that begins to send to many at once floods all of them. Where
// receivers ration, their credits say so, and the window need not.
CcTuning first_window(const EngineParts& parts, Bytes sharers) {
  CcTuning tuning = parts.cc_tuning;
  if (sharers > 1 && !parts.config.receiver_credits) {
    const Bytes least = kMinStart * parts.cc_tuning.mtu_wire;
    const Bytes most = parts.config.line_rate.bytes_in(parts.config.base_rtt) * 3 / 2;
    tuning.initial_window = std::max(most / sharers, least);
  }
  return tuning;
}

Bytes sharers_of(const EngineParts& parts) { return std::max<Bytes>(parts.works.busy_peers(), 1); }

PeerPaths make_paths(EngineParts& parts) {
  const EngineConfig& config = parts.config;
  return PeerPaths{
      PathSelector{parts.selector_kind, config.paths, parts.rng.next(), parts.path_tuning},
      PathHealthTuning{config.base_rtt, config.path_timeouts_to_abandon,
                       config.path_probe_interval},
      config.path_run};
}

}  // namespace

Sender::Sender(EngineParts& parts, Peer& peer)
    : parts_(parts),
      peer_(peer),
      rationed_(parts.config.receiver_credits),
      next_message_(parts.config.first_psn.value() + 1),
      next_read_(parts.config.first_psn.value() + 1),
      timer_(parts.patience),
      header_(parts.common_header(peer, wire::PacketType::send)),
      credits_(first_credits(sharers_of(parts))),
      paths_(make_paths(parts)),
      window_(parts.config.first_psn),
      cc_(parts.cc_kind, first_window(parts, sharers_of(parts))),
      chain_(parts.config.first_psn) {}

void Sender::enqueue_response(std::uint32_t index, Work& work) {
  queues_.push_back(parts_.works.slab(),
                    mutated(Mutation::reads_behind_bulk)
                        ? Queue::longest_bulk
                        : WorkQueues::queue_for(work.packets, work.length),
                    index, work);
  credits_.want(work.length);
  make_ready();
}

void Sender::withdraw(std::uint32_t index, Work& work) {
  if (work.queued()) {
    queues_.remove(parts_.works.slab(), index, work);
  }
  settle_packets(work, index);
  credits_.give_up(parts_.wanted_bytes(work));
}

// Looks for the work's packets from its oldest one on. A Work keeps only the lower 16 bits of that
// number, so if it is old they may name a later place in the window: then what is still missing is
// found from the beginning.
void Sender::settle_packets(Work& work, std::uint32_t index) {
  const auto settle_from = [&](Psn psn) {
    for (const Psn end = window_.next(); work.outstanding != 0 && psn != end; ++psn) {
      SendSlot& slot = window_.slot(psn);
      if (slot.state != SendSlot::State::settled && slot.work == index) {
        settle(slot);
        --work.outstanding;
      }
    }
  };
  const auto ahead = static_cast<std::uint16_t>(work.first_psn - window_.una().value());
  if (ahead < window_.span()) {
    settle_from(window_.una().plus(ahead));
  }
  settle_from(window_.una());
}

void Sender::end_read() {
  --reads_outstanding_;
  if (!queues_.empty(Queue::reads)) {
    make_ready();
  }
}

// [wire 4.8] The window is shared by all peers that are being sent to.
CreditBalance Sender::first_credits(Bytes sharers) const {
  const Bytes window = parts_.credit_window;
  return {{.packet = std::min<Bytes>(parts_.config.mtu_payload, window),
           .window = window,
           .share = window / sharers,
           .first_grant = parts_.first_grant,
           .losses_are_reported = parts_.patience.losses_are_reported},
          parts_.usual_overdraft};
}

void Sender::emit_credit_request(TimePoint now, TxPacket& out) {
  const bool last = requests_wanted_ <= 1;  // of those that leave together
  requests_wanted_ = static_cast<std::uint8_t>(requests_wanted_ - (last ? requests_wanted_ : 1));
  std::uint32_t demand = 0;
  if (rationed_) {
    (void)timer_.on_question(now);
    parts_.schedule.arm(peer_, now + timer_.retransmit_wait());
    if (last) {
      credits_.on_requested(now, parts_.credit_window / sharers_of(parts_));
    }
    demand = credits_.demand();
    out.path = pick_for_question(now);
  } else {
    demand = how_far_.ask(now, timer_.retransmit_wait());
    const auto path = static_cast<std::uint16_t>(demand % parts_.config.paths);
    out.path = paths_.usable_near(now, PathId{path});
  }
  wire::CreditRequest request{};
  request.common = parts_.common_header(peer_, wire::PacketType::credit_request);
  request.common.destination_qpn = last_to_.value();
  request.common.source_qpn = last_from_.value();
  request.common.path = out.path.value();
  request.demand = demand;
  out.to = peer_.key.address;
  out.ecn = Ecn::capable_0;
  out.payload = {};
  out.header_size = sizeof request;
  wire::store(out.header.data(), request);
  parts_.finish(out);
  ++parts_.counters.credit_requests;
}

void Sender::take_grant(TimePoint arrived, std::uint32_t granted) {
  if (rationed_) {
    credits_.on_grant(arrived, granted, parts_.usual_overdraft);
  } else if (const auto rtt = how_far_.answered(arrived, granted)) {
    cc_.on_distance(*rtt);
  }
}

// The new life knows of no demand, so credits are asked for anew, for all that has not left yet.
void Sender::restart() {
  credits_ = first_credits(sharers_of(parts_));
  peer_.works.for_each(parts_.works.slab(), [&](std::uint32_t index) {
    credits_.want(parts_.unsent_bytes(parts_.works[index]));
  });
  how_far_ = {};
  marked_ = 0;
  timer_.forget_silence(parts_.patience);
}

// All requests end. Answers to the peer's reads are kept: it may be alive and wait for them, and
// only what we send does not reach it. The context survives: a later request tries again, a sign of
// life brings it back.
void Sender::give_up_peer(TimePoint now) {
  const Status status = heard_ ? Status::unresponsive : Status::unreachable;
  ++(heard_ ? parts_.counters.unresponsive_remote_events
            : parts_.counters.unreachable_remote_events);
  parts_.tell(Event::Kind::peer_lost, now, peer_.id, Psn{}, PathId{}, 0, status);
  parts_.works.abandon_if(peer_, status, [](const Work& work) { return !work.is_response(); });
  while (SendSlot* slot = window_.oldest_in_flight()) {
    credits_.on_lost(slot->length);
    window_.mark_lost(*slot);
  }
  muted_ = true;
  parts_.works.mute(peer_);
  probes_wanted_ = 0;
  timer_.forget_silence(parts_.patience);
  cc_ = CongestionControl{parts_.cc_kind, parts_.cc_tuning};
}

void Sender::unmute() {
  parts_.works.unmute(peer_);
  muted_ = false;
}

// The lines that most packets need. With a thousand engines in turn, the others cost more than they
// bring.
void Sender::prefetch_all() const {
  prefetch(this, kCacheLine);
  prefetch(&timer_, sizeof timer_);
  prefetch(&header_, 3 * kCacheLine);  // with losses and credits
  prefetch(&paths_, 2 * kCacheLine);
  prefetch(&window_, 2 * kCacheLine);
  prefetch(&cc_, sizeof cc_);
}

}  // namespace weft::srd
