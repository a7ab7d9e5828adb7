// Owns the responder: the checks of a request in Linux's order, and its execution.
//
// PSN, opcode sequence, rights of the queue pair, resources, a posted receive, length, key.
// docs/roce.md says which answer each gives. The order shows: a request that is wrong in two ways
// gets the answer of the first check.
//
// Nothing is executed out of order and nothing twice: a packet that is not the expected one is
// either a duplicate (replay.cpp) or reports a gap.
#include <algorithm>
#include <atomic>

#include "emu/roce/engine/engine.hpp"
#include "emu/roce/engine/place.hpp"

namespace weft::roce {
namespace {

bool is_atomic_write(const wire::Packet& packet) {
  return wire::operation_of(packet.opcode) == wire::Operation::atomic_write;
}

// SENDs need no right: the receive is the permission.
std::uint32_t right_for(const wire::Packet& packet) {
  if (packet.has(wire::kSend)) {
    return 0;
  }
  if (packet.has(wire::kWrite) || is_atomic_write(packet)) {
    return kRemoteWrite;
  }
  return packet.has(wire::kAtomic) ? kRemoteAtomic : kRemoteRead;
}

bool is_read(const wire::Packet& packet) {
  return wire::operation_of(packet.opcode) == wire::Operation::read_request;
}

// UC: the rest of the message is lost, up to the packet that begins another.
void drop_message(Responder& resp) {
  resp.message = Responder::Message::none;
  resp.dropping = true;
}

}  // namespace

void Engine::on_request(QpContext& qp, const Arrival& arrival) {
  const wire::Packet& packet = arrival.packet;
  Responder& resp = qp.resp;
  if (!is_in_sequence(qp, arrival)) {
    return;
  }
  if (!fits_message(qp, packet)) {
    refuse(qp, packet, wire::kNakInvalidRequest, WcStatus::remote_invalid_request);
    return;
  }
  if (!is_allowed(qp, packet)) {
    refuse(qp, packet, wire::kNakInvalidRequest, WcStatus::remote_invalid_request);
    return;
  }
  const bool keeps = is_read(packet) || packet.has(wire::kAtomic);
  if (resp.responses.full()) {  // a peer that asks without listening: as if it were lost
    return;
  }
  if (keeps && resp.resources.empty()) {
    refuse(qp, packet, wire::kNakInvalidRequest, WcStatus::remote_invalid_request);
    return;
  }
  // A WRITE takes a receive only for its immediate data, so only with the packet that has them.
  const bool consumes = packet.has(wire::kSend)
                            ? packet.has(wire::kBegins)
                            : packet.has(wire::kWrite) && packet.has(wire::kHasImmediate);
  if (consumes && !resp.has_receive && !take_receive(qp)) {
    if (qp.type != QpType::rc) {
      ++counters_.dropped_for_receive;
      drop_message(resp);
    } else if (mutated(Mutation::forget_rnr)) {
      executed(qp, packet);
    } else {
      ++counters_.send_rnr_err;
      resp.nak_sent = true;
      answer(qp, static_cast<std::uint8_t>(wire::kRnrNak | qp.attributes.min_rnr_timer),
             packet.psn);
    }
    return;
  }
  if (!has_good_length(qp, packet)) {
    refuse(qp, packet, wire::kNakInvalidRequest, WcStatus::remote_invalid_request);
    return;
  }
  accept(qp, arrival);
}

// Whether the packet is the next one. Answers those that are not: RC, a gap with one NAK, a
// duplicate by repeating its answer. UC takes any packet that begins a message.
bool Engine::is_in_sequence(QpContext& qp, const Arrival& arrival) {
  const wire::Packet& packet = arrival.packet;
  Responder& resp = qp.resp;
  const std::int32_t ahead = psn_minus(packet.psn, resp.expected);
  if (qp.type == QpType::uc) {
    if (ahead != 0 || packet.has(wire::kBegins)) {  // the end of the one before was lost
      drop_message(resp);
    }
    resp.dropping = (resp.dropping || ahead != 0) && !packet.has(wire::kBegins);
    counters_.out_of_seq_request += ahead != 0 ? 1 : 0;
    resp.expected = psn_plus(packet.psn, 1);
    return !resp.dropping;
  }
  if (ahead > 0 && !mutated(Mutation::forget_gap)) {
    ++counters_.out_of_seq_request;
    if (!resp.nak_sent) {
      resp.nak_sent = true;
      answer(qp, wire::kNakSequence, resp.expected);
    }
    return false;
  }
  if (ahead < 0) {
    ++counters_.duplicate_request;
    on_duplicate(qp, arrival);
    return false;
  }
  resp.nak_sent = false;
  resp.expected = packet.psn;
  return true;
}

// First, Middle and Last in their order, and of one kind.
bool Engine::fits_message(const QpContext& qp, const wire::Packet& packet) {
  using Message = Responder::Message;
  if (packet.has(wire::kBegins)) {
    return qp.resp.message == Message::none;
  }
  return qp.resp.message == (packet.has(wire::kSend) ? Message::send : Message::write);
}

bool Engine::is_allowed(const QpContext& qp, const wire::Packet& packet) const {
  const std::uint32_t right = right_for(packet);
  return (qp.attributes.access & right) == right || mutated(Mutation::ignore_remote_rights);
}

// All packets but the last are full ones.
bool Engine::has_good_length(const QpContext& qp, const wire::Packet& packet) {
  const std::uint32_t size = packet.payload_size;
  if (packet.has(wire::kHasReth) && packet.length > kMaxMessage) {
    return false;
  }
  if (!packet.has(wire::kPayload)) {
    return true;
  }
  if (!packet.has(wire::kEnds)) {
    return size == qp.mtu;
  }
  if (is_atomic_write(packet)) {
    return size == sizeof(std::uint64_t) && packet.length == size;
  }
  return size <= qp.mtu && (size != 0 || packet.has(wire::kBegins));
}

// The receive stays with the queue pair until its message has ended, over all of its packets.
bool Engine::take_receive(QpContext& qp) {
  ReceiveQueue* const queue = stocked_queue(qp);
  if (queue == nullptr) {
    return false;
  }
  queue->take(qp.resp.receive);
  qp.resp.has_receive = true;
  took_from_srq(qp);
  return true;
}

void Engine::accept(QpContext& qp, const Arrival& arrival) {
  const wire::Packet& packet = arrival.packet;
  if (packet.has(wire::kBegins)) {
    qp.resp.placed = 0;
  }
  if (packet.has(wire::kSend)) {
    accept_send(qp, arrival);
  } else if (packet.has(wire::kWrite)) {
    accept_write(qp, arrival);
  } else if (packet.has(wire::kAtomic)) {
    accept_atomic(qp, arrival);
  } else {
    accept_read(qp, packet);
  }
}

void Engine::accept_send(QpContext& qp, const Arrival& arrival) {
  const wire::Packet& packet = arrival.packet;
  Responder& resp = qp.resp;
  if (resp.placed + std::uint64_t{packet.payload_size} > resp.receive.length) {
    refuse(qp, packet, wire::kNakInvalidRequest, WcStatus::local_length);
    return;
  }
  const auto segments = std::span(resp.receive.sges).first(resp.receive.segments);
  if (!scatter(qp, segments, resp.placed, arrival, packet.header_size, packet.payload_size)) {
    refuse(qp, packet, wire::kNakRemoteOperation, WcStatus::local_protection);
    return;
  }
  resp.placed += packet.payload_size;
  counters_.placed_bytes += packet.payload_size;
  const bool invalidates = packet.has(wire::kHasIeth);
  if (invalidates && !keys_.invalidate(packet.invalidate, qp.qpn)) {
    // Of the specification's class J: no NAK, the peer learns it by silence.
    ++counters_.refused_requests;
    complete_receive(qp, packet, WcStatus::remote_invalid_request, resp.placed);
    enter_error(qp);
    return;
  }
  if (packet.has(wire::kEnds)) {
    complete_receive(qp, packet, WcStatus::success, resp.placed);
  }
  executed(qp, packet);
}

// The memory of a WRITE is checked again for each packet: the key may be invalidated meanwhile.
void Engine::accept_write(QpContext& qp, const Arrival& arrival) {
  const wire::Packet& packet = arrival.packet;
  Responder& resp = qp.resp;
  if (packet.has(wire::kBegins)) {
    resp.write_address = packet.address;
    resp.write_left = packet.length;
    resp.write_rkey = packet.rkey;
  }
  const std::uint32_t size = packet.payload_size;
  if (packet.has(wire::kEnds) ? size != resp.write_left : size >= resp.write_left) {
    refuse(qp, packet, wire::kNakInvalidRequest, WcStatus::remote_invalid_request);
    return;
  }
  if (resp.write_left != 0) {  // all that is left, so that a message is refused before it begins
    std::byte* to =
        keys_.remote(resp.write_rkey, resp.write_address, resp.write_left,
                     mutated(Mutation::ignore_remote_rights) ? 0U : std::uint32_t{kRemoteWrite},
                     qp.made.domain, qp.qpn);
    if (to != nullptr && mutated(Mutation::misplace) && !packet.has(wire::kBegins) && size > 8) {
      to += 4;
    }
    if (to == nullptr || !copy_packet(arrival.rx, packet.header_size, to, size)) {
      refuse(qp, packet, wire::kNakRemoteAccess, WcStatus::local_access);
      return;
    }
  }
  resp.write_address += size;
  resp.write_left -= size;
  resp.placed += size;
  counters_.placed_bytes += size;
  if (packet.has(wire::kHasImmediate)) {
    complete_receive(qp, packet, WcStatus::success, resp.placed);
  }
  executed(qp, packet);
}

void Engine::accept_read(QpContext& qp, const wire::Packet& packet) {
  if (packet.length != 0 && keys_.remote(packet.rkey, packet.address, packet.length, kRemoteRead,
                                         qp.made.domain, qp.qpn) == nullptr) {
    refuse(qp, packet, wire::kNakRemoteAccess, WcStatus::local_access);
    return;
  }
  const std::uint32_t packets = packet.length == 0 ? 1 : (packet.length - 1) / qp.mtu + 1;
  Responder& resp = qp.resp;
  resp.msn = psn_plus(resp.msn, 1);
  Resource& resource = new_resource(qp);
  resource.is_read = true;
  resource.first_psn = packet.psn;
  resource.last_psn = psn_plus(packet.psn, packets - 1);
  resource.address = packet.address;
  resource.length = packet.length;
  resource.rkey = packet.rkey;
  resp.expected = psn_plus(resource.last_psn, 1);
  answer_read(qp, resource, packet);
}

// Done on the memory itself with the processor's atomics, as programs there may use them, too.
void Engine::accept_atomic(QpContext& qp, const Arrival& arrival) {
  const wire::Packet& packet = arrival.packet;
  if (packet.address % sizeof(std::uint64_t) != 0) {
    refuse(qp, packet, wire::kNakInvalidRequest, WcStatus::remote_invalid_request);
    return;
  }
  std::byte* const at = keys_.remote(packet.rkey, packet.address, sizeof(std::uint64_t),
                                     right_for(packet), qp.made.domain, qp.qpn);
  const bool aligned = reinterpret_cast<std::uintptr_t>(at) % sizeof(std::uint64_t) == 0;
  const bool adds = wire::operation_of(packet.opcode) == wire::Operation::fetch_add;
  const bool writes = is_atomic_write(packet);
  std::uint64_t original = packet.compare;
  std::uint64_t written = 0;
  if (writes && !copy_packet(arrival.rx, packet.header_size, reinterpret_cast<std::byte*>(&written),
                             sizeof written)) {
    return;
  }
  const bool done =
      at != nullptr && aligned && touch_lent(at, sizeof original, [&] {
        const std::atomic_ref<std::uint64_t> value(*reinterpret_cast<std::uint64_t*>(at));
        if (writes) {
          value.store(written);
        } else if (adds) {
          original = value.fetch_add(packet.swap_or_add);
        } else {
          value.compare_exchange_strong(original, packet.swap_or_add);
        }
      });
  if (!done) {
    refuse(qp, packet, wire::kNakRemoteAccess, WcStatus::local_access);
    return;
  }
  counters_.placed_bytes += sizeof original;
  Resource& resource = new_resource(qp);
  resource.is_read = false;
  resource.is_written = writes;
  resource.first_psn = resource.last_psn = packet.psn;
  resource.original = original;
  qp.resp.msn = psn_plus(qp.resp.msn, 1);
  qp.resp.expected = psn_plus(packet.psn, 1);
  answer_atomic(qp, resource);
}

// A packet of a SEND or WRITE has done its work.
void Engine::executed(QpContext& qp, const wire::Packet& packet) {
  Responder& resp = qp.resp;
  const bool ends = packet.has(wire::kEnds);
  const auto kind = packet.has(wire::kSend) ? Responder::Message::send : Responder::Message::write;
  resp.message = ends ? Responder::Message::none : kind;
  resp.expected = psn_plus(packet.psn, 1);
  resp.acknowledged = packet.psn;
  if (ends) {
    resp.msn = psn_plus(resp.msn, 1);
  }
  if (qp.type == QpType::rc && packet.ack_request) {
    answer(qp, wire::kAckNoCredit, packet.psn);
  }
}

void Engine::complete_receive(QpContext& qp, const wire::Packet& packet, WcStatus status,
                              std::uint32_t length, std::uint8_t service_level) {
  qp.resp.has_receive = false;
  Completion& completion = sink_.completions.push_slot();
  completion = Completion{};
  completion.wr_id = qp.resp.receive.wr_id;
  completion.status = status;
  completion.opcode =
      packet.has(wire::kWrite) ? WcOpcode::receive_write_immediate : WcOpcode::receive;
  completion.cq = qp.made.receive_cq;
  completion.qpn = qp.qpn;
  completion.length = length;
  completion.service_level = service_level;
  const bool is_datagram = packet.has(wire::kHasDeth);
  completion.source_qpn = is_datagram ? packet.source_qpn : qp.attributes.destination_qpn;
  completion.flags = is_datagram ? std::uint8_t{kWcGrh} : std::uint8_t{};
  completion.solicited = packet.solicited || status != WcStatus::success;
  counters_.rdma_recvs += status == WcStatus::success ? 1 : 0;
  if (status == WcStatus::success && packet.has(wire::kHasImmediate)) {
    completion.flags |= kWcImmediate;
    completion.immediate = packet.immediate;
  } else if (status == WcStatus::success && packet.has(wire::kHasIeth)) {
    completion.flags |= kWcInvalidate;
    completion.immediate = packet.invalidate;
  }
}

// RC: both queue pairs end here. UC: the message is dropped, and its receive waits for another,
// unless that is what is wrong.
void Engine::refuse(QpContext& qp, const wire::Packet& packet, std::uint8_t syndrome,
                    WcStatus status) {
  ++counters_.refused_requests;
  if (qp.type != QpType::rc) {
    drop_message(qp.resp);
    if (status == WcStatus::local_protection) {  // no other message could be received either
      complete_receive(qp, packet, status, 0);
      enter_error(qp);
    }
    return;
  }
  answer(qp, syndrome, packet.psn);
  if (qp.resp.has_receive) {
    complete_receive(qp, packet, status, 0);
  } else {
    raise(
        status == WcStatus::local_access ? EventType::qp_access_error : EventType::qp_request_error,
        qp.qpn);
  }
  enter_error(qp);
}

}  // namespace weft::roce
