// Owns noticing that a peer is no more while something waits for it.
//
// A receiver posts no work to its sender after the announcement, so the engine would never find out
// that the sender died. While something has waited between two checks, a message that the engine
// has to get acknowledged is sent to the peer; its failure fails the connections with it.
#include "integration/nccl/core/core.hpp"

namespace weft::nccl {

std::uint32_t Core::restarts_of(srd::PeerId peer) const {
  const auto history = engine_.history_of(peer);
  return history ? history->restarts : 0;
}

// Something has waited between two checks, and nothing has moved.
template <class C>
void Core::check_end(C& connection) {
  const bool waits = connection.pending != 0 && connection.ended == connection.ended_before &&
                     (connection.usable() || connection.state == Comm::State::deserted);
  connection.ended_before = connection.ended;
  if (!waits) {
    return;
  }
  Watch& one = watches_[connection.partner.peer.value()];
  one.wanted = true;
  if (!one.under_way) {
    watch(connection.partner.peer, connection.partner, one);
  }
}

void Core::check() {
  for (auto& [peer, one] : watches_) {
    one.wanted = false;
  }
  for (const auto& one : senders_.ends) {
    if (one != nullptr) {
      check_end(*one);
    }
  }
  for (const auto& one : receivers_.ends) {
    if (one != nullptr) {
      check_end(*one);
    }
  }
  take_back_watches();
}

// A watch message whose peer has moved again, so that it is not under way for nothing.
void Core::take_back_watches() {
  for (const auto& [peer, one] : watches_) {
    if (one.under_way && !one.wanted) {
      engine_.flush(srd::PeerId{peer}, links_.watch());
    }
  }
}

void Core::stop_watching() {
  for (auto& [peer, one] : watches_) {
    one.wanted = false;
  }
  take_back_watches();
}

// The message can only fail or stay: the endpoint it goes to has no receives, ever. So "no receive
// yet" keeps it under way while the peer lives, and its failure says that the peer does not.
void Core::watch(srd::PeerId peer, const RemoteEnd& partner, Watch& one) {
  srd::SendRequest request;
  request.peer = peer;
  request.source = links_.watch();
  request.destination = partner.watch();
  request.qkey = partner.qkey;
  request.cookie = Cookie{Lane::watch, 0, peer.value()}.pack();
  one.under_way = engine_.post(request) == srd::PostResult::accepted;
  one.partner = partner;
}

// A message to a partner has failed, and that matters. Only a peer that does not answer takes all
// connections with it: a hello that names a wrong endpoint or Q_Key spoils what was asked in that
// name.
void Core::on_failure(const RemoteEnd& partner, srd::Status status) {
  if (status == srd::Status::peer_restarted) {
    notice_restarts();
    return;
  }
  fail_all(partner, status == srd::Status::unresponsive || status == srd::Status::unreachable);
}

void Core::fail_all(const RemoteEnd& partner, bool at_peer) {
  const auto fail = [&](auto& table) {
    for (const auto& one : table.ends) {
      if (one != nullptr &&
          (at_peer ? one->partner.peer == partner.peer : one->partner == partner)) {
        links_.counters().failed_connections += one->usable() ? 1 : 0;
        one->fail(Outcome::remote_error);
      }
    }
  };
  fail(senders_);
  fail(receivers_);
}

// Connections with a former life are no more. One that was only asked for is asked of the present
// life: its handle may well be from there.
void Core::notice_restarts() {
  seen_restarts_ = engine_.counters().peer_restarts;
  const auto is_stale = [&](const auto& one) {
    return one != nullptr && restarts_of(one->partner.peer) != one->restarts;
  };
  for (const auto& one : senders_.ends) {
    if (is_stale(one) && one->state == Comm::State::connecting) {
      one->restarts = restarts_of(one->partner.peer);
      one->ask_again(links_);
    } else if (is_stale(one)) {
      one->fail(Outcome::remote_error);
    }
  }
  for (const auto& one : receivers_.ends) {
    if (is_stale(one)) {
      one->fail(Outcome::remote_error);
    }
  }
}

}  // namespace weft::nccl
