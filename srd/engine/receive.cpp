// Owns what an engine does with a packet that arrives. It may be dropped at each of these steps, in
// this order: it is malformed or damaged; not for this attachment; of a peer that there is no room
// for; of or for a life that is over; outside of the window, or a copy. What is left goes to
// Delivery, and its outcome into the window and the next acknowledgement.
#include "srd/base/prefetch.hpp"
#include "srd/engine/engine.hpp"
#include "srd/engine/mutation.hpp"
#include "srd/wire/parse.hpp"

namespace weft::srd {
namespace {

using wire::PacketType;

constexpr std::uint8_t kAccepted = static_cast<std::uint8_t>(Status::ok);
// A hint: the part of a Peer that any packet looks at, about all before the bits of its receive
// window.
constexpr std::size_t kOftenUsed = 4 * kCacheLine;

// --- The rules, one by one. Each has a mutation that breaks it.

bool checks_sums(const EngineConfig& config) {
  return config.checksum && !mutated(Mutation::accept_damage);
}

// The packet comes from a life of the peer's that is over.
bool is_from_former_life(const Peer& peer, Life source) {
  return peer.life.has_ended(source) && !mutated(Mutation::forget_source_life);
}

// The packet is for a life of ours that is over. 0: the peer does not know ours yet.
bool is_for_former_life(const EngineConfig& config, Life destination) {
  return destination != config.life && destination.value() != 0 &&
         !mutated(Mutation::forget_destination_life);
}

// A header that cannot be verified must not end a life.
bool ends_life_unverified(const Peer& peer, Life source) {
  return mutated(Mutation::trimmed_life_counts) && peer.life.is_followed_by(source);
}

// [wire 4.2] A send that has not left names an endpoint and its Q_Key, which the new life has as
// well. A read or write names memory of the former life, and must never meet that of the next one.
bool outlives_restart(const Work& work) {
  const bool may_outlive =
      work.kind == WorkKind::send || mutated(Mutation::one_sided_survives_restart);
  return (work.next_packet == 0 && may_outlive) || mutated(Mutation::keep_work_for_new_life);
}

// [wire 4.10] The peer's process ends; what it has sent may come later.
bool is_word_for(const EngineConfig& config, const wire::ParsedPacket& parsed) {
  return parsed.type() == PacketType::ack && parsed.has(wire::kLeaving) &&
         parsed.common().destination_life.value() == config.life.value();
}

}  // namespace

[[gnu::hot]] void Engine::on_packet(TimePoint at, const RxPacket& packet) {
  const TimePoint now = advance(at);
  ++parts_.counters.rx_pkts;
  parts_.counters.rx_bytes += packet.bytes.size() + packet.more.size();
  const wire::ParsedPacket parsed =
      wire::parse_packet(packet.bytes, packet.more.size(), packet.trimmed);
  if (!parsed.ok()) {
    parts_.counters.drop(parsed.reason());
    return;
  }
  const wire::CommonHeader& common = parsed.common();
  // Found before the packet is known to be sound, and not touched before.
  const PeerKey key{packet.from, AttachmentId{common.source_attachment.value()}};
  Peer* known = parts_.peers.find(key);
  if (checks_sums(parts_.config)) {
    if (known != nullptr) {
      weft::prefetch(known, kOftenUsed);  // while the sum is made
    }
    if (const DropReason reason = wire::verify_checksum(parsed, packet.more, true);
        reason != DropReason::none) {
      parts_.counters.drop(reason);
      return;
    }
  }
  const wire::Addressing ends = wire::addressing_of(common);
  if (ends.destination_attachment != parts_.config.attachment.value()) {
    parts_.counters.drop(DropReason::not_for_us);
    return;
  }
  // Only a peer that wants something of us gets a record, or whose word overtakes its first packet.
  const bool asks = parsed.has_data_header() || parsed.type() == PacketType::credit_request;
  if (known == nullptr) [[unlikely]] {
    known = make_peer(key, asks || is_word_for(parts_.config, parsed));
    if (known == nullptr) {
      return;
    }
  }
  Peer& peer = *known;
  if (asks) {
    peer.receiver.answer(Qpn{ends.source_qpn}, Qpn{ends.destination_qpn});
  }
  const Life source{common.source_life.value()};
  const Life destination{common.destination_life.value()};
  if (parsed.type() == PacketType::stale_life) {
    on_stale_notice(now, peer, source, destination, Life{parsed.stale_life().refused_life.value()});
    return;
  }
  if (parsed.trimmed()) {
    on_trimmed(now, peer, parsed.data(), packet);
    forget_stranger(peer);
    return;
  }
  if (!meet_life(now, peer, source, destination, asks)) {
    return;
  }
  if (peer.sender && peer.sender->muted()) [[unlikely]] {
    peer.sender->unmute();
    peer.sender->make_ready();
  }
  switch (parsed.type()) {
    case PacketType::ack:
      on_ack(now, peer, parsed, packet);
      return;
    case PacketType::credit_request:
      on_credit_request(now, peer, parsed.credit_request());
      return;
    default:
      on_data(now, peer, parsed.data(), packet);
      return;
  }
}

// The record of a peer that has none, if its packet may make one. nullptr: the packet was dropped,
// because it may not, or for lack of room.
Peer* Engine::make_peer(const PeerKey& key, bool may_make) {
  Peer* const made = may_make ? parts_.peers.find_or_make(key) : nullptr;
  if (made == nullptr) {
    parts_.counters.drop(may_make ? DropReason::peer_table_full : DropReason::ack_for_nothing);
  }
  return made;
}

// [wire 4.9] The header of a trimmed packet cannot be verified: its checksum covers the payload
// that was cut off. It is a hint that may cause a retransmission, and may neither move a window nor
// introduce a life. The answer to a peer without a known life names the life that the header speaks
// of, and says that there is no window.
void Engine::on_trimmed(TimePoint now, Peer& peer, const wire::DataHeader& header,
                        const RxPacket& packet) {
  ++parts_.counters.trimmed_pkts;
  const Life destination{header.common.destination_life.value()};
  const Life source{header.common.source_life.value()};
  ReceiveWindow& window = peer.receiver.window();
  if (ends_life_unverified(peer, source)) [[unlikely]] {
    restart_peer(now, peer, source);
  }
  if ((destination != parts_.config.life && destination.value() != 0) ||
      (peer.life.known() && source != peer.life.present())) {
    parts_.counters.drop(DropReason::unverified_life);
    return;
  }
  peer.life.hint(source);
  if (!window.open() || window.classify(Psn{header.psn.value()}) == ReceiveWindow::Verdict::fresh) {
    peer.receiver.note_again(parts_, header, wire::kResultTrimmed);
  }
  acknowledge_at_once(now, peer, header, packet);
}

// [wire 4.2] Whether a packet between these lives is for us. A later life of the peer's ends the
// earlier one.
[[gnu::always_inline]] inline bool Engine::meet_life(TimePoint now, Peer& peer, Life source,
                                                     Life destination, bool asks) {
  if (is_from_former_life(peer, source)) {
    parts_.counters.drop(DropReason::stale_source_life);
    return false;
  }
  if (is_for_former_life(parts_.config, destination)) {
    // `source` is not learnt from it: it may be as outdated as `destination` is.
    parts_.counters.drop(DropReason::stale_destination_life);
    if (asks) {  // only then: or two ends would answer each other's answers for ever
      peer.life.refuse(destination, source);
      parts_.schedule.reply_now(peer);
    }
    return false;
  }
  if (!peer.life.known()) {
    adopt_life(peer, source);
  } else if (source != peer.life.present()) {
    restart_peer(now, peer, source);
  }
  return true;
}

void Engine::adopt_life(Peer& peer, Life life) {
  peer.life.adopt(life);
  if (peer.sender) {
    peer.sender->address(life);
  }
}

// [wire 3.7] The peer's life that we spoke to is over. Accepted only if the notice quotes the life
// we last used for this peer.
void Engine::on_stale_notice(TimePoint now, Peer& peer, Life source, Life destination,
                             Life refused) {
  if (destination != parts_.config.life) {
    parts_.counters.drop(DropReason::stale_destination_life);
  } else if (!peer.life.is(refused) || !peer.life.is_followed_by(source)) {
    parts_.counters.drop(DropReason::stale_source_life);
  } else {
    restart_peer(now, peer, source);
  }
}

// [wire 4.2] The peer has begun a later life: nothing more of the former one is delivered, and how
// much of our work that one has executed cannot be told.
void Engine::restart_peer(TimePoint now, Peer& peer, Life life) {
  ++parts_.counters.peer_restarts;
  parts_.tell(Event::Kind::peer_restarted, now, peer.id, Psn{}, PathId{});
  peer.receiver.forget(parts_);
  parts_.schedule.cancel_delayed_reply(peer);
  parts_.works.abandon_if(peer, Status::peer_restarted,
                          [](const Work& work) { return !outlives_restart(work); });
  adopt_life(peer, life);
  parts_.grants.forget(peer.id);
  if (peer.sender) {
    peer.sender->restart();
  }
}

[[gnu::always_inline]] inline void Engine::on_ack(TimePoint now, Peer& peer,
                                                  const wire::ParsedPacket& parsed,
                                                  const RxPacket& packet) {
  const bool leaving = parsed.has(wire::kLeaving);
  if (!peer.sender && !leaving) {
    parts_.counters.drop(DropReason::ack_for_nothing);
    return;
  }
  const bool counts = !peer.sender || peer.sender->on_ack(now, arrival_of(now, packet), parsed);
  if (leaving && counts) [[unlikely]] {  // [wire 4.10]
    peer.receiver.parting().note_leave(peer.receiver.window(), Psn{parsed.ack().echo_psn.value()});
    if (peer.sender && !parsed.has(wire::kNoWindow)) {
      peer.sender->say_heard(now);
    }
  }
}

// Each request is answered, so that a sender whose turn is far away knows that we live. A receiver
// that does not ration grants everything. [wire 4.8]
void Engine::on_credit_request(TimePoint now, Peer& peer, const wire::CreditRequest& request) {
  if (parts_.config.receiver_credits) {
    (void)parts_.grants.on_demand(now, peer.id, request.demand.value());
  }
  peer.receiver.note_demand(now, request.demand.value());
  parts_.schedule.reply_now(peer);
}

[[gnu::always_inline]] inline void Engine::on_data(TimePoint now, Peer& peer,
                                                   const wire::DataHeader& header,
                                                   const RxPacket& packet) {
  if (Parting* const parting = peer.receiver.known_parting()) [[unlikely]] {
    parting->note_sign_of_life();
  }
  if (header.common.type == static_cast<std::uint8_t>(PacketType::probe)) {
    peer.receiver.window().note_una(Psn{header.psn.value()});
    parts_.counters.congested_pkts += packet.ecn == Ecn::congested ? 1U : 0U;
    peer.receiver.note_probe(parts_, now, header, packet);
    parts_.schedule.reply_now(peer);
    return;
  }
  const Psn psn{header.psn.value()};
  ReceiveWindow& window = peer.receiver.window();
  const Psn una{psn.value() - header.back.value()};
  window.advance(una);
  switch (window.classify(psn)) {
    case ReceiveWindow::Verdict::outside:
      parts_.counters.drop(DropReason::outside_window);
      return;
    case ReceiveWindow::Verdict::duplicate:
      // Told again: the acknowledgement may have been lost.
      ++parts_.counters.duplicate_pkts;
      parts_.counters.drop(DropReason::duplicate);
      delivery_.deliver_copy(now, peer, header, packet);
      if (!mutated(Mutation::ignore_copies)) {
        acknowledge_at_once(now, peer, header, packet);
      }
      return;
    case ReceiveWindow::Verdict::fresh:
      break;
  }
  const std::uint8_t code = delivery_.deliver(now, peer, header, packet);
  const bool plain = code == kAccepted;
  if (code == wire::kResultDeferred || (!plain && !window.note(psn, static_cast<Status>(code)))) {
    ++parts_.counters.deferred_pkts;
    peer.receiver.note_again(parts_, header, wire::kResultDeferred);
  } else {
    count_arrival(peer, header, psn, packet.path);
    window.accept(psn);
    peer.receiver.count_mark(packet.ecn == Ecn::congested);
  }
  if (note_arrival(now, peer, header, packet) || !plain) {
    parts_.schedule.reply_now(peer);
  } else {
    parts_.schedule.reply_by(peer, now + parts_.config.ack_delay);
  }
}

// True if its acknowledgement is to leave at once.
[[gnu::always_inline]] inline bool Engine::note_arrival(TimePoint now, Peer& peer,
                                                        const wire::DataHeader& header,
                                                        const RxPacket& packet) {
  if (packet.ecn == Ecn::congested) {
    ++parts_.counters.congested_pkts;
  }
  return peer.receiver.note_arrival(now, header, packet, parts_.config.ack_every);
}

void Engine::acknowledge_at_once(TimePoint now, Peer& peer, const wire::DataHeader& header,
                                 const RxPacket& packet) {
  (void)note_arrival(now, peer, header, packet);
  parts_.schedule.reply_now(peer);
}

// Called before the window accepts the packet. It is late if a packet that left later has come, or,
// of the same message, one that belongs behind it.
[[gnu::always_inline]] inline void Engine::count_arrival(Peer& peer, const wire::DataHeader& header,
                                                         Psn psn, PathId path) {
  const bool overtaken =
      peer.receiver.order().note_packet(header.message.value(), header.remote_address.value());
  const bool late = psn.before(peer.receiver.window().top()) || overtaken;
  ++parts_.counters.delivered_pkts;
  parts_.counters.reordered_pkts += late ? 1U : 0U;
  parts_.counters.see_path(path.value());
}

}  // namespace weft::srd
