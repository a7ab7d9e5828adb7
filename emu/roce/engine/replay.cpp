// Owns what the responder sends: acknowledgements, the data of READs, the results of atomics, and
// all of that again for requests that come twice.
//
// Answers leave in the order of the requests (Responder::responses). A READ's answer is not stored:
// its packets read the memory when they leave. Only atomics keep their result, because repeating
// them would change memory again.
#include <algorithm>

#include "emu/roce/engine/engine.hpp"

namespace weft::roce {
namespace {

// The newest resource that fits: PSNs come round, and an older one may have had the same.
template <class Fits>
const Resource* newest(const Responder& resp, const Fits& fits) {
  const std::size_t count = resp.resources.size();
  for (std::size_t age = 1; age <= count; ++age) {
    const Resource& resource = resp.resources[(resp.next_resource + count - age) % count];
    if (resource.used && fits(resource)) {
      return &resource;
    }
  }
  return nullptr;
}

}  // namespace

// Queues an answer without data. An acknowledgement that still waits takes in the next one, as a
// later one stands for all before it; a NAK keeps its place.
void Engine::answer(QpContext& qp, std::uint8_t syndrome, std::uint32_t psn) {
  Responder& resp = qp.resp;
  wake(qp);
  if (syndrome == wire::kAckNoCredit) {
    counters_.ack_deferred += resp.ack_due ? 1 : 0;
    resp.ack_due = true;
    resp.ack_psn = psn;
    return;
  }
  Response nak;
  nak.syndrome = syndrome;
  nak.psn = psn;
  respond(qp, nak);
}

// Queues an answer behind the acknowledgement that waits, which is older. Without room it is as if
// the response were lost: the peer asks again.
void Engine::respond(QpContext& qp, Response& response) {
  Responder& resp = qp.resp;
  if (resp.ack_due) {
    Response ack;
    ack.syndrome = wire::kAckNoCredit;
    ack.psn = resp.ack_psn;
    ack.msn = resp.msn;
    resp.ack_due = !resp.responses.push(ack);
  }
  response.msn = resp.msn;
  static_cast<void>(resp.responses.push(response));
  wake(qp);
}

// A request that was executed before is never executed again: writes and sends are acknowledged,
// READs and atomics answered from what they have left behind.
void Engine::on_duplicate(QpContext& qp, const Arrival& arrival) {
  const wire::Packet& packet = arrival.packet;
  Responder& resp = qp.resp;
  if (packet.has(wire::kAtomic)) {
    if (mutated(Mutation::repeat_atomics)) {
      const std::uint32_t expected = resp.expected;
      accept_atomic(qp, arrival);
      resp.expected = expected;
      return;
    }
    replay_atomic(qp, packet);
    return;
  }
  if (!packet.has(wire::kSend) && !packet.has(wire::kWrite)) {
    replay_read(qp, packet);
    return;
  }
  if (mutated(Mutation::repeat_sends) && packet.has(wire::kSend) && packet.has(wire::kEnds) &&
      !resp.has_receive && take_receive(qp)) {
    complete_receive(qp, packet, WcStatus::success, packet.payload_size);
  }
  // Not further than SENDs and WRITEs reach: an acknowledgement with the number of a READ or atomic
  // would pass for its answer, and Linux completes a READ by it without the data.
  answer(qp, wire::kAckNoCredit,
         mutated(Mutation::acknowledge_further) ? psn_plus(resp.expected, kPsnMask)
                                                : resp.acknowledged);
}

// The oldest one gives way. A peer that keeps to max_dest_reads never needs it any more.
Resource& Engine::new_resource(QpContext& qp) {
  auto& resources = qp.resp.resources;
  Resource& resource = resources[qp.resp.next_resource++ % resources.size()];
  resource = Resource{};
  resource.used = true;
  return resource;
}

// Answers a repeated READ from the resource that it has left; without one it is dropped.
void Engine::replay_read(QpContext& qp, const wire::Packet& packet) {
  Responder& resp = qp.resp;
  const std::uint32_t packets = packet.length == 0 ? 1 : (packet.length - 1) / qp.mtu + 1;
  const Resource* const found = newest(resp, [&](const Resource& resource) {
    const std::uint64_t offset = packet.address - resource.address;
    return resource.is_read && resource.rkey == packet.rkey &&
           !psn_before(packet.psn, resource.first_psn) &&
           !psn_before(resource.last_psn, psn_plus(packet.psn, packets - 1)) &&
           (packet.length == 0 ||
            (offset < resource.length && packet.length <= resource.length - offset));
  });
  if (found == nullptr || resp.responses.full()) {
    return;
  }
  for (std::size_t i = 0; i < resp.responses.size(); ++i) {  // it will come to that anyway
    const Response& waiting = resp.responses.at(i);
    if (waiting.kind == Response::Kind::read && waiting.first_psn == found->first_psn &&
        waiting.last_psn == psn_plus(packet.psn, packets - 1) &&
        !psn_before(packet.psn, waiting.psn)) {
      return;
    }
  }
  answer_read(qp, *found, packet);
}

// The packets of a READ have PSNs of their own, so a repeated READ may ask for the rest only: the
// answer begins at the byte that belongs to its PSN.
void Engine::answer_read(QpContext& qp, const Resource& resource, const wire::Packet& packet) {
  const std::uint32_t packets = packet.length == 0 ? 1 : (packet.length - 1) / qp.mtu + 1;
  Response response;
  response.kind = Response::Kind::read;
  response.syndrome = wire::kAckNoCredit;
  response.psn = packet.psn;
  response.first_psn = resource.first_psn;
  response.last_psn = psn_plus(packet.psn, packets - 1);
  response.address = packet.address;
  response.left = packet.length;
  response.rkey = packet.rkey;
  if (mutated(Mutation::stale_replay)) {
    response.address = resource.address;
  }
  respond(qp, response);
}

// By the exact PSN; the result is the stored one, whatever memory holds now.
void Engine::replay_atomic(QpContext& qp, const wire::Packet& packet) {
  const Resource* const found = newest(qp.resp, [&](const Resource& resource) {
    return !resource.is_read && resource.first_psn == packet.psn;
  });
  if (found != nullptr) {
    answer_atomic(qp, *found);
  }
}

void Engine::answer_atomic(QpContext& qp, const Resource& resource) {
  Response response;
  response.kind = resource.is_written ? Response::Kind::written : Response::Kind::atomic;
  response.syndrome = wire::kAckNoCredit;
  response.psn = resource.first_psn;
  response.original = resource.original;
  respond(qp, response);
}

// Builds the next packet of the oldest answer. Paced like requests, but only data: an
// acknowledgement that waits would make the peer repeat itself.
bool Engine::transmit_response(QpContext& qp, TimePoint now, srd::TxPacket& out) {
  Responder& resp = qp.resp;
  wire::Packet packet;
  packet.opcode = wire::opcode_of(wire::Transport::rc, wire::Operation::acknowledge);
  if (!resp.responses.empty()) {
    Response& response = resp.responses.front();
    if (response.kind == Response::Kind::read && is_paced(qp, now)) {
      return false;
    }
    packet.psn = response.psn;
    packet.msn = response.msn;
    packet.syndrome = response.syndrome;
    bool done = true;
    if (response.kind == Response::Kind::atomic) {
      packet.opcode = wire::opcode_of(wire::Transport::rc, wire::Operation::atomic_acknowledge);
      packet.original = response.original;
    } else if (response.kind == Response::Kind::written) {
      packet.opcode = wire::opcode_of(wire::Transport::rc, wire::Operation::read_response_only);
    } else if (response.kind == Response::Kind::read) {
      done = fill_read_response(qp, response, packet, out);
    }
    if (done) {
      resp.responses.pop();
    }
  } else if (resp.ack_due) {
    resp.ack_due = false;
    packet.psn = resp.ack_psn;
    packet.msn = resp.msn;
    packet.syndrome = wire::kAckNoCredit;
  } else {
    return false;
  }
  finish(qp, packet, now, out);
  return true;
}

// Reads memory anew for each packet. True: nothing of this response remains.
//
// Linux takes First only for the first PSN of the READ, and Only for a READ of one packet: what is
// repeated from the middle on is Middle and Last.
bool Engine::fill_read_response(QpContext& qp, Response& response, wire::Packet& packet,
                                srd::TxPacket& out) {
  using wire::Operation;
  const std::uint32_t size = std::min(response.left, qp.mtu);
  const std::byte* const from = size == 0 ? nullptr
                                          : keys_.remote(response.rkey, response.address, size,
                                                         kRemoteRead, qp.made.domain, qp.qpn);
  if (size != 0 && from == nullptr) {
    packet.syndrome = wire::kNakRemoteAccess;
    ++counters_.refused_requests;
    raise(EventType::qp_access_error, qp.qpn);
    while (qp.resp.responses.size() > 1) {
      qp.resp.responses.pop();
    }
    qp.resp.ack_due = false;
    enter_error(qp);
    return true;
  }
  const bool begins = response.psn == response.first_psn;
  const bool ends = response.psn == response.last_psn;
  const Operation last = begins ? Operation::read_response_only : Operation::read_response_last;
  const Operation other = begins ? Operation::read_response_first : Operation::read_response_middle;
  packet.opcode = wire::opcode_of(wire::Transport::rc, ends ? last : other);
  if (size != 0) {
    out.payload[0] = {from, size};
  }
  response.psn = psn_plus(response.psn, 1);
  response.address += size;
  response.left -= size;
  return ends;
}

}  // namespace weft::roce
