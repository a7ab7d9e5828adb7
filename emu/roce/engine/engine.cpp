// Owns the tables of objects, their control calls, and the calls of a Machine.
//
// Control calls (create, modify, destroy) change objects between packets. on_packet() drops what is
// not for a living queue pair or does not come from its peer, and hands the rest to the responder
// (resp.cpp), the completer (comp.cpp) or the datagram code (ud.cpp). Whatever may have become able
// to send is put into the list of ready queue pairs by wake().
#include "emu/roce/engine/engine.hpp"

#include <algorithm>
#include <cerrno>
#include <iterator>

#include "srd/base/check.hpp"

namespace weft::roce {
namespace {

// DCQCN's receiver sends no more than one congestion notification in 50 us.
constexpr Duration kNotificationGap = std::chrono::microseconds{50};  // of one queue pair
constexpr std::uint16_t kPkeyBits = 0x7FFF;                           // without the membership bit

// In an error state posted sends are taken, too: they complete as flushed.
bool takes_sends(QpState state) {
  return state == QpState::rts || state == QpState::sqd || state == QpState::sqe ||
         state == QpState::error;
}
bool hears_requests(QpState state) {
  return state == QpState::rtr || state == QpState::rts || state == QpState::sqd ||
         state == QpState::sqe;
}
bool hears_responses(QpState state) { return state == QpState::rts || state == QpState::sqd; }

wire::Transport transport_of(QpType type) {
  switch (type) {
    case QpType::rc:
      return wire::Transport::rc;
    case QpType::uc:
      return wire::Transport::uc;
    case QpType::ud:
      break;
  }
  return wire::Transport::ud;
}

}  // namespace

Engine::Engine(const EngineConfig& config, Sink& sink, Counters* counters)
    : config_(config),
      sink_(sink),
      keys_(config.salt),
      counters_(counters != nullptr ? *counters : own_counters_),
      qps_(config.max_qps) {
  WEFT_CHECK(!config.addresses.empty());
}

QpContext* Engine::find(std::uint32_t qpn) const {
  const std::uint32_t index = qpn - config_.first_qpn;
  return index < qps_.size() ? qps_[index].get() : nullptr;
}

// The search goes on where the last one ended, so that a number rests as long as possible.
std::uint32_t Engine::create_qp(const QpSetup& request) {
  if (request.max_send_sge > kMaxSge || request.max_receive_sge > kMaxSge ||
      request.max_send == 0 || (request.max_receive == 0 && request.srq == kNoSrq)) {
    return 0;
  }
  if (request.srq != kNoSrq && !has_srq(request.srq)) {
    return 0;
  }
  for (std::uint32_t tried = 0; tried < config_.max_qps; ++tried) {
    const std::uint32_t index = next_qp_++ % config_.max_qps;
    if (qps_[index] == nullptr) {
      const std::uint32_t qpn = config_.first_qpn + index;
      qps_[index] = std::make_unique<QpContext>(qpn, request);
      return qpn;
    }
  }
  return 0;
}

int Engine::destroy_qp(std::uint32_t qpn) {
  if (find(qpn) == nullptr) {
    return EINVAL;
  }
  for (auto group = groups_.begin(); group != groups_.end();) {
    std::erase(group->second, qpn);
    group = group->second.empty() ? groups_.erase(group) : std::next(group);
  }
  deadlines_.clear(qpn - config_.first_qpn);
  forget_sends(*find(qpn));
  qps_[qpn - config_.first_qpn].reset();  // ready_ may still name it
  return 0;
}

std::optional<QpAttributes> Engine::query_qp(std::uint32_t qpn) const {
  const QpContext* const qp = find(qpn);
  if (qp == nullptr) {
    return std::nullopt;
  }
  QpAttributes attributes = qp->attributes;
  attributes.rq_psn = qp->resp.expected;
  attributes.sq_psn = qp->req.send_psn;
  attributes.draining = qp->state() == QpState::sqd && !qp->drained;
  return attributes;
}

// Takes over the attributes that are in `mask`, which check_modify() has found good.
void Engine::apply(QpContext& qp, std::uint32_t mask, const QpAttributes& from) {
  QpAttributes& to = qp.attributes;
  const auto copy = [mask](std::uint32_t bit, auto& field, const auto& value) {
    if ((mask & bit) != 0) {
      field = value;
    }
  };
  copy(kMaskSqdEvent, to.sqd_event, from.sqd_event);
  copy(kMaskAccess, to.access, from.access);
  copy(kMaskPkeyIndex, to.pkey_index, from.pkey_index);
  copy(kMaskPort, to.port, from.port);
  copy(kMaskQkey, to.qkey, from.qkey);
  copy(kMaskAddress, to.address, from.address);
  copy(kMaskPathMtu, to.path_mtu, from.path_mtu);
  copy(kMaskTimeout, to.timeout, from.timeout);
  copy(kMaskRetryCount, to.retry_count, from.retry_count);
  copy(kMaskRnrRetry, to.rnr_retry, from.rnr_retry);
  copy(kMaskMaxReads, to.max_reads, from.max_reads);
  copy(kMaskMinRnrTimer, to.min_rnr_timer, from.min_rnr_timer);
  copy(kMaskDestQpn, to.destination_qpn, from.destination_qpn);
  // 1 stands for 256 bytes.
  if ((mask & kMaskPathMtu) != 0) {
    qp.mtu = 128U << from.path_mtu;
  }
  if ((mask & kMaskRqPsn) != 0) {
    to.rq_psn = from.rq_psn & kPsnMask;
    qp.resp.expected = to.rq_psn;
    // What came last before the first packet, so that a duplicate's acknowledgement says nothing
    // new.
    qp.resp.acknowledged = psn_plus(to.rq_psn, kPsnMask);
  }
  if ((mask & kMaskSqPsn) != 0) {
    to.sq_psn = from.sq_psn & kPsnMask;
    qp.req.send_psn = qp.req.sent_end = qp.req.acked = to.sq_psn;
  }
  if ((mask & kMaskMaxDestReads) != 0) {
    to.max_dest_reads = from.max_dest_reads;
    qp.resp.resources.assign(from.max_dest_reads, Resource{});
    qp.resp.next_resource = 0;
  }
  // A change of attributes gives the retries back, as a transition does.
  qp.req.retries_left = to.retry_count;
  qp.req.rnr_left = to.rnr_retry;
}

int Engine::modify_qp(TimePoint now, std::uint32_t qpn, std::uint32_t mask,
                      const QpAttributes& attributes) {
  QpContext* const qp = find(qpn);
  if (qp == nullptr) {
    return EINVAL;
  }
  const AttributeLimits limits{.max_path_mtu = config_.max_path_mtu,
                               .addresses = static_cast<std::uint32_t>(config_.addresses.size())};
  if (const int error = check_modify(qp->type, qp->state(), mask, attributes, limits); error != 0) {
    return error;
  }
  if ((mask & kMaskState) == 0) {
    apply(*qp, mask, attributes);
    restart_timer(now, *qp);
    return 0;
  }
  if (attributes.state == QpState::reset) {
    reset(*qp);
    return 0;
  }
  apply(*qp, mask, attributes);
  if (attributes.state == QpState::error) {
    drop_responses(*qp);
    enter_error(*qp);
    return 0;
  }
  const QpState before = qp->state();
  qp->attributes.state = attributes.state;
  qp->established = qp->established || attributes.state == QpState::rts;
  if (attributes.state == QpState::sqd && before == QpState::rts) {
    qp->drained = false;
    check_drained(*qp);
  }
  wake(*qp);
  restart_timer(now, *qp);
  return 0;
}

// A new queue pair in the place of the old one. It stays in the lists that name it. Its peer is
// forgotten, too: packets of the old connection meet a queue pair in RESET.
void Engine::reset(QpContext& qp) {
  const std::uint32_t index = qp.qpn - config_.first_qpn;
  const bool was_ready = qp.ready;
  const bool had_moved = qp.moved;
  deadlines_.clear(index);
  forget_sends(qp);
  qps_[index] = std::make_unique<QpContext>(qp.qpn, QpSetup(qp.made));
  qps_[index]->ready = was_ready;
  qps_[index]->moved = had_moved;
}

// Of a queue pair that goes: its requests never complete.
void Engine::forget_sends(QpContext& qp) {
  outstanding_ -= qp.send_queue.tail() - qp.send_queue.head();
}

void Engine::note_moved(QpContext& qp) {
  if (tells_moves_ && !qp.moved) {
    qp.moved = true;
    moved_.push_slot() = qp.qpn;
  }
}

bool Engine::next_moved(Moved& moved) {
  while (!moved_.empty()) {
    QpContext* const qp = find(moved_.front());
    moved_.pop();
    if (qp != nullptr && qp->moved) {
      qp->moved = false;
      moved = {qp->qpn, qp->send_queue.head(), qp->state()};
      return true;
    }
  }
  return false;
}

// Of the responder: the peer's queue pair is over, or ours is.
void Engine::drop_responses(QpContext& qp) {
  while (!qp.resp.responses.empty()) {
    qp.resp.responses.pop();
  }
  qp.resp.ack_due = false;
}

// The rest of the specification's error state: all that is posted completes, in order.
void Engine::enter_error(QpContext& qp) {
  if (qp.state() == QpState::error) {
    return;
  }
  qp.attributes.state = QpState::error;
  note_moved(qp);
  qp.req.retransmit_at = qp.req.rnr_until = qp.req.pace_at = kNever;
  flush_sends(qp);
  if (!mutated(Mutation::keep_receives)) {
    flush_receives(qp);
  }
  if (qp.made.srq != kNoSrq) {
    raise(EventType::last_wqe_reached, qp.qpn);
  }
  set_deadline(qp);
}

// Completes all that is posted, in order.
void Engine::flush_sends(QpContext& qp) {
  while (qp.send_queue.head() != qp.send_queue.tail() && !mutated(Mutation::forget_flush)) {
    complete_head(qp, WcStatus::flushed);
  }
  qp.req.reads = 0;
  qp.req.next = qp.send_queue.head();
}

// With a shared receive queue only the receive in hand is flushed: the others may serve other queue
// pairs.
void Engine::flush_receives(QpContext& qp) {
  const wire::Packet nothing;
  if (qp.resp.has_receive) {
    complete_receive(qp, nothing, WcStatus::flushed, 0);
  }
  while (qp.made.srq == kNoSrq && !qp.receive_queue.empty()) {
    qp.receive_queue.take(qp.resp.receive);
    complete_receive(qp, nothing, WcStatus::flushed, 0);
  }
  qp.resp.message = Responder::Message::none;
}

std::uint32_t Engine::create_srq(std::uint32_t max_receive, std::uint32_t max_sge) {
  if (max_receive == 0 || max_sge > kMaxSge) {
    return kNoSrq;
  }
  const std::uint32_t srq = srq_numbers_.take();
  if (srq >= srqs_.size()) {
    srqs_.resize(srq + std::size_t{1});
  }
  srqs_[srq] = std::make_unique<ReceiveQueue>(max_receive, max_sge);
  return srq;
}

void Engine::destroy_srq(std::uint32_t srq) {
  srqs_[srq].reset();
  srq_numbers_.give_back(srq);
}

// Fires once; it has to be armed again afterwards.
int Engine::arm_srq(std::uint32_t srq, std::uint32_t limit) {
  if (!has_srq(srq)) {
    return EINVAL;
  }
  srqs_[srq]->limit = limit;
  return 0;
}

int Engine::post_send(std::uint32_t qpn, const WorkRequest& request, std::span<const Sge> segments,
                      std::span<const std::byte> inline_data) {
  QpContext* const qp = find(qpn);
  if (qp == nullptr || !takes_sends(qp->state())) {
    return EINVAL;
  }
  if (qp->send_queue.full()) {
    return ENOMEM;
  }
  if (!qp->send_queue.push(request, segments, inline_data)) {
    return EINVAL;
  }
  ++outstanding_;
  if (qp->state() == QpState::error || qp->state() == QpState::sqe) {
    flush_sends(*qp);
    return 0;
  }
  wake(*qp);
  return 0;
}

int Engine::post_receive(std::uint32_t qpn, std::uint64_t wr_id, std::span<const Sge> segments) {
  QpContext* const qp = find(qpn);
  if (qp == nullptr || qp->state() == QpState::reset || qp->made.srq != kNoSrq) {
    return EINVAL;
  }
  if (!qp->receive_queue.push(wr_id, segments)) {
    return ENOMEM;
  }
  if (qp->state() == QpState::error) {
    flush_receives(*qp);
  }
  return 0;
}

int Engine::post_srq_receive(std::uint32_t srq, std::uint64_t wr_id,
                             std::span<const Sge> segments) {
  if (!has_srq(srq)) {
    return EINVAL;
  }
  return srqs_[srq]->push(wr_id, segments) ? 0 : ENOMEM;
}

// --- Machine

// It may have something to send. To be called too often does no harm.
void Engine::wake(QpContext& qp) {
  if (!qp.ready) {
    qp.ready = true;
    ready_.push_slot() = qp.qpn;
  }
}

void Engine::set_deadline(QpContext& qp) {
  deadlines_.set(qp.qpn - config_.first_qpn,
                 std::min({qp.req.retransmit_at, qp.req.rnr_until, qp.req.pace_at}));
}

// A connection is with one address, by one of our own.
bool Engine::is_from_its_peer(const QpContext& qp, const Arrival& arrival) const {
  const AddressVector& address = qp.attributes.address;
  return arrival.rx.from == address.destination &&
         arrival.outer.destination == config_.addresses[address.source_index];
}

void Engine::on_packet(TimePoint now, const srd::RxPacket& packet) {
  wire::DatagramHeader outer;
  outer.source = packet.from;
  const std::size_t to = packet.to == 0 ? 0 : packet.to - std::size_t{1};
  if (to < config_.addresses.size()) {
    outer.destination = config_.addresses[to];
  }
  outer.traffic_class = static_cast<std::uint8_t>(packet.ecn);
  on_packet(now, packet, outer);
}

void Engine::on_packet(TimePoint now, const srd::RxPacket& rx, const wire::DatagramHeader& outer) {
  ++counters_.rcvd_pkts;
  counters_.rcvd_bytes += rx.bytes.size() + rx.more.size() + wire::kIcrcSize;
  wire::Packet packet;
  if (rx.trimmed ||
      wire::parse_packet(rx.bytes, rx.more.size(), packet) != wire::PacketFault::none) {
    ++counters_.malformed_pkts;
    return;
  }
  const Arrival arrival{packet, rx, outer};
  // Everything that can be wrong with a packet before its contents: it is dropped without an
  // answer, as the specification wants it.
  if ((packet.pkey & kPkeyBits) != kPkeyBits) {
    ++counters_.stray_pkts;
    return;
  }
  if (packet.destination_qpn == wire::kMulticastQpn) {
    on_multicast(arrival);
    return;
  }
  QpContext* const qp = find(packet.destination_qpn);
  const bool is_cnp = packet.opcode == wire::kCongestionNotification;
  if (qp == nullptr || (!is_cnp && wire::transport_of(packet.opcode) != transport_of(qp->type)) ||
      !(packet.has(wire::kResponse) || is_cnp ? hears_responses(qp->state())
                                              : hears_requests(qp->state())) ||
      (qp->type != QpType::ud && !is_from_its_peer(*qp, arrival))) {
    ++counters_.stray_pkts;
    return;
  }
  if (is_cnp) {
    if (config_.congestion_control) {
      qp->rate.congested(now, config_.line_rate);
      set_deadline(*qp);
    }
    return;
  }
  if (qp->type == QpType::ud) {
    on_datagram(*qp, arrival);
    return;
  }
  // From here on the packet is the peer's. One notification answers all marks of a while.
  const bool rested = qp->notified_at == kNever || now - qp->notified_at >= kNotificationGap;
  if (config_.congestion_control && rx.ecn == srd::Ecn::congested && rested) {
    qp->notify_peer_of_congestion = true;
    wake(*qp);
  }
  if (!qp->established) {
    qp->established = true;
    raise(EventType::communication_established, qp->qpn);
  }
  if (packet.has(wire::kResponse)) {
    on_response(now, *qp, arrival);
  } else {
    on_request(*qp, arrival);
  }
}

void Engine::on_timeout(TimePoint now) {
  while (deadlines_.earliest() <= now) {
    on_qp_timeout(now, *qps_[deadlines_.earliest_index()]);
  }
}

}  // namespace weft::roce
