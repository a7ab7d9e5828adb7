// Owns the completer: what acknowledgements, responses and silence mean for requests.
//
// Requests complete in order, so everything is about the oldest one (the head of the send queue). A
// response first completes all that is before it (acknowledge_to()), and is then for the head
// itself. Losses are noticed in three ways: a NAK for a gap, a response that skips a READ's or
// atomic's answer, and silence until the timer. All three send again from the oldest unacknowledged
// PSN (retry()).
#include <algorithm>
#include <array>

#include "emu/roce/engine/engine.hpp"
#include "emu/roce/engine/place.hpp"

namespace weft::roce {
namespace {

constexpr std::uint8_t kForEver = 7;  // of rnr_retry

// Microseconds, by the low five bits of the syndrome (specification, table 45).
constexpr std::array<std::uint32_t, 32> kRnrTimers = {
    655360, 10,    20,    30,    40,    60,     80,     120,    160,    240,   320,
    480,    640,   960,   1280,  1920,  2560,   3840,   5120,   7680,   10240, 15360,
    20480,  30720, 40960, 61440, 81920, 122880, 163840, 245760, 327680, 491520};

}  // namespace

// 4.096 us * 2^n, but not less than processes need to be scheduled in.
Duration Engine::timeout_of(const QpContext& qp) const {
  constexpr std::int64_t kUnit = 4096;
  return std::max(Duration{kUnit << qp.attributes.timeout}, config_.min_timeout);
}

// From `now` on, if anything is outstanding: with a timeout of 0 a requester waits for ever, and
// one that waits for its peer's receive is not answered meanwhile.
void Engine::restart_timer(TimePoint now, QpContext& qp) {
  const bool waits = psn_before(qp.req.acked, qp.req.sent_end) && qp.req.rnr_until == kNever &&
                     qp.attributes.timeout != 0 && !mutated(Mutation::lose_timer);
  qp.req.retransmit_at = waits ? now + timeout_of(qp) : kNever;
  set_deadline(qp);
}

// Anything outside of what is sent and not acknowledged is an old response, or none of ours. Only
// for RC: nothing else is answered.
void Engine::on_response(TimePoint now, QpContext& qp, const Arrival& arrival) {
  Requester& req = qp.req;
  const wire::Packet& packet = arrival.packet;
  if (psn_before(packet.psn, req.acked) || !psn_before(packet.psn, req.sent_end)) {
    ++counters_.stale_responses;
    return;
  }
  const wire::Operation operation = wire::operation_of(packet.opcode);
  const bool is_reply = operation == wire::Operation::acknowledge;
  const std::uint8_t kind = packet.syndrome & wire::kSyndromeKind;
  const bool is_ack = is_reply && kind == 0;
  // A response implies that all before it has been executed.
  const std::uint32_t before = req.acked;
  const std::uint64_t head = qp.send_queue.head();
  const bool through = acknowledge_to(qp, is_ack ? psn_plus(packet.psn, 1) : packet.psn);
  if (req.acked != before || qp.send_queue.head() != head) {
    progressed(now, qp);
  }
  if (!through) {  // past a READ or atomic whose response must have been lost
    if (req.rnr_until == kNever && !req.retry_started) {
      retry(now, qp);
    }
    return;
  }
  if (!is_reply) {
    const std::uint32_t acked = req.acked;
    if (operation == wire::Operation::atomic_acknowledge) {
      take_atomic_response(qp, arrival);
    } else {
      take_read_response(qp, arrival);
    }
    if (req.acked != acked) {
      progressed(now, qp);
    }
  } else if (kind == wire::kRnrNak) {
    take_rnr_nak(now, qp, packet.syndrome & wire::kSyndromeValue);
  } else if (kind == wire::kNak) {
    take_nak(now, qp, packet.syndrome);
  }
}

// The peer has executed everything before `end`: completes those requests, in order. An
// acknowledgement also stands for all before it, except for READs and atomics: these complete by
// their response only. False: such a response is missing.
bool Engine::acknowledge_to(QpContext& qp, std::uint32_t end) {
  Requester& req = qp.req;
  SendQueue& queue = qp.send_queue;
  while (queue.head() != queue.tail()) {
    SendWqe& wqe = queue.at(queue.head());
    if (!wqe.begun) {
      break;
    }
    if (wqe.local) {
      complete_head(qp, WcStatus::success);
      continue;
    }
    if (!psn_before(req.acked, end)) {
      break;
    }
    if (is_read_or_atomic(wqe.request.opcode) && !mutated(Mutation::acknowledge_reads)) {
      return false;
    }
    if (!psn_before(wqe.last_psn, end)) {
      req.acked = end;
      break;
    }
    req.acked = psn_plus(wqe.last_psn, 1);
    complete_head(qp, WcStatus::success);
  }
  return true;
}

// The packet is the next one of the READ at the head: on_response() has seen to that.
void Engine::take_read_response(QpContext& qp, const Arrival& arrival) {
  Requester& req = qp.req;
  const wire::Packet& packet = arrival.packet;
  const std::uint64_t position = qp.send_queue.head();
  const SendWqe& wqe = qp.send_queue.at(position);
  const bool wrote = wqe.request.opcode == WrOpcode::atomic_write;
  if (position == qp.send_queue.tail() || !wqe.begun ||
      (wqe.request.opcode != WrOpcode::read && !wrote)) {
    ++counters_.stale_responses;
    return;
  }
  if (wrote) {  // it is told of by an answer without data
    if (!packet.has(wire::kBegins) || !packet.has(wire::kEnds) || packet.payload_size != 0) {
      fail_head(qp, WcStatus::bad_response);
      return;
    }
    req.acked = psn_plus(packet.psn, 1);
    complete_head(qp, WcStatus::success);
    return;
  }
  const auto done = static_cast<std::uint32_t>(psn_minus(packet.psn, wqe.first_psn)) * qp.mtu;
  const bool ends = packet.psn == wqe.last_psn;
  // First or Middle, Last or Only: an answer to a READ that was asked for again in its middle may
  // begin with either.
  if (packet.has(wire::kEnds) != ends ||
      packet.payload_size != (ends ? wqe.length - done : qp.mtu)) {
    fail_head(qp, WcStatus::bad_response);
    return;
  }
  if (!scatter(qp, qp.send_queue.segments(position), done, arrival, packet.header_size,
               packet.payload_size)) {
    fail_head(qp, WcStatus::local_protection);
    return;
  }
  req.acked = psn_plus(packet.psn, 1);
  if (ends) {
    complete_head(qp, WcStatus::success);
  }
}

// The answer to a compare-and-swap or fetch-and-add: the value that was found.
void Engine::take_atomic_response(QpContext& qp, const Arrival& arrival) {
  const std::uint64_t position = qp.send_queue.head();
  const SendWqe& wqe = qp.send_queue.at(position);
  if (position == qp.send_queue.tail() || !wqe.begun || !is_read_or_atomic(wqe.request.opcode) ||
      wqe.request.opcode == WrOpcode::read || wqe.request.opcode == WrOpcode::atomic_write) {
    ++counters_.stale_responses;
    return;
  }
  // The value is scattered like a packet's payload, so keys and segments are checked in one place.
  srd::RxPacket value;
  value.bytes = std::as_bytes(std::span(&arrival.packet.original, 1));
  if (!scatter(qp, qp.send_queue.segments(position), 0, {arrival.packet, value, arrival.outer}, 0,
               sizeof(std::uint64_t))) {
    fail_head(qp, WcStatus::local_protection);
    return;
  }
  qp.req.acked = psn_plus(arrival.packet.psn, 1);
  complete_head(qp, WcStatus::success);
}

// Copies `length` bytes, from byte `skip` of the packet on, into the segments at `offset`. Keys are
// looked at for each packet: a region may have gone since the work was posted. False: a key is
// wrong, memory is gone, or the segments are too short.
bool Engine::scatter(const QpContext& qp, std::span<const Sge> segments, std::uint64_t offset,
                     const Arrival& arrival, std::size_t skip, std::uint32_t length) {
  for (const Sge& sge : segments) {
    if (length == 0) {
      break;
    }
    if (offset >= sge.length) {
      offset -= sge.length;
      continue;
    }
    const auto piece =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(sge.length - offset, length));
    std::byte* const to =
        keys_.local({sge.address + offset, piece, sge.lkey}, kLocalWrite, qp.made.domain);
    if (to == nullptr || !copy_packet(arrival.rx, skip, to, piece)) {
      return false;
    }
    skip += piece;
    length -= piece;
    offset = 0;
  }
  return length == 0;
}

// Any NAK but for a gap ends the request at the head, which is the one it is about: all before it
// have been acknowledged by the same packet.
void Engine::take_nak(TimePoint now, QpContext& qp, std::uint8_t syndrome) {
  switch (syndrome) {
    case wire::kNakSequence:
      ++counters_.rcvd_seq_err;
      // Behind a packet that finds no receive Linux reports the next one as a gap, which it is not,
      // and a slow peer does so after the wait: taken for losses, they would use up the retries.
      if (!qp.req.rnr_told && !qp.req.retry_started) {
        retry(now, qp);
      }
      return;
    case wire::kNakInvalidRequest:
      fail_head(qp, WcStatus::remote_invalid_request);
      return;
    case wire::kNakRemoteAccess:
      fail_head(qp, WcStatus::remote_access);
      return;
    case wire::kNakRemoteOperation:
      fail_head(qp, WcStatus::remote_operation);
      return;
    default:
      ++counters_.stale_responses;
  }
}

// The peer has no receive: sends again from there when the time has passed that the peer asks for.
void Engine::take_rnr_nak(TimePoint now, QpContext& qp, std::uint8_t timer) {
  Requester& req = qp.req;
  ++counters_.rcvd_rnr_err;
  req.rnr_told = true;
  if (req.rnr_until != kNever) {
    return;
  }
  if (req.rnr_left == 0 || (mutated(Mutation::impatient) && qp.attributes.rnr_retry != kForEver)) {
    ++counters_.retry_rnr_exceeded_err;
    fail_head(qp, WcStatus::rnr_retries_exceeded);
    return;
  }
  if (qp.attributes.rnr_retry != kForEver) {
    --req.rnr_left;
  }
  req.rnr_until = now + std::chrono::microseconds{kRnrTimers[timer]};
  req.retransmit_at = kNever;
  seek(qp, req.acked);
  set_deadline(qp);
}

// Something new is acknowledged: the counters begin anew, the window moves.
void Engine::progressed(TimePoint now, QpContext& qp) {
  Requester& req = qp.req;
  if (qp.state() != QpState::rts && qp.state() != QpState::sqd) {
    return;
  }
  SendQueue& queue = qp.send_queue;
  while (queue.head() != queue.tail() && queue.at(queue.head()).local) {  // executed long ago
    complete_head(qp, WcStatus::success);
  }
  req.retries_left = qp.attributes.retry_count;
  req.rnr_left = qp.attributes.rnr_retry;
  req.retry_started = false;
  req.rnr_told = false;
  req.rnr_until = kNever;
  if (psn_before(req.send_psn, req.acked)) {
    seek(qp, req.acked);
  }
  restart_timer(now, qp);
  check_drained(qp);
  wake(qp);
}

// The next packet to be sent is `psn`, which is not acknowledged.
void Engine::seek(QpContext& qp, std::uint32_t psn) {
  SendQueue& queue = qp.send_queue;
  Requester& req = qp.req;
  req.send_psn = psn;
  req.failed = WcStatus::success;
  req.next = queue.head();
  while (req.next != queue.tail()) {
    const SendWqe& wqe = queue.at(req.next);
    if (!wqe.begun || (!wqe.local && !psn_before(wqe.last_psn, psn))) {
      break;
    }
    ++req.next;
  }
}

// Go-back-N: begins again at the first packet that is not acknowledged. One NAK or gap begins one
// retry, however many more packets report the same (retry_started).
void Engine::retry(TimePoint now, QpContext& qp) {
  Requester& req = qp.req;
  if (req.retries_left == 0 || mutated(Mutation::give_up_early)) {
    ++counters_.retry_exceeded_err;
    fail_head(qp, WcStatus::retries_exceeded);
    return;
  }
  if (!mutated(Mutation::retry_for_ever)) {
    --req.retries_left;
  }
  ++counters_.completer_retry_err;
  req.retry_started = true;
  req.retransmit_at = qp.attributes.timeout != 0 ? now + timeout_of(qp) : kNever;
  seek(qp, req.acked);
  set_deadline(qp);
  wake(qp);
}

// The request at the head ends with an error. RC: the queue pair is over. Others: only sending
// stops, until the application brings it back.
void Engine::fail_head(QpContext& qp, WcStatus status) {
  qp.req.failed = WcStatus::success;
  complete_head(qp, status);
  if (qp.type == QpType::rc) {
    drop_responses(qp);
    enter_error(qp);
    return;
  }
  qp.attributes.state = QpState::sqe;  // it goes on receiving
  flush_sends(qp);
}

// The three deadlines of a queue pair share one entry in the heap, so each is looked at.
void Engine::on_qp_timeout(TimePoint now, QpContext& qp) {
  Requester& req = qp.req;
  if (req.rnr_until <= now) {
    req.rnr_until = kNever;
    req.retry_started = false;
    wake(qp);
  }
  if (req.pace_at <= now) {
    req.pace_at = kNever;
    wake(qp);
  }
  if (req.retransmit_at <= now) {
    req.retransmit_at = kNever;
    if (psn_before(req.acked, req.sent_end)) {
      retry(now, qp);
    }
  }
  set_deadline(qp);
}

}  // namespace weft::roce
