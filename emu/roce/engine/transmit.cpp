// Owns whose turn it is to send, and the last step of each packet.
//
// ready_ is a list of queue pairs that may have something to send. A queue pair sends up to kTurn
// packets and goes to the back; one whose functions build nothing leaves the list, so whoever makes
// sending possible again has to call wake().
#include <algorithm>

#include "emu/roce/engine/engine.hpp"

namespace weft::roce {
namespace {

constexpr std::uint32_t kTurn = 8;  // packets of one queue pair in a row

}  // namespace

// Queue pairs take turns. One that has nothing to send leaves the list until wake() puts it back.
bool Engine::next_transmit(TimePoint now, srd::TxPacket& out) {
  while (!ready_.empty()) {
    const std::uint32_t qpn = ready_.front();
    QpContext* const qp = find(qpn);
    if (qp != nullptr && turn_ < kTurn && transmit(*qp, now, out)) {
      ++turn_;
      return true;
    }
    const bool more = turn_ >= kTurn;
    turn_ = 0;
    ready_.pop();
    if (qp != nullptr) {
      qp->ready = false;
      if (more) {
        wake(*qp);
      }
    }
  }
  return false;
}

// A congestion notification goes first: it has to reach the sender while the congestion lasts.
bool Engine::transmit(QpContext& qp, TimePoint now, srd::TxPacket& out) {
  out.payload = {};
  if (qp.notify_peer_of_congestion) {
    transmit_congestion_notification(qp, now, out);
    return true;
  }
  // Requests and responses take turns: a peer that reads a gigabyte holds up no send.
  if (qp.responded_last && transmit_own(qp, now, out)) {
    qp.responded_last = false;
    return true;
  }
  const bool asked = qp.responded_last;
  qp.responded_last = transmit_response(qp, now, out);
  return qp.responded_last || (!asked && transmit_own(qp, now, out));
}

bool Engine::transmit_own(QpContext& qp, TimePoint now, srd::TxPacket& out) {
  if (qp.state() != QpState::rts && qp.state() != QpState::sqd) {
    return false;
  }
  return qp.type == QpType::ud ? transmit_datagram(qp, now, out) : transmit_request(qp, now, out);
}

// Whether data have to wait for the rate that congestion notifications have left; if so the queue
// pair is woken when it is their turn. What carries no data is not held up.
bool Engine::is_paced(QpContext& qp, TimePoint now) {
  if (!config_.congestion_control) {
    return false;
  }
  qp.rate.advance(now);
  if (qp.rate.next_send() <= now) {
    return false;
  }
  qp.req.pace_at = qp.rate.next_send();
  set_deadline(qp);
  return true;
}

void Engine::transmit_congestion_notification(QpContext& qp, TimePoint now, srd::TxPacket& out) {
  qp.notify_peer_of_congestion = false;
  qp.notified_at = now;
  ++counters_.congestion_notifications;
  wire::Packet packet;
  packet.opcode = wire::kCongestionNotification;
  packet.backward_congestion = true;
  finish(qp, packet, now, out);
}

// The last step of each packet: headers, pad, and where it goes.
void Engine::finish(QpContext& qp, wire::Packet& packet, TimePoint now, srd::TxPacket& out) {
  if (qp.type != QpType::ud) {
    const AddressVector& address = qp.attributes.address;
    packet.destination_qpn = qp.attributes.destination_qpn;
    out.to = address.destination;
    out.source = static_cast<std::uint8_t>(address.source_index + 1);
    outer_.source = config_.addresses[address.source_index];
    outer_.traffic_class = address.traffic_class;
    outer_.hop_limit = address.hop_limit;
    outer_.flow_label = address.flow_label;
  }
  outer_.destination = out.to;
  outer_.source_port = wire::source_port_of(outer_.flow_label, qp.qpn, packet.destination_qpn);
  out.path = srd::PathId{static_cast<std::uint16_t>(outer_.source_port - wire::kFirstSourcePort)};
  out.ecn = config_.congestion_control && qp.type != QpType::ud ? srd::Ecn::capable_0
                                                                : srd::Ecn::not_capable;
  outer_.traffic_class =
      static_cast<std::uint8_t>((outer_.traffic_class & 0xFC) | static_cast<unsigned>(out.ecn));
  out.dscp = packet.opcode == wire::kCongestionNotification
                 ? wire::kNotificationDscp
                 : static_cast<std::uint8_t>(outer_.traffic_class >> 2);
  out.hop_limit = outer_.hop_limit;
  packet.pad = wire::pad_of(out.payload_size());
  if (packet.pad != 0) {  // lend() leaves the second piece to the pad
    static constexpr std::array<std::byte, 4> kZeros{};
    out.payload[1] = std::span(kZeros).first(packet.pad);
  }
  out.header_size = static_cast<std::uint16_t>(wire::write_headers(packet, out.header.data()));
  if (out.payload_size() != 0) {
    qp.rate.sent(now, out.size());
  }
  ++counters_.sent_pkts;
  counters_.sent_bytes += out.size() + wire::kIcrcSize;
}

}  // namespace weft::roce
