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
  ++counters_.rx_pkts;
  counters_.rx_bytes += packet.bytes.size() + packet.more.size();
  const wire::ParsedPacket parsed =
      wire::parse_packet(packet.bytes, packet.more.size(), packet.trimmed);
  DropReason reason = parsed.reason();
  if (reason == DropReason::none && config_.checksum && !mutated(Mutation::accept_damage)) {
    reason = wire::verify_checksum(parsed, packet.more, true);
  }
  if (reason != DropReason::none) {
    counters_.drop(reason);
    return;
  }
  const wire::CommonHeader& common = parsed.common();
  if (common.destination_attachment.value() != config_.attachment.value()) {
    counters_.drop(DropReason::not_for_us);
    return;
  }
  const PeerKey key{packet.from, AttachmentId{common.source_attachment.value()}};
  // Only who wants something of us is worth remembering.
  const bool asks = parsed.has_data_header() || parsed.type() == PacketType::credit_request;
  Peer* known = peers_.find(key);
  if (known == nullptr && asks) [[unlikely]] {
    known = peers_.find_or_make(key);
  }
  if (known == nullptr) {
    counters_.drop(asks ? DropReason::peer_table_full : DropReason::ack_for_nothing);
    return;
  }
  Peer& peer = *known;
  if (asks) {
    peer.in.reply_to = Qpn{common.source_qpn.value()};
    peer.in.reply_from = Qpn{common.destination_qpn.value()};
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
  if (peer.out && peer.out->muted) [[unlikely]] {
    end_mute(peer);
    make_ready(peer);
  }
  switch (parsed.type()) {
    case PacketType::ack:
      on_ack(now, arrival_of(now, packet), peer, parsed);
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
  ++counters_.trimmed_pkts;
  const Life destination{header.common.destination_life.value()};
  const Life source{header.common.source_life.value()};
  ReceiveWindow& window = peer.in.window;
  if (mutated(Mutation::trimmed_life_counts) && peer.life.is_followed_by(source)) [[unlikely]] {
    restart_peer(now, peer, source);
  }
  if ((destination != config_.life && destination.value() != 0) ||
      (peer.life.known() && source != peer.life.present())) {
    counters_.drop(DropReason::unverified_life);
    return;
  }
  peer.life.hint(source);
  if (!window.open() || window.classify(Psn{header.psn.value()}) == ReceiveWindow::Verdict::fresh) {
    note_again(peer, header, wire::kResultTrimmed);
  }
  note_arrival(now, peer, header, packet, true);
}

// [wire 4.2] Whether a packet of these lives is for us. A later life of the peer's ends the earlier
// one.
[[gnu::always_inline]] inline bool Engine::meet_life(TimePoint now, Peer& peer, Life source,
                                                     Life destination, bool asks) {
  if (peer.life.has_ended(source) && !mutated(Mutation::forget_source_life)) {
    counters_.drop(DropReason::stale_source_life);
    return false;
  }
  if (destination != config_.life && destination.value() != 0 &&
      !mutated(Mutation::forget_destination_life)) {
    // Teaches no life: it may be as old as the one that it speaks of.
    counters_.drop(DropReason::stale_destination_life);
    if (asks) {  // nothing else is answered: two ends must not answer each other for ever
      peer.life.refuse(destination, source);
      schedule_.reply_now(peer);
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
  if (peer.out) {
    peer.out->header.destination_life = life.value();
  }
}

[[gnu::always_inline]] inline void Engine::on_data(TimePoint now, Peer& peer,
                                                   const wire::DataHeader& header,
                                                   const RxPacket& packet) {
  if (header.common.type == static_cast<std::uint8_t>(PacketType::probe)) {
    note_arrival(now, peer, header, packet, true);
    return;
  }
  const Psn psn{header.psn.value()};
  ReceiveWindow& window = peer.in.window;
  const Psn una{psn.value() - header.back.value()};
  window.advance(una);
  switch (window.classify(psn)) {
    case ReceiveWindow::Verdict::outside:
      counters_.drop(DropReason::outside_window);
      return;
    case ReceiveWindow::Verdict::duplicate:
      // Told again: the acknowledgement may have been lost.
      ++counters_.duplicate_pkts;
      counters_.drop(DropReason::duplicate);
      if (mutated(Mutation::deliver_copies)) [[unlikely]] {
        (void)deliver(now, peer, header, packet);
      }
      if (mutated(Mutation::place_copies) &&
          header.common.type == static_cast<std::uint8_t>(PacketType::write) &&
          (header.common.flags & wire::kImmediate) == 0) [[unlikely]] {
        (void)deliver_write(peer, header, packet);
      }
      if (mutated(Mutation::count_copies) && peer.in.immediates) [[unlikely]] {
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
    ++counters_.deferred_pkts;
    note_again(peer, header, wire::kResultDeferred);
  } else {
    count_arrival(peer, header, packet.path);
    window.accept(psn);
    peer.in.marked += packet.ecn == Ecn::congested ? 1U : 0U;
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
  Completion& completion = completions_.push_receive();
  completion.cookie = receive.cookie;
  completion.kind = Completion::Kind::receive;
  completion.status = Status::local_protection;
  completion.endpoint = endpoint.qpn;
}

std::uint8_t Engine::deliver_send(Peer& peer, const wire::DataHeader& header,
                                  const RxPacket& packet) {
  Endpoint* endpoint = endpoints_.find(Qpn{header.common.destination_qpn.value()});
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
      ++counters_.rnr_sent;
      return code_of(Status::receiver_not_ready);
    }
    if (total_length(endpoint->receives.front().segments) < length) {
      if (mutated(Mutation::refusal_takes_receive)) [[unlikely]] {
        Completion& taken = completions_.push_receive();
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
  Completion& completion = completions_.push_receive();
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
  ++counters_.recv_wrs;
  counters_.recv_bytes += length;
  return kAccepted;
}

[[gnu::always_inline]] inline std::uint8_t Engine::deliver_write(Peer& peer,
                                                                 const wire::DataHeader& header,
                                                                 const RxPacket& packet) {
  Endpoint* endpoint = endpoints_.find(Qpn{header.common.destination_qpn.value()});
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
        memory_.resolve(RegionKey{header.key.value()}, header.remote_address.value(), length,
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
  counters_.rdma_write_recv_bytes += length;
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
    if (!peer.in.immediates) {
      peer.in.immediates = std::make_unique<ImmediateTable>();
    }
    entry = peer.in.immediates->find(header.message.value(), whole, Psn{header.psn.value()},
                                     peer.in.window.cumulative());
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
    ++counters_.rnr_sent;
    if (entry != nullptr) {
      // A refusal that cannot be noted is none: the packet comes again as it is, and must be
      // counted.
      if (!peer.in.window.may_note(Psn{header.psn.value()})) {
        return wire::kResultDeferred;
      }
      entry->used = mutated(Mutation::immediate_table_unfair);
    }
    return code_of(Status::receiver_not_ready);
  }
  Completion& completion = completions_.push_receive();
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
    ++counters_.recv_wrs;
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
  Inbound& in = peer.in;
  const std::uint64_t place = header.remote_address.value();
  const bool same = header.message.value() == in.latest_placed.message;
  const bool late =
      Psn{header.psn.value()}.before(in.window.top()) || (same && place < in.latest_placed.address);
  ++counters_.delivered_pkts;
  counters_.reordered_pkts += late ? 1U : 0U;
  counters_.see_path(path.value());
  in.latest_placed = {header.message.value(),
                      same ? std::max(place, in.latest_placed.address) : place};
}

// Messages are numbered as they are posted; there is no promise that they come so.
void Engine::count_order(Peer& peer, std::uint32_t message) {
  const auto ahead = static_cast<std::int32_t>(message - peer.in.latest_message);
  ++counters_.delivered_msgs;
  if (ahead < 0 && peer.in.latest_message != 0) {
    ++counters_.reordered_msgs;
  } else {
    peer.in.latest_message = message;
  }
}

}  // namespace weft::srd
