// Owns the classification of packets and their description in traces.
#include "emu/swarm/packet_kind.hpp"

#include <cstdarg>
#include <cstdio>

#include "srd/wire/srd_header.hpp"

namespace weft::swarm {
namespace {

namespace wire = srd::wire;

__attribute__((format(printf, 1, 2))) std::string text(const char* format, ...) {
  char buffer[320];
  std::va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(buffer, sizeof buffer, format, arguments);
  va_end(arguments);
  return buffer;
}

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

std::string describe_data(std::span<const std::byte> packet) {
  wire::DataHeader h;
  if (!wire::load(packet, h)) {
    return " cut short";
  }
  return text(" psn %u back %u len %u msg %u/%u key %x addr %llx%s%s", h.psn.value(),
              h.back.value(), h.payload_length.value(), h.message.value(), h.message_length.value(),
              h.key.value(), static_cast<unsigned long long>(h.remote_address.value()),
              (h.common.flags & wire::kImmediate) != 0 ? " imm" : "",
              (h.common.flags & wire::kAckRequested) != 0 ? " ack!" : "");
}

std::string describe_ack(std::span<const std::byte> packet) {
  wire::AckHeader h;
  if (!wire::load(packet, h)) {
    return " cut short";
  }
  std::string out = text(" cumulative %u echo %u words %u", h.cumulative.value(),
                         h.echo_psn.value(), h.sack_words);
  std::size_t at = sizeof h;
  for (int i = 0; i < h.sack_words && at + 8 <= packet.size(); ++i, at += 8) {
    boost::endian::big_uint64_buf_t word;
    std::memcpy(&word, packet.data() + at, sizeof word);
    if (i < 3) {
      out += text(" %llx", static_cast<unsigned long long>(word.value()));
    }
  }
  for (int i = 0; i < h.results && at + sizeof(wire::ResultEntry) <= packet.size(); ++i) {
    wire::ResultEntry entry;
    std::memcpy(&entry, packet.data() + at, sizeof entry);
    at += sizeof entry;
    out += text(" [psn %u: %u]", entry.psn.value(), entry.code);
  }
  return out;
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
  wire::CommonHeader h;
  if (kind == Packet::other || !wire::load(packet, h)) {
    return text("other (%zu bytes)", packet.size());
  }
  std::string out = text("%s qp %u->%u life %u->%u path %u try %u", name_of(kind),
                         h.source_qpn.value(), h.destination_qpn.value(), h.source_life.value(),
                         h.destination_life.value(), h.path.value(), h.attempt);
  if (matches(Packet::data | Packet::probe, kind)) {
    out += describe_data(packet);
  } else if (kind == Packet::ack) {
    out += describe_ack(packet);
  }
  return out;
}

}  // namespace weft::swarm
