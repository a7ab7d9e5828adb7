// Owns what a receiver owes its sender: acknowledgements, and notices that it speaks to the dead.
#include <algorithm>

#include "srd/engine/engine.hpp"
#include "srd/engine/mutation.hpp"

namespace weft::srd {

namespace {

Echo echo_of(TimePoint now, const wire::DataHeader& header, const RxPacket& packet) {
  Echo echo;
  echo.arrived = arrival_of(now, packet);
  echo.psn = Psn{header.psn.value()};
  echo.send_time = header.send_time.value();
  echo.path = header.common.path.value();
  echo.attempt = header.common.attempt;
  echo.valid = true;
  echo.congested = packet.ecn == Ecn::congested;
  echo.probe = header.common.type == static_cast<std::uint8_t>(wire::PacketType::probe);
  return echo;
}

void tell_echo(TimePoint now, const Echo& echo, wire::AckHeader& header) {
  header.common.flags |= wire::kEchoValid;
  header.common.flags |= echo.congested ? wire::kEchoCongested : 0;
  header.common.flags |= echo.probe ? wire::kEchoProbe : 0;
  header.common.attempt = echo.attempt;
  header.common.path = echo.path;
  header.echo_psn = echo.psn.value();
  header.echo_send_time = echo.send_time;
  header.wait = static_cast<std::uint32_t>(nanoseconds(now - echo.arrived));
}

}  // namespace

// [wire 4.4] The echo names the packet that is told about: the latest, unless an earlier one
// carried a mark that has not been told yet. How many carried one is counted apart. Of probes each
// one is told about: the answer speaks for its path. [wire 4.7]
void Engine::note_arrival(TimePoint now, Peer& peer, const wire::DataHeader& header,
                          const RxPacket& packet, bool at_once) {
  Inbound& in = peer.in;
  const bool congested = packet.ecn == Ecn::congested;
  const bool probe = header.common.type == static_cast<std::uint8_t>(wire::PacketType::probe);
  if (congested) {
    ++parts_.counters.congested_pkts;
  }
  if (probe) [[unlikely]] {
    if (in.probes.empty() || !mutated(Mutation::answer_one_probe)) {
      parts_.probe_echoes.push(in.probes, echo_of(now, header, packet));
    }
  } else if (!in.echo.valid || !in.echo.congested || congested) {
    in.echo = echo_of(now, header, packet);
  }
  ++in.unacknowledged;
  // The last packet of a message may overtake others: whoever fills the last gap then is the one
  // that the sender waits for.
  const bool whole = in.window.cumulative() == in.window.top();
  const bool closes = in.gap_at_end && whole;
  const bool asked = (header.common.flags & wire::kAckRequested) != 0;
  in.gap_at_end = !whole && (in.gap_at_end || asked);
  if (at_once || asked || closes || congested || probe ||
      in.unacknowledged >= parts_.config.ack_every) {
    parts_.schedule.reply_now(peer);
  } else {
    parts_.schedule.reply_by(peer, now + parts_.config.ack_delay);
  }
}

// To be told once, in one of the next acknowledgements.
void Engine::note_again(Peer& peer, const wire::DataHeader& header, std::uint8_t code) {
  parts_.told_once.push(peer.in.again, {Psn{header.psn.value()}, code, header.common.attempt});
}

// False: since the reply was asked for the peer has restarted, and there is nothing to say any
// more.
bool Engine::transmit_reply(TimePoint now, Peer& peer, TxPacket& out) {
  if (!peer.life.owes_notice() && !peer.in.owes_ack() && !peer.in.window.open()) {
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
  if (peer.in.owes_ack()) {
    parts_.schedule.reply_now(peer);  // behind those of other peers
  }
  forget_stranger(peer);
  parts_.finish(out);
  return true;
}

// Anybody can send what cannot be verified: whoever has sent nothing else takes no place for good.
void Engine::forget_stranger(Peer& peer) {
  if (peer.life.is_stranger() && !Scheduler::awaits_reply(peer) &&
      !mutated(Mutation::remember_strangers)) [[unlikely]] {
    parts_.peers.forget(peer);
  }
}

// Replies spray like data. A peer to which nothing was ever sent has no path state, and needs none.
PathId Engine::reply_path(TimePoint now, Peer& peer) {
  const PathId path{static_cast<std::uint16_t>(parts_.rng.below(parts_.config.paths))};
  return peer.sender ? peer.sender->reply_path(now, path) : path;
}

void Engine::build_ack(TimePoint now, Peer& peer, TxPacket& out) {
  Inbound& in = peer.in;
  wire::AckHeader header{};
  header.common = parts_.common_header(peer, wire::PacketType::ack);
  header.common.destination_qpn = in.reply_to.value();
  header.common.source_qpn = in.reply_from.value();
  if (!in.echo.valid && !in.probes.empty()) [[unlikely]] {
    in.echo = parts_.probe_echoes.take(in.probes);
  }
  if (in.echo.valid) {
    tell_echo(now, in.echo, header);
  }
  if (!in.window.open() && !mutated(Mutation::acknowledge_without_window)) {
    header.common.flags |= wire::kNoWindow;  // [wire 4.4]
  }
  header.common.destination_life = peer.life.answered().value();  // [wire 4.9]
  if (parts_.config.receiver_credits || in.grant) {
    header.common.flags |= wire::kCreditValid;
    header.credit = parts_.config.receiver_credits ? parts_.grants.granted(peer.id) : in.demand;
  }
  const Psn cumulative = in.window.cumulative();
  header.cumulative = cumulative.value();
  if (mutated(Mutation::acknowledge_too_much) && cumulative.before(in.window.top())) [[unlikely]] {
    header.cumulative = cumulative.value() + 1;
  }
  header.marked = in.marked;

  std::byte* cursor = out.header.data() + sizeof header;
  const Psn aligned{cumulative.value() & ~63U};
  std::uint8_t words = 0;
  if (in.window.open() && cumulative.before(in.window.top())) {
    for (Psn at = aligned; at.before(in.window.top()); at = at.plus(64)) {
      wire::store(cursor, wire::big_uint64_buf_t{in.window.word(at)});
      cursor += sizeof(std::uint64_t);
      ++words;
    }
  }
  header.sack_words = words;
  std::uint8_t results = 0;
  const auto add = [&](const ReceiveWindow::Result& result) {
    wire::ResultEntry entry{};
    entry.psn = result.psn.value();
    entry.code = result.code;
    entry.attempt = result.attempt;
    wire::store(cursor, entry);
    cursor += sizeof entry;
    ++results;
  };
  // What was refused for good first: without it the map above would read as success.
  for (const ReceiveWindow::Result& result : in.window.results()) {
    add(result);
  }
  while (results < wire::kMaxResults && !in.again.empty()) {
    add(parts_.told_once.take(in.again));
  }
  header.results = results;
  wire::store(out.header.data(), header);
  out.header_size = static_cast<std::uint16_t>(cursor - out.header.data());

  in.unacknowledged = 0;
  in.grant = false;
  in.echo.valid = false;
  parts_.schedule.cancel_delayed_reply(peer);
  ++parts_.counters.acks_sent;
}

// [wire 3.7]
void Engine::build_stale_notice(Peer& peer, TxPacket& out) {
  wire::StaleLife header{};
  header.common = parts_.common_header(peer, wire::PacketType::stale_life);
  header.common.destination_qpn = peer.in.reply_to.value();
  header.common.source_qpn = peer.in.reply_from.value();
  const PeerLife::Notice notice = peer.life.take_notice();
  header.common.destination_life = notice.addressee.value();
  header.common.path = out.path.value();
  header.refused_life = notice.refused.value();
  wire::store(out.header.data(), header);
  out.header_size = sizeof header;
}

}  // namespace weft::srd
