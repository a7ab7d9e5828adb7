// Owns what arrives: who sent it, whether it is new, where its payload goes.
#include "srd/base/check.hpp"
#include "srd/engine/engine.hpp"
#include "srd/engine/mutation.hpp"
#include "srd/engine/place.hpp"
#include "srd/wire/parse.hpp"

namespace weft::srd {
namespace {

using wire::PacketType;

constexpr std::uint8_t code_of(Status status) { return static_cast<std::uint8_t>(status); }
constexpr std::uint8_t kAccepted = code_of(Status::ok);

}  // namespace

void Engine::on_packet(TimePoint at, const RxPacket& packet) {
  const TimePoint now = advance(at);
  ++parts_.counters.rx_pkts;
  parts_.counters.rx_bytes += packet.bytes.size() + packet.more.size();
  const wire::ParsedPacket parsed =
      wire::parse_packet(packet.bytes, packet.more.size(), packet.trimmed);
  DropReason reason = parsed.reason();
  if (reason == DropReason::none && parts_.config.checksum && !mutated(Mutation::accept_damage)) {
    reason = wire::verify_checksum(parsed, packet.more, true);
  }
  if (reason != DropReason::none) {
    parts_.counters.drop(reason);
    return;
  }
  const wire::CommonHeader& common = parsed.common();
  if (common.destination_attachment.value() != parts_.config.attachment.value()) {
    parts_.counters.drop(DropReason::not_for_us);
    return;
  }
  const PeerKey key{packet.from, AttachmentId{common.source_attachment.value()}};
  // Only who wants something of us is worth remembering.
  const bool asks = parsed.has_data_header() || parsed.type() == PacketType::credit_request;
  Peer* known = parts_.peers.find(key);
  if (known == nullptr && asks) [[unlikely]] {
    known = parts_.peers.find_or_make(key);
  }
  if (known == nullptr) {
    parts_.counters.drop(asks ? DropReason::peer_table_full : DropReason::ack_for_nothing);
    return;
  }
  Peer& peer = *known;
  if (asks) {
    peer.receiver.answer(Qpn{common.source_qpn.value()}, Qpn{common.destination_qpn.value()});
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
      if (peer.sender) {
        peer.sender->on_ack(now, arrival_of(now, packet), parsed);
      } else {
        parts_.counters.drop(DropReason::ack_for_nothing);
      }
      return;
    case PacketType::credit_request:
      on_credit_request(now, peer, parsed.credit_request());
      return;
    default:
      on_data(now, peer, parsed.data(), packet);
      return;
  }
}

// [wire 4.9] Such a header cannot be verified. It is a hint that may cause a retransmission, and
// may neither move a window nor introduce a life. The answer to a peer without a known life names
// the life that the header speaks of, and says that there is no window.
void Engine::on_trimmed(TimePoint now, Peer& peer, const wire::DataHeader& header,
                        const RxPacket& packet) {
  ++parts_.counters.trimmed_pkts;
  const Life destination{header.common.destination_life.value()};
  const Life source{header.common.source_life.value()};
  ReceiveWindow& window = peer.receiver.window();
  if (mutated(Mutation::trimmed_life_counts) && peer.life.is_followed_by(source)) [[unlikely]] {
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
  note_arrival(now, peer, header, packet, true);
}

// [wire 4.2] Whether a packet of these lives is for us. A later life of the peer's ends the earlier
// one.
[[gnu::always_inline]] inline bool Engine::meet_life(TimePoint now, Peer& peer, Life source,
                                                     Life destination, bool asks) {
  if (peer.life.has_ended(source) && !mutated(Mutation::forget_source_life)) {
    parts_.counters.drop(DropReason::stale_source_life);
    return false;
  }
  if (destination != parts_.config.life && destination.value() != 0 &&
      !mutated(Mutation::forget_destination_life)) {
    // Teaches no life: it may be as old as the one that it speaks of.
    parts_.counters.drop(DropReason::stale_destination_life);
    if (asks) {  // nothing else is answered: two ends must not answer each other for ever
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

// [wire 4.2] A later life: nothing of the former one is delivered, and what it had received nobody
// knows. A send that has not left names an endpoint and its Q_Key, which the new life has as well.
// A read or write names memory of the former life, and must never meet that of the next one.
void Engine::restart_peer(TimePoint now, Peer& peer, Life life) {
  const auto is_lost = [](const Work& work) {
    const bool outlives = work.next_packet == 0 && (work.kind == WorkKind::send ||
                                                    mutated(Mutation::one_sided_survives_restart));
    return !outlives && !mutated(Mutation::keep_work_for_new_life);
  };
  ++parts_.counters.peer_restarts;
  parts_.tell(Event::Kind::peer_restarted, now, peer.id, Psn{}, PathId{});
  peer.receiver.forget(parts_);
  parts_.schedule.cancel_delayed_reply(peer);
  parts_.works.abandon_if(peer, Status::peer_restarted, is_lost);
  adopt_life(peer, life);
  parts_.grants.forget(peer.id);
  if (peer.sender) {
    peer.sender->restart();
  }
}

// Each request is answered, so that a sender whose turn is far away knows that it was heard. A
// receiver that does not ration grants everything. [wire 4.8]
void Engine::on_credit_request(TimePoint now, Peer& peer, const wire::CreditRequest& request) {
  if (parts_.config.receiver_credits) {
    (void)parts_.grants.on_demand(now, peer.id, request.demand.value());
  }
  peer.receiver.note_demand(request.demand.value());
  parts_.schedule.reply_now(peer);
}

[[gnu::always_inline]] inline void Engine::on_data(TimePoint now, Peer& peer,
                                                   const wire::DataHeader& header,
                                                   const RxPacket& packet) {
  if (header.common.type == static_cast<std::uint8_t>(PacketType::probe)) {
    note_arrival(now, peer, header, packet, true);
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
      if (mutated(Mutation::deliver_copies)) [[unlikely]] {
        (void)deliver(now, peer, header, packet);
      }
      if (mutated(Mutation::place_copies) &&
          header.common.type == static_cast<std::uint8_t>(PacketType::write) &&
          (header.common.flags & wire::kImmediate) == 0) [[unlikely]] {
        (void)deliver_write(peer, header, packet);
      }
      if (mutated(Mutation::count_copies) && peer.receiver.known_immediates() != nullptr)
          [[unlikely]] {
        (void)deliver(now, peer, header, packet);
      }
      if (!mutated(Mutation::ignore_copies)) {
        note_arrival(now, peer, header, packet, true);
      }
      return;
    case ReceiveWindow::Verdict::fresh:
      break;
  }
  const std::uint8_t code = deliver(now, peer, header, packet);
  const bool plain = code == kAccepted;
  if (code == wire::kResultDeferred || (!plain && !window.note(psn, static_cast<Status>(code)))) {
    ++parts_.counters.deferred_pkts;
    peer.receiver.note_again(parts_, header, wire::kResultDeferred);
  } else {
    count_arrival(peer, header, packet.path);
    window.accept(psn);
    peer.receiver.count_mark(packet.ecn == Ecn::congested);
  }
  note_arrival(now, peer, header, packet, !plain);
}

// The outcome: a Status, or kResultDeferred.
[[gnu::always_inline]] inline std::uint8_t Engine::deliver(TimePoint now, Peer& peer,
                                                           const wire::DataHeader& header,
                                                           const RxPacket& packet) {
  switch (static_cast<PacketType>(header.common.type)) {
    case PacketType::send:
      return deliver_send(peer, header, packet);
    case PacketType::write:
      return deliver_write(peer, header, packet);
    case PacketType::read_request:
      return accept_read(peer, header);
    default:
      take_response(now, peer, header, packet);
      return kAccepted;
  }
}

// It is no longer among the endpoint's receives; its memory is not to be touched.
void Engine::fail_receive(const Endpoint& endpoint, const ReceiveRequest& receive) {
  Completion& completion = parts_.completions.push_receive();
  completion.cookie = receive.cookie;
  completion.kind = Completion::Kind::receive;
  completion.status = Status::local_protection;
  completion.endpoint = endpoint.qpn;
}

std::uint8_t Engine::deliver_send(Peer& peer, const wire::DataHeader& header,
                                  const RxPacket& packet) {
  Endpoint* endpoint = parts_.endpoints.find(Qpn{header.common.destination_qpn.value()});
  if (endpoint == nullptr || !endpoint->config.receiving) {
    return code_of(Status::bad_qpn);
  }
  if (endpoint->config.qkey != header.key.value() && !mutated(Mutation::skip_qkey)) {
    return code_of(Status::bad_qkey);
  }
  const std::uint32_t length = header.payload_length.value();
  for (;;) {
    if (endpoint->receives.empty() ||
        (mutated(Mutation::doubt_receives) && header.psn.value() % 64 == 0)) {
      ++parts_.counters.rnr_sent;
      return code_of(Status::receiver_not_ready);
    }
    if (total_length(endpoint->receives.front().segments) < length) {
      if (mutated(Mutation::refusal_takes_receive)) [[unlikely]] {
        Completion& taken = parts_.completions.push_receive();
        taken.cookie = endpoint->receives.front().cookie;
        taken.status = Status::flushed;
        taken.endpoint = endpoint->qpn;
        endpoint->receives.pop();
      }
      return code_of(Status::length_error);
    }
    if (!receive_room()) {
      return wire::kResultDeferred;
    }
    if (place(packet, length, endpoint->receives.front().segments, 0)) [[likely]] {
      break;
    }
    // Its memory is gone: as if it had been taken back, the message goes to the next one.
    const ReceiveRequest gone = endpoint->receives.front();
    endpoint->receives.pop();
    fail_receive(*endpoint, gone);
  }
  const ReceiveRequest& receive = endpoint->receives.front();
  if (mutated(Mutation::spill_message) && length < receive.segments[0].length) [[unlikely]] {
    receive.segments[0].data[length] = std::byte{0};
  }
  Completion& completion = parts_.completions.push_receive();
  completion.cookie = receive.cookie;
  completion.kind = Completion::Kind::receive;
  completion.has_immediate =
      (header.common.flags & wire::kImmediate) != 0 && !mutated(Mutation::lose_immediate);
  completion.immediate = header.immediate.value();
  completion.endpoint = endpoint->qpn;
  completion.remote =
      mutated(Mutation::wrong_sender) ? endpoint->qpn : Qpn{header.common.source_qpn.value()};
  completion.peer = peer.id;
  completion.length = length;
  if (!mutated(Mutation::reuse_buffers)) {
    endpoint->receives.pop();
  }
  count_order(peer, header.message.value());
  ++parts_.counters.recv_wrs;
  parts_.counters.recv_bytes += length;
  return kAccepted;
}

[[gnu::always_inline]] inline std::uint8_t Engine::deliver_write(Peer& peer,
                                                                 const wire::DataHeader& header,
                                                                 const RxPacket& packet) {
  Endpoint* endpoint = parts_.endpoints.find(Qpn{header.common.destination_qpn.value()});
  if (endpoint == nullptr || !endpoint->config.receiving) {
    return code_of(Status::bad_qpn);
  }
  if (!may_access(*endpoint, peer)) [[unlikely]] {
    return code_of(Status::unknown_peer);
  }
  const std::uint32_t length = header.payload_length.value();
  const bool has_room = (header.common.flags & wire::kImmediate) == 0 || receive_room();
  // A message without bytes touches no memory, so its key is not looked at: as InfiniBand has it.
  if (header.message_length.value() != 0) {
    const MemoryTable::Lookup target =
        parts_.memory.resolve(RegionKey{header.key.value()}, header.remote_address.value(), length,
                              Access::remote_write, endpoint->config.domain);
    if (mutated(Mutation::blame_keys) && peer.life.restarts() != 0 && header.psn.value() % 16 == 0)
        [[unlikely]] {
      return code_of(Status::bad_key);
    }
    if (target.status != Status::ok) {
      return code_of(target.status);
    }
    if (!target.phantom && has_room &&
        !(mutated(Mutation::acknowledge_unplaced) && header.psn.value() % 16 == 0)) {
      if (!PayloadReader(packet).copy_to(target.data, length)) [[unlikely]] {
        return code_of(Status::access_denied);  // registered, and gone
      }
    }
  }
  if (!has_room) {
    return wire::kResultDeferred;
  }
  if ((header.common.flags & wire::kImmediate) != 0) {
    const std::uint8_t code = deliver_immediate(peer, *endpoint, header);
    if (code != kAccepted) {
      return code;
    }
  }
  parts_.counters.rdma_write_recv_bytes += length;
  return kAccepted;
}

// Counts the bytes of a write with immediate data and tells the endpoint when all are there. The
// packet that completes the message and finds no receive is refused. When it comes again its sender
// says that it completes the message, so nothing is kept until then. [wire 4.6]
std::uint8_t Engine::deliver_immediate(Peer& peer, Endpoint& endpoint,
                                       const wire::DataHeader& header) {
  const std::uint32_t length = header.payload_length.value();
  const std::uint32_t whole = header.message_length.value();
  ImmediateTable::Entry* entry = nullptr;
  const bool alone = length == whole || (header.common.flags & wire::kCompletes) != 0;
  if (!alone) {
    entry = peer.receiver.immediates().find(header.message.value(), whole, Psn{header.psn.value()},
                                            peer.receiver.window().cumulative());
    if (entry == nullptr) {
      return wire::kResultDeferred;
    }
    if (entry->missing > length && !mutated(Mutation::announce_early)) {
      entry->missing -= length;
      return kAccepted;
    }
  }
  const bool consumes = !endpoint.config.unsolicited_immediate;
  if (consumes && endpoint.receives.empty()) {
    ++parts_.counters.rnr_sent;
    if (entry != nullptr) {
      // A refusal that cannot be noted is none: the packet comes again as it is, and must be
      // counted.
      if (!peer.receiver.window().may_note(Psn{header.psn.value()})) {
        return wire::kResultDeferred;
      }
      entry->used = mutated(Mutation::immediate_table_unfair);
    }
    return code_of(Status::receiver_not_ready);
  }
  Completion& completion = parts_.completions.push_receive();
  completion.kind = Completion::Kind::receive_write_imm;
  completion.has_immediate = true;
  completion.immediate = header.immediate.value();
  completion.consumed_receive = consumes;
  completion.endpoint = endpoint.qpn;
  completion.remote = Qpn{header.common.source_qpn.value()};
  completion.peer = peer.id;
  completion.length = whole;
  if (consumes) {
    completion.cookie = endpoint.receives.front().cookie;
    endpoint.receives.pop();
    ++parts_.counters.recv_wrs;
  }
  if (entry != nullptr) {
    entry->used = false;
  }
  count_order(peer, header.message.value());
  return kAccepted;
}

// Before the window knows of it. A packet is late if one that left later has come, or, of the same
// message, one that belongs behind it.
[[gnu::always_inline]] inline void Engine::count_arrival(Peer& peer, const wire::DataHeader& header,
                                                         PathId path) {
  const bool overtaken =
      peer.receiver.order().note_packet(header.message.value(), header.remote_address.value());
  const bool late = Psn{header.psn.value()}.before(peer.receiver.window().top()) || overtaken;
  ++parts_.counters.delivered_pkts;
  parts_.counters.reordered_pkts += late ? 1U : 0U;
  parts_.counters.see_path(path.value());
}

void Engine::count_order(Peer& peer, std::uint32_t message) {
  ++parts_.counters.delivered_msgs;
  parts_.counters.reordered_msgs += peer.receiver.order().note_message(message) ? 1U : 0U;
}

}  // namespace weft::srd
