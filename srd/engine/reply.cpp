// Owns the replies of an engine: acknowledgements, notices that a peer speaks to a former life, and
// what is said before the process ends.
#include "srd/engine/engine.hpp"
#include "srd/engine/mutation.hpp"

namespace weft::srd {

// False: the peer has restarted since the reply was asked for, and there is nothing left to say.
[[gnu::hot]] bool Engine::transmit_reply(TimePoint now, Peer& peer, TxPacket& out) {
  if (!peer.life.owes_notice() && !peer.receiver.can_ack()) {
    forget_stranger(peer);
    return false;
  }
  out.to = peer.key.address;
  out.ecn = Ecn::capable_0;
  out.payload = {};
  out.path = reply_path(now, peer);
  if (peer.life.owes_notice()) {
    build_stale_notice(peer, out);
  } else {
    build_ack(now, peer, out);
  }
  if (peer.receiver.owes_ack()) {
    parts_.schedule.reply_now(peer);  // behind those of other peers
  }
  forget_stranger(peer);
  parts_.finish(out);
  return true;
}

// A peer from which nothing came is told between the endpoints of the latest request to it. One
// that has never answered either is nobody yet: acknowledgements are for a life that is known.
void Engine::take_leave(TimePoint at, Leave how) {
  (void)advance(at);
  parts_.peers.each([&](Peer& peer) {
    Receiver& receiver = peer.receiver;
    const bool open = receiver.window().open();
    const Psn next = peer.sender ? peer.sender->next() : parts_.config.first_psn;
    const bool has_sent = next != parts_.config.first_psn;
    if (is_given_up(peer) || !peer.life.known() || (!has_sent && !open)) {
      return;
    }
    if (!open && !receiver.owes_ack()) {
      receiver.answer(peer.sender->last_to(), peer.sender->last_from());
    }
    if (receiver.parting().take_leave(receiver.window(), how, next)) {
      parts_.schedule.reply_now(peer);
    }
  });
}

bool Engine::is_awaited() const {
  bool awaited = false;
  parts_.peers.each([&](const Peer& peer) {
    awaited = awaited || (peer.receiver.is_awaited() && !is_given_up(peer));
  });
  return awaited;
}

void Engine::stop_waiting() {
  parts_.peers.each([](Peer& peer) {
    Receiver& receiver = peer.receiver;
    if (receiver.is_awaited()) {
      receiver.parting().stop_waiting();
    }
  });
}

bool Engine::is_given_up(const Peer& peer) { return peer.sender && peer.sender->muted(); }

// Anybody can send packets that cannot be verified. A peer that has sent nothing else loses its
// record as soon as it is owed no reply.
void Engine::forget_stranger(Peer& peer) {
  if (peer.life.is_stranger() && !Scheduler::awaits_reply(peer) &&
      !mutated(Mutation::remember_strangers)) [[unlikely]] {
    parts_.peers.forget(peer);
  }
}

// Replies are sprayed like data. A peer that we never sent data to has no path state, and needs
// none.
[[gnu::hot]] PathId Engine::reply_path(TimePoint now, Peer& peer) {
  const PathId path{static_cast<std::uint16_t>(parts_.rng.below(parts_.config.paths))};
  return peer.sender ? peer.sender->reply_path(now, path) : path;
}

[[gnu::hot]] void Engine::build_ack(TimePoint now, Peer& peer, TxPacket& out) {
  wire::CommonHeader common = parts_.common_header(peer, wire::PacketType::ack);
  common.destination_life = peer.life.answered().value();  // [wire 4.9]
  peer.receiver.steer(common);
  const std::uint32_t granted = parts_.config.receiver_credits ? parts_.grants.granted(peer.id) : 0;
  peer.receiver.write_ack(parts_, now, common, granted, out);
  parts_.schedule.cancel_delayed_reply(peer);
  ++parts_.counters.acks_sent;
}

// [wire 3.7]
void Engine::build_stale_notice(Peer& peer, TxPacket& out) {
  wire::StaleLife header{};
  header.common = parts_.common_header(peer, wire::PacketType::stale_life);
  peer.receiver.steer(header.common);
  const PeerLife::Notice notice = peer.life.take_notice();
  header.common.destination_life = notice.addressee.value();
  header.common.path = out.path.value();
  header.refused_life = notice.refused.value();
  wire::store(out.header.data(), header);
  out.header_size = sizeof header;
}

}  // namespace weft::srd
