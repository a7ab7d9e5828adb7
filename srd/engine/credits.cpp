// Owns receiver credits in the engine: who may send how much more, and who asks. [wire 4.8]
#include "srd/engine/engine.hpp"

namespace weft::srd {

void Engine::emit_credit_request(TimePoint now, Peer& peer, TxPacket& out) {
  Outbound& o = *peer.out;
  (void)o.timer.on_question(now);
  schedule_.arm(peer, now + o.timer.retransmit_wait());
  o.ask_again = false;
  o.credits.on_requested();
  wire::CreditRequest request{};
  request.common = common_header(peer, wire::PacketType::credit_request);
  request.common.destination_qpn = o.last_to.value();
  request.common.source_qpn = o.last_from.value();
  request.common.path = out.path.value();
  request.demand = o.credits.demand();
  out.to = peer.key.address;
  out.ecn = Ecn::capable_0;
  out.payload = {};
  out.header_size = sizeof request;
  wire::store(out.header.data(), request);
  finish(out);
  ++counters_.credit_requests;
}

// Each request is answered, so that a sender whose turn is far away knows that it was heard. Who
// does not ration grants everything.
void Engine::on_credit_request(TimePoint now, Peer& peer, const wire::CreditRequest& request) {
  if (config_.receiver_credits) {
    (void)credit_grants_.on_demand(now, peer.id, request.demand.value());
  }
  peer.in.demand = request.demand.value();
  peer.in.grant = true;
  schedule_.reply_now(peer);
}

// What may leave before anything is granted, when so many peers share the link.
CreditBalance Engine::first_credits(Bytes sharers) const {
  const Bytes least = std::min<Bytes>(config_.mtu_payload, credit_window_);
  return {least, std::max(credit_window_ / sharers, least)};
}

// Grants that are due travel in acknowledgements.
void Engine::queue_grants(TimePoint now) {
  while (const std::optional<CreditScheduler::Grant> grant = credit_grants_.next(now)) {
    Peer& peer = peers_[grant->peer];
    peer.in.grant = true;
    schedule_.reply_now(peer);
  }
}

void Engine::take_grant(Peer& peer, const wire::AckHeader& header) {
  if ((header.common.flags & wire::kCreditValid) != 0) {
    peer.out->credits.on_grant(header.credit.value());
  }
}

// A new life knows of no demand: whatever has not left yet is asked for anew.
void Engine::restart_credits(Peer& peer) {
  credit_grants_.forget(peer.id);
  if (!peer.out) {
    return;
  }
  peer.out->credits = first_credits(1);
  peer.works.for_each(
      works_, [&](std::uint32_t index) { peer.out->credits.want(unsent_bytes(works_[index])); });
}

}  // namespace weft::srd
