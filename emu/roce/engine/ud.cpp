// Owns datagrams: sending, receiving with the headers in front, groups; and where receives come
// from.
#include <algorithm>
#include <cerrno>

#include "emu/roce/engine/engine.hpp"

namespace weft::roce {
namespace {

constexpr std::uint32_t kOwnKey = 0x80000000;  // a remote Q_Key with this bit is the sender's own
constexpr std::size_t kUdpAndIcrc = 12;

}  // namespace

// One packet per request, and complete once it has left: nobody answers a datagram.
bool Engine::transmit_datagram(QpContext& qp, TimePoint now, srd::TxPacket& out) {
  Requester& req = qp.req;
  const std::uint32_t port_mtu = 128U << config_.max_path_mtu;
  while (req.next != qp.send_queue.tail() && qp.state() == QpState::rts) {
    const std::uint64_t position = req.next;
    const SendWqe& wqe = qp.send_queue.at(position);
    const WorkRequest& request = wqe.request;
    WcStatus status = why_not(qp, wqe);
    if (request.address.source_index >= config_.addresses.size()) {
      status = WcStatus::local_qp_operation;
    }
    if (status == WcStatus::success && wqe.length > port_mtu) {
      // The specification (C10-93.1.1): nothing is sent, and that is no error.
      complete_head(qp, WcStatus::success);
      continue;
    }
    if (status == WcStatus::success) {
      status = lend(qp, position, 0, wqe.length, out);
    }
    if (status != WcStatus::success) {
      ++counters_.send_err;
      fail_head(qp, status);
      return false;
    }
    wire::Packet packet;
    packet.opcode = wire::opcode_of(wire::Transport::ud, request.opcode == WrOpcode::send_immediate
                                                             ? wire::Operation::send_only_immediate
                                                             : wire::Operation::send_only);
    packet.solicited = (request.flags & kSolicitedEvent) != 0;
    packet.destination_qpn = request.remote_qpn & wire::kMask24;
    packet.psn = req.send_psn;
    packet.qkey = (request.remote_qkey & kOwnKey) != 0 ? qp.attributes.qkey : request.remote_qkey;
    packet.source_qpn = qp.qpn;
    packet.immediate = request.immediate;
    out.to = request.address.destination;
    out.source = static_cast<std::uint8_t>(request.address.source_index + 1);
    outer_.source = config_.addresses[request.address.source_index];
    outer_.traffic_class = request.address.traffic_class;
    outer_.hop_limit = request.address.hop_limit;
    outer_.flow_label = request.address.flow_label;
    req.send_psn = psn_plus(req.send_psn, 1);
    finish(qp, packet, now, out);
    complete_head(qp, WcStatus::success);
    return true;
  }
  return false;
}

// A datagram that does not fit, or finds no receive, is dropped without a word to its sender.
void Engine::on_datagram(QpContext& qp, const Arrival& arrival) {
  const wire::Packet& packet = arrival.packet;
  if (packet.qkey != qp.attributes.qkey) {
    ++counters_.bad_qkeys;
    return;
  }
  ReceiveQueue* const queue = stocked_queue(qp);
  if (queue == nullptr) {
    ++counters_.dropped_for_receive;
    return;
  }
  if (mutated(Mutation::lose_datagrams) && packet.psn % 16 == 0) {
    return;
  }
  const bool fits = queue->front_length() >= std::uint64_t{kGrhSize} + packet.payload_size;
  if (!fits) {
    ++counters_.refused_requests;
    if (qp.made.srq == kNoSrq) {  // waits for a shorter one
      return;
    }
  }
  queue->take(qp.resp.receive);
  took_from_srq(qp);
  if (!fits) {  // left in place it would block the other queue pairs
    complete_receive(qp, packet, WcStatus::remote_invalid_request, 0);
    return;
  }
  // The area in front of the data is that of a GRH; the receiver finds the IP header in it.
  // An IPv4 header is the second half of the area.
  std::array<std::byte, kGrhSize> header{};
  std::array<std::byte, kGrhSize> area{};
  const std::size_t udp_size = arrival.rx.bytes.size() + arrival.rx.more.size() + kUdpAndIcrc;
  const std::size_t size = wire::write_ip_header(arrival.outer, udp_size, header);
  std::copy_n(header.begin(), size, area.end() - static_cast<std::ptrdiff_t>(size));
  srd::RxPacket front;
  front.bytes = area;
  const auto segments = std::span(qp.resp.receive.sges).first(qp.resp.receive.segments);
  const bool placed =
      scatter(qp, segments, 0, {packet, front, arrival.outer}, 0, kGrhSize) &&
      scatter(qp, segments, kGrhSize, arrival, packet.header_size, packet.payload_size);
  const std::uint32_t length = kGrhSize + packet.payload_size;
  counters_.placed_bytes += length;
  complete_receive(qp, packet, placed ? WcStatus::success : WcStatus::local_protection, length,
                   size == kGrhSize ? kServiceLevelIpv6 : kServiceLevelIpv4);
  if (!placed) {
    enter_error(qp);
  }
}

// Each member has a receive and a Q_Key of its own, so each takes or drops its copy alone.
void Engine::on_multicast(const Arrival& arrival) {
  const auto group = groups_.find(arrival.outer.destination);
  if (group == groups_.end() || wire::transport_of(arrival.packet.opcode) != wire::Transport::ud) {
    ++counters_.stray_pkts;
    return;
  }
  for (const std::uint32_t qpn : group->second) {
    QpContext* const qp = find(qpn);
    if (qp->state() != QpState::reset && qp->state() != QpState::init &&
        qp->state() != QpState::error) {
      on_datagram(*qp, arrival);
    }
  }
}

int Engine::attach_multicast(std::uint32_t qpn, const srd::Address& group) {
  const QpContext* const qp = find(qpn);
  if (qp == nullptr || qp->type != QpType::ud || !wire::is_multicast(group)) {
    return EINVAL;
  }
  auto& members = groups_[group];
  if (std::ranges::find(members, qpn) == members.end()) {
    members.push_back(qpn);
  }
  return 0;
}

int Engine::detach_multicast(std::uint32_t qpn, const srd::Address& group) {
  const auto found = groups_.find(group);
  if (found == groups_.end() || std::erase(found->second, qpn) == 0) {
    return EINVAL;
  }
  if (found->second.empty()) {
    groups_.erase(found);
  }
  return 0;
}

// The queue of which the next receive is taken, if it has one. A queue in the program's memory is
// only read when the engine's copy is empty (RefillHook).
ReceiveQueue* Engine::stocked_queue(QpContext& qp) {
  const bool shared = qp.made.srq != kNoSrq;
  ReceiveQueue& queue = shared ? *srqs_[qp.made.srq] : qp.receive_queue;
  if (queue.empty() && refill_.refill != nullptr) {
    refill_.refill(refill_.owner, shared, shared ? qp.made.srq : qp.qpn, queue);
  }
  return queue.empty() ? nullptr : &queue;
}

// Raises the event when the level falls below what arm_srq() has asked for.
void Engine::took_from_srq(QpContext& qp) {
  if (qp.made.srq == kNoSrq) {
    return;
  }
  ReceiveQueue& queue = *srqs_[qp.made.srq];
  if (queue.size() < queue.limit) {
    queue.limit = 0;
    raise(EventType::srq_limit_reached, qp.made.srq);
  }
}

}  // namespace weft::roce
