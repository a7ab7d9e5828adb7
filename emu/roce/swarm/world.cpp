// Owns the road of a frame: headers and ICRC at the sender, faults, ICRC and headers at the
// receiver.
//
// Frames are whole and real: the headers are written and parsed by the same code that the carriers
// use (emu/roce/wire), so that a damaged bit is found or missed here as it would be on a network.
// Time jumps from one event to the next; nothing sleeps.
#include "emu/roce/swarm/world.hpp"

#include <algorithm>

#include "emu/roce/wire/icrc.hpp"

namespace weft::roce::swarm {

srd::Address address_of_host(std::uint32_t host) { return srd::Address::v4(10, 0, 0, host + 1); }

std::uint32_t World::add_host(EngineConfig config) {
  const std::uint32_t host = hosts();
  config.addresses = {address_of_host(host)};
  Host& added = hosts_.emplace_back();
  added.sink = std::make_unique<Sink>();
  added.engine = std::make_unique<Engine>(config, *added.sink);
  return host;
}

// Time moves on to the next arrival or timeout, but not beyond the limit. Arrivals come before
// timeouts of the same moment.
void World::step(TimePoint limit) {
  pump();
  TimePoint next = limit;
  if (!in_flight_.empty()) {
    next = std::min(next, in_flight_.top().when);
  }
  for (const Host& host : hosts_) {
    if (host.engine != nullptr) {
      next = std::min(next, host.engine->next_timeout());
    }
  }
  now_ = std::max(now_, next);
  while (!in_flight_.empty() && in_flight_.top().when <= now_) {
    const Frame frame = in_flight_.top();
    in_flight_.pop();
    deliver(frame);
  }
  for (Host& host : hosts_) {
    if (host.engine != nullptr && host.engine->next_timeout() <= now_) {
      host.engine->on_timeout(now_);
    }
  }
  pump();
}

// In bursts, as carriers do: what is lent has to last until all of one are on the wire.
void World::pump() {
  for (std::uint32_t host = 0; host < hosts(); ++host) {
    while (is_up(host)) {
      const std::size_t room = 1 + rng_.below(srd::TxPacket::kMaxBurst);
      std::size_t count = 0;
      for (; count < room && engine(host).next_transmit(now_, burst_[count].packet); ++count) {
        burst_[count].outer = engine(host).outer();
      }
      for (std::size_t i = 0; i < count; ++i) {
        put_on_wire(host, burst_[i].packet, burst_[i].outer);
      }
      if (count < room) {
        break;
      }
    }
  }
}

// Turns a packet into the bytes that Ethernet would carry, applies faults, and lets it fly.
void World::put_on_wire(std::uint32_t from, const srd::TxPacket& packet,
                        const wire::DatagramHeader& outer) {
  std::vector<std::byte> frame(wire::kEthernetHeader + wire::kLargestIpUdp);
  wire::DatagramHeader header = outer;
  if (rng_.chance(faults_.mark) && packet.ecn != srd::Ecn::not_capable) {
    header.traffic_class |= static_cast<std::uint8_t>(srd::Ecn::congested);
  }
  frame.resize(wire::write_datagram_header(
      header, packet.size(),
      std::span(frame).first<wire::kEthernetHeader + wire::kLargestIpUdp>()));
  const std::size_t headers = frame.size();
  const auto begin = packet.header.begin();
  frame.insert(frame.end(), begin, begin + packet.header_size);
  for (const auto& piece : packet.payload) {
    frame.insert(frame.end(), piece.begin(), piece.end());
  }
  const auto all = std::span<const std::byte>(frame);
  // Parsed for the filter and for the account of what was lost, which are told packets and not
  // bytes.
  wire::Packet parsed;
  static_cast<void>(wire::parse_packet(all.subspan(headers), 0, parsed));
  const std::uint32_t crc = wire::icrc(
      all.subspan(wire::kEthernetHeader, headers - wire::kEthernetHeader), all.subspan(headers));
  for (unsigned shift = 0; shift < 32; shift += 8) {
    frame.push_back(static_cast<std::byte>(crc >> shift));
  }
  ++number_;
  listen(from, packet.to, parsed);
  if ((filter_ && !filter_(from, parsed)) || rng_.chance(faults_.lose)) {
    note_lost(from, packet.to, parsed);
    return;
  }
  // A repeated frame draws its own delay, so it may overtake the first one.
  if (rng_.chance(faults_.repeat)) {
    launch(frame);
  }
  if (rng_.chance(faults_.damage)) {
    // Counted as lost, at most: damage to a field that the ICRC leaves out does no harm.
    note_lost(from, packet.to, parsed);
    for (std::uint32_t bits = 1 + rng_.below(3); bits != 0; --bits) {
      frame[rng_.below(static_cast<std::uint32_t>(frame.size()))] ^=
          std::byte{1} << static_cast<int>(rng_.below(8));
    }
  }
  launch(std::move(frame));
}

// Only for RC: nothing else is acknowledged.
void World::watch(QpName one, QpName other, std::uint8_t path_mtu) {
  const std::uint32_t mtu = 128U << path_mtu;
  askers_[one] = {other, mtu, {}};
  askers_[other] = {one, mtu, {}};
}

// Linux takes an acknowledgement with the number of a READ or atomic for its end, and completes it
// without the data; our requester forgives it, so that end to end nothing would be seen.
void World::listen(std::uint32_t from, const srd::Address& to, const wire::Packet& packet) {
  const std::uint32_t host = std::to_integer<std::uint32_t>(to.bytes[15]) - 1;
  const auto heard = askers_.find({host, packet.destination_qpn});
  if (heard == askers_.end() || heard->second.peer[0] != from) {
    return;
  }
  Asker& addressee = heard->second;
  const wire::Operation operation = wire::operation_of(packet.opcode);
  if (operation == wire::Operation::read_request || packet.has(wire::kAtomic)) {
    Asker& asker = askers_.at(addressee.peer);
    const bool reads = operation == wire::Operation::read_request && packet.length != 0;
    const std::uint32_t packets = reads ? (packet.length - 1) / asker.mtu + 1 : 1;
    for (std::uint32_t i = 0; i < packets; ++i) {
      asker.answers.insert(psn_plus(packet.psn, i));
    }
    return;
  }
  const bool acknowledges =
      operation == wire::Operation::acknowledge && packet.syndrome == wire::kAckNoCredit;
  if (acknowledges && breach_.empty() && addressee.answers.contains(packet.psn)) {
    breach_ = "host " + std::to_string(from) + " acknowledges PSN " + std::to_string(packet.psn) +
              ", which is that of a READ or atomic";
  }
}

// Lost frames are the excuse for requests that failed (Judge::explained()).
void World::note_lost(std::uint32_t from, const srd::Address& to, const wire::Packet& packet) {
  lost_unreliable_ += wire::transport_of(packet.opcode) != wire::Transport::rc ? 1 : 0;
  const std::uint32_t host = std::to_integer<std::uint32_t>(to.bytes[15]) - 1;
  ++lost_[{from, host, packet.destination_qpn}];
}

// With jitter frames overtake each other, since each draws its own.
void World::launch(std::vector<std::byte> frame) {
  const Duration jitter{static_cast<std::int64_t>(
      rng_.between(0, static_cast<std::uint64_t>(faults_.jitter.count())))};
  in_flight_.push({now_ + faults_.latency + jitter, ++number_, std::move(frame)});
}

// A frame that the receiver's own checks find damaged is dropped, as a NIC would drop it.
void World::deliver(const Frame& frame) {
  wire::Datagram datagram;
  if (wire::parse_datagram(frame.bytes, datagram) != wire::DatagramFault::none ||
      !wire::icrc_is_right(datagram)) {
    return;
  }
  const bool to_all = wire::is_multicast(datagram.header.destination);
  for (std::uint32_t host = 0; host < hosts(); ++host) {
    if (!is_up(host) || (!to_all && datagram.header.destination != address_of_host(host))) {
      continue;
    }
    // The bytes are handed over in two pieces cut at random after the headers, as a carrier does
    // whose ring wraps within a packet.
    const std::byte opcode = datagram.packet.front();
    const std::size_t headers = std::min(
        wire::header_size_of(std::to_integer<std::uint8_t>(opcode)), datagram.packet.size());
    const auto cut =
        static_cast<std::size_t>(rng_.between(headers, std::max(headers, datagram.packet.size())));
    srd::RxPacket packet;
    packet.from = datagram.header.source;
    packet.ecn = static_cast<srd::Ecn>(datagram.header.traffic_class & 3);
    packet.bytes = datagram.packet.first(cut);
    packet.more = datagram.packet.subspan(cut);
    engine(host).on_packet(now_, packet, datagram.header);
  }
}

}  // namespace weft::roce::swarm
