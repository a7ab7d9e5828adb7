// Owns the requester: which packet of which request leaves next.
//
// transmit_request() makes one packet per call, of the request at Requester::next. A request gets
// its PSNs when its first packet is built (begin()), so that a READ can take as many as its answer
// will have. Sending again is the same code: seek() moves `next` and `send_psn` back.
#include <algorithm>
#include <cstring>

#include "emu/roce/engine/engine.hpp"
#include "srd/base/lent_memory.hpp"

namespace weft::roce {
namespace {

bool is_atomic(WrOpcode opcode) {
  return opcode == WrOpcode::compare_swap || opcode == WrOpcode::fetch_add;
}
bool is_send(WrOpcode opcode) {
  return opcode == WrOpcode::send || opcode == WrOpcode::send_immediate ||
         opcode == WrOpcode::send_invalidate;
}
bool is_write(WrOpcode opcode) {
  return opcode == WrOpcode::write || opcode == WrOpcode::write_immediate;
}

WcOpcode completion_opcode(WrOpcode opcode) {
  switch (opcode) {
    case WrOpcode::write:
    case WrOpcode::write_immediate:
      return WcOpcode::write;
    case WrOpcode::send:
    case WrOpcode::send_immediate:
    case WrOpcode::send_invalidate:
      return WcOpcode::send;
    case WrOpcode::read:
      return WcOpcode::read;
    case WrOpcode::compare_swap:
      return WcOpcode::compare_swap;
    case WrOpcode::fetch_add:
      return WcOpcode::fetch_add;
    case WrOpcode::local_invalidate:
      return WcOpcode::local_invalidate;
    case WrOpcode::atomic_write:
      return WcOpcode::atomic_write;
    case WrOpcode::bind_window:
      break;
  }
  return WcOpcode::bind_window;
}

// The operation of packet `begins`..`ends` of a message: First, Middle and Last, or Only.
wire::Operation operation_of(WrOpcode opcode, bool begins, bool ends) {
  using wire::Operation;
  if (opcode == WrOpcode::read) {
    return Operation::read_request;
  }
  if (opcode == WrOpcode::atomic_write) {
    return Operation::atomic_write;
  }
  if (is_atomic(opcode)) {
    return opcode == WrOpcode::fetch_add ? Operation::fetch_add : Operation::compare_swap;
  }
  const bool immediate = opcode == WrOpcode::send_immediate || opcode == WrOpcode::write_immediate;
  if (is_write(opcode)) {
    if (!ends) {
      return begins ? Operation::write_first : Operation::write_middle;
    }
    if (begins) {
      return immediate ? Operation::write_only_immediate : Operation::write_only;
    }
    return immediate ? Operation::write_last_immediate : Operation::write_last;
  }
  if (!ends) {
    return begins ? Operation::send_first : Operation::send_middle;
  }
  if (opcode == WrOpcode::send_invalidate) {
    return begins ? Operation::send_only_invalidate : Operation::send_last_invalidate;
  }
  if (begins) {
    return immediate ? Operation::send_only_immediate : Operation::send_only;
  }
  return immediate ? Operation::send_last_immediate : Operation::send_last;
}

}  // namespace

// What is wrong with a request by itself; success if nothing is.
WcStatus Engine::why_not(const QpContext& qp, const SendWqe& wqe) const {
  const WrOpcode opcode = wqe.request.opcode;
  const bool writes = opcode == WrOpcode::atomic_write;
  if (opcode > WrOpcode::send_invalidate && !writes) {
    return WcStatus::local_qp_operation;
  }
  if (wqe.length > kMaxMessage ||
      ((is_atomic(opcode) || writes) && wqe.length != sizeof(std::uint64_t))) {
    return WcStatus::local_length;
  }
  const bool is_inline = (wqe.request.flags & kInline) != 0;
  if (is_read_or_atomic(opcode) &&
      (qp.type != QpType::rc || qp.attributes.max_reads == 0 || is_inline != writes)) {
    return WcStatus::local_qp_operation;
  }
  if (opcode == WrOpcode::send_invalidate && qp.type != QpType::rc) {
    return WcStatus::local_qp_operation;
  }
  if (qp.type == QpType::ud && opcode != WrOpcode::send && opcode != WrOpcode::send_immediate) {
    return WcStatus::local_qp_operation;
  }
  return WcStatus::success;
}

// Gives the request at the front of what is unsent its PSNs, or executes it if it has no packets.
// False: it has to wait (for what it is fenced behind, for room among READs or PSNs, for SQD to
// end), or has failed.
bool Engine::begin(QpContext& qp, SendWqe& wqe) {
  Requester& req = qp.req;
  if (qp.state() == QpState::sqd) {
    return false;
  }
  if (const WcStatus status = why_not(qp, wqe); status != WcStatus::success) {
    fail_here(qp, status);
    return false;
  }
  const WrOpcode opcode = wqe.request.opcode;
  if ((wqe.request.flags & kFence) != 0 && req.reads != 0 && !mutated(Mutation::skip_fence)) {
    return false;
  }
  if (opcode == WrOpcode::local_invalidate || opcode == WrOpcode::bind_window) {
    if (opcode == WrOpcode::local_invalidate && req.next != qp.send_queue.head()) {
      return false;  // it waits for all that is before it
    }
    execute_local(qp, wqe);
    return wqe.begun;
  }
  const std::uint32_t packets =
      is_atomic(opcode) || wqe.length == 0 ? 1 : (wqe.length - 1) / qp.mtu + 1;
  const std::uint32_t under_way = (req.sent_end - req.acked) & kPsnMask;
  // PSNs are compared within half of their range: more under way could not be told apart.
  if (packets + under_way >= kHalfOfPsns) {
    if (under_way == 0) {
      fail_here(qp, WcStatus::local_length);
    }
    return false;
  }
  if (is_read_or_atomic(opcode)) {
    if (req.reads >= qp.attributes.max_reads) {
      return false;
    }
    if (!can_write(qp, req.next)) {
      fail_here(qp, WcStatus::local_protection);
      return false;
    }
    ++req.reads;
  }
  wqe.begun = true;
  wqe.first_psn = req.send_psn;
  wqe.last_psn = psn_plus(req.send_psn, packets - 1);
  return true;
}

// Window binds and invalidations happen here and now, but complete in their turn.
void Engine::execute_local(QpContext& qp, SendWqe& wqe) {
  const bool binds = wqe.request.opcode == WrOpcode::bind_window;
  const bool done = binds ? keys_.bind(wqe.request, qp.made.domain, qp.qpn)
                          : keys_.invalidate(wqe.request.invalidate, qp.qpn);
  if (!done) {
    fail_here(qp, binds ? WcStatus::window_bind : WcStatus::local_qp_operation);
    return;
  }
  wqe.begun = wqe.local = true;
}

// Looked at before a READ or atomic is sent: later the data would have come for nothing.
bool Engine::can_write(QpContext& qp, std::uint64_t position) {
  return std::ranges::all_of(qp.send_queue.segments(position), [&](const Sge& sge) {
    return sge.length == 0 || keys_.local(sge, kLocalWrite, qp.made.domain) != nullptr;
  });
}

// The next packet of the next request that can be sent; false if there is none, and then something
// else calls wake() when that changes: an acknowledgement, a timer, or a new request.
bool Engine::transmit_request(QpContext& qp, TimePoint now, srd::TxPacket& out) {
  Requester& req = qp.req;
  if (req.rnr_until != kNever) {
    return false;
  }
  while (req.next != qp.send_queue.tail()) {
    SendWqe& wqe = qp.send_queue.at(req.next);
    if (wqe.begun && wqe.local) {
      // A local request completes when all before it have.
      const bool first = req.next == qp.send_queue.head();
      ++req.next;
      if (first) {
        complete_head(qp, WcStatus::success);
      }
      continue;
    }
    if (psn_minus(req.send_psn, req.acked) >= static_cast<std::int32_t>(config_.window)) {
      return false;
    }
    if (is_paced(qp, now)) {
      return false;
    }
    if (req.failed != WcStatus::success || (!wqe.begun && !begin(qp, wqe))) {
      if (req.failed != WcStatus::success && req.next == qp.send_queue.head()) {
        fail_head(qp, req.failed);
      }
      return false;
    }
    if (wqe.local) {
      continue;
    }
    wire::Packet packet;
    const std::uint64_t position = req.next;
    if (const WcStatus status = fill(qp, position, packet, out); status != WcStatus::success) {
      fail_here(qp, status);
      continue;
    }
    packet_left(qp, position, packet, now);
    finish(qp, packet, now, out);
    set_deadline(qp);
    // UC is not answered: what has left has ended.
    if (qp.type == QpType::uc) {
      while (qp.send_queue.head() != req.next) {
        complete_head(qp, WcStatus::success);
      }
      check_drained(qp);
    }
    return true;
  }
  return false;
}

// Everything of the packet but its address.
WcStatus Engine::fill(QpContext& qp, std::uint64_t position, wire::Packet& packet,
                      srd::TxPacket& out) {
  const SendWqe& wqe = qp.send_queue.at(position);
  const WorkRequest& request = wqe.request;
  const std::uint32_t psn = qp.req.send_psn;
  const bool begins = psn == wqe.first_psn;
  const bool single = is_read_or_atomic(request.opcode);
  const bool ends = single || psn == wqe.last_psn;
  const auto done = static_cast<std::uint32_t>(psn_minus(psn, wqe.first_psn)) * qp.mtu;
  packet.opcode = wire::opcode_of(qp.type == QpType::rc ? wire::Transport::rc : wire::Transport::uc,
                                  operation_of(request.opcode, begins, ends));
  packet.psn = psn;
  packet.address = request.remote_address;
  packet.rkey = request.rkey;
  packet.length = wqe.length;
  packet.immediate = request.immediate;
  packet.invalidate = request.invalidate;
  if (is_atomic(request.opcode)) {
    const bool adds = request.opcode == WrOpcode::fetch_add;
    packet.swap_or_add = adds ? request.compare_add : request.swap;
    packet.compare = adds ? 0 : request.compare_add;
    return WcStatus::success;
  }
  if (request.opcode == WrOpcode::read) {  // from the first byte that is missing
    packet.address += done;
    packet.length -= done;
    return WcStatus::success;
  }
  packet.solicited = ends && !single && (request.flags & kSolicitedEvent) != 0 &&
                     request.opcode != WrOpcode::write;
  return lend(qp, position, done, std::min(qp.mtu, wqe.length - done), out);
}

// Points to the payload where it lies; one packet of many pieces is gathered.
WcStatus Engine::lend(QpContext& qp, std::uint64_t position, std::uint32_t offset,
                      std::uint32_t length, srd::TxPacket& out) {
  if (length == 0) {
    return WcStatus::success;
  }
  if ((qp.send_queue.at(position).request.flags & kInline) != 0) {
    out.payload[0] = qp.send_queue.inline_data(position).subspan(offset, length);
    return WcStatus::success;
  }
  Gathered& place = gathered_[next_gathered_];
  std::uint32_t gathered = 0;
  for (const Sge& sge : qp.send_queue.segments(position)) {
    if (offset >= sge.length) {
      offset -= sge.length;
      continue;
    }
    const std::uint32_t piece = std::min(sge.length - offset, length - gathered);
    const std::byte* const data =
        keys_.local({sge.address + offset, piece, sge.lkey}, 0, qp.made.domain);
    if (data == nullptr) {
      return WcStatus::local_protection;
    }
    if (piece == length) {
      out.payload[0] = {data, length};
      return WcStatus::success;
    }
    if (!copy_from_lent(place.data() + gathered, data, piece)) {
      return WcStatus::local_protection;
    }
    gathered += piece;
    offset = 0;
    if (gathered == length) {
      break;
    }
  }
  if (!mutated(Mutation::share_gathered)) {
    next_gathered_ = (next_gathered_ + 1) % gathered_.size();
  }
  out.payload[0] = std::span(place).first(length);
  return WcStatus::success;
}

// Asks for an acknowledgement with the last packet of each request, and within a long one before
// the window closes. UC: what has left is done.
void Engine::packet_left(QpContext& qp, std::uint64_t position, wire::Packet& packet,
                         TimePoint now) {
  Requester& req = qp.req;
  const SendWqe& wqe = qp.send_queue.at(position);
  const bool single = is_read_or_atomic(wqe.request.opcode);
  const std::uint32_t last = single ? wqe.last_psn : packet.psn;
  req.send_psn = psn_plus(last, 1);
  if (psn_before(req.sent_end, req.send_psn)) {
    req.sent_end = req.send_psn;
  } else {
    ++counters_.retrans_pkts;
  }
  if (last == wqe.last_psn) {
    ++req.next;
  }
  if (qp.type == QpType::uc) {
    req.acked = req.send_psn;
    return;
  }
  packet.ack_request = last == wqe.last_psn || ++req.unasked >= config_.window / 2;
  if (packet.ack_request) {
    req.unasked = 0;
  }
  if (req.retransmit_at == kNever && qp.attributes.timeout != 0 && !mutated(Mutation::lose_timer)) {
    req.retransmit_at = now + timeout_of(qp);
  }
}

// The request at `next` cannot be sent. What is before it completes first.
void Engine::fail_here(QpContext& qp, WcStatus status) {
  ++counters_.send_err;
  qp.req.failed = status;
  if (qp.type == QpType::rc) {
    wake(qp);
  }
}

// The request at the head is over. Successful ones tell of it only if they were to. Only the head
// can complete, which is why errors at `next` wait for it (fail_here()).
void Engine::complete_head(QpContext& qp, WcStatus status) {
  SendQueue& queue = qp.send_queue;
  const SendWqe& wqe = queue.at(queue.head());
  const WorkRequest& request = wqe.request;
  if (status != WcStatus::success || qp.made.signal_all || (request.flags & kSignaled) != 0) {
    Completion& completion = sink_.completions.push_slot();
    completion = Completion{};
    completion.wr_id = request.wr_id;
    completion.status = status;
    completion.opcode = completion_opcode(request.opcode);
    completion.cq = qp.made.send_cq;
    completion.qpn = qp.qpn;
    completion.length = wqe.length;
  }
  if (status == WcStatus::success && is_send(request.opcode)) {
    ++counters_.rdma_sends;
  }
  if (wqe.begun && is_read_or_atomic(request.opcode) && qp.req.reads != 0) {
    --qp.req.reads;
  }
  queue.pop();
  --outstanding_;
  note_moved(qp);
  qp.req.next = std::max(qp.req.next, queue.head());
}

// SQD: nothing that was begun is open any more.
void Engine::check_drained(QpContext& qp) {
  SendQueue& queue = qp.send_queue;
  const bool idle = queue.head() == queue.tail() || !queue.at(queue.head()).begun;
  if (qp.state() == QpState::sqd && idle && !qp.drained) {
    qp.drained = true;
    if (qp.attributes.sqd_event) {
      raise(EventType::send_queue_drained, qp.qpn);
    }
  }
}

}  // namespace weft::roce
