// Owns the classification of packets and their description in traces. Packets may be of any
// content: nothing is believed that was not checked against the packet's length.
#include "emu/world/packet_kind.hpp"

#include <ios>
#include <sstream>

#include "srd/wire/srd_header.hpp"

namespace weft::world {
namespace {

namespace wire = srd::wire;

const char* name_of(Packet kind) {
  switch (kind) {
    case Packet::send:
      return "send";
    case Packet::write:
      return "write";
    case Packet::read_request:
      return "read-request";
    case Packet::read_response:
      return "read-response";
    case Packet::probe:
      return "probe";
    case Packet::ack:
      return "ack";
    case Packet::stale_life:
      return "stale-life";
    case Packet::credit_request:
      return "credit-request";
    default:
      return "other";
  }
}

// Everything that has a DataHeader: requests, responses to reads, probes.
void describe_data(std::ostream& out, std::span<const std::byte> packet) {
  wire::DataHeader h;
  if (!wire::load(packet, h)) {
    out << " cut short";
    return;
  }
  out << " psn " << h.psn.value() << " back " << h.back.value() << " bytes "
      << h.payload_length.value() << " of message " << h.message.value() << '/'
      << h.message_length.value() << std::hex << " key " << h.key.value() << " address "
      << h.remote_address.value() << std::dec
      << ((h.common.flags & wire::kImmediate) != 0 ? " immediate" : "")
      << ((h.common.flags & wire::kAckRequested) != 0 ? " asks for an ack" : "");
}

void describe_ack(std::ostream& out, std::span<const std::byte> packet) {
  wire::AckHeader h;
  if (!wire::load(packet, h)) {
    out << " cut short";
    return;
  }
  out << ((h.common.flags & wire::kLeaving) != 0 ? " leaving" : "") << " cumulative "
      << h.cumulative.value() << " echo " << h.echo_psn.value() << " map";
  std::size_t at = sizeof h;
  for (int i = 0; i < h.sack_words && at + 8 <= packet.size(); ++i, at += 8) {
    boost::endian::big_uint64_buf_t word;
    std::memcpy(&word, packet.data() + at, sizeof word);
    // Only the first words of the map: a line has to stay readable.
    if (i < 3) {
      out << ' ' << std::hex << word.value() << std::dec;
    }
  }
  for (int i = 0; i < h.results && at + sizeof(wire::ResultEntry) <= packet.size(); ++i) {
    wire::ResultEntry entry;
    std::memcpy(&entry, packet.data() + at, sizeof entry);
    at += sizeof entry;
    out << " [psn " << entry.psn.value() << ": " << int{entry.code} << ']';
  }
}

}  // namespace

Packet kind_of(std::span<const std::byte> packet) {
  if (packet.size() < sizeof(wire::CommonHeader)) {
    return Packet::other;
  }
  switch (static_cast<wire::PacketType>(packet[1])) {
    case wire::PacketType::send:
      return Packet::send;
    case wire::PacketType::write:
      return Packet::write;
    case wire::PacketType::read_request:
      return Packet::read_request;
    case wire::PacketType::read_response:
      return Packet::read_response;
    case wire::PacketType::probe:
      return Packet::probe;
    case wire::PacketType::ack:
      return Packet::ack;
    case wire::PacketType::stale_life:
      return Packet::stale_life;
    case wire::PacketType::credit_request:
      return Packet::credit_request;
  }
  return Packet::other;
}

std::string describe(std::span<const std::byte> packet) {
  const Packet kind = kind_of(packet);
  std::ostringstream out;
  wire::CommonHeader h;
  if (kind == Packet::other || !wire::load(packet, h)) {
    out << "other (" << packet.size() << " bytes)";
    return out.str();
  }
  out << name_of(kind) << " qp " << h.source_qpn.value() << "->" << h.destination_qpn.value()
      << " life " << h.source_life.value() << "->" << h.destination_life.value() << " path "
      << h.path.value() << " try " << int{h.attempt};
  if (matches(Packet::data | Packet::probe, kind)) {
    describe_data(out, packet);
  } else if (kind == Packet::ack) {
    describe_ack(out, packet);
  }
  return out.str();
}

}  // namespace weft::world
