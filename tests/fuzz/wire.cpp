// Owns the fuzz target of everything that looks at arriving bytes: envelope, header, trimming.
//
// What is let through must keep to what the rest of the transport relies on; and written again, or
// cut as a switch would cut it, it must still be good.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "srd/base/check.hpp"
#include "srd/net/envelope.hpp"
#include "srd/wire/parse.hpp"
#include "srd/wire/srd_codec.hpp"

namespace weft::srd::wire {
namespace {

// Reads all that the accessors offer, so that the sanitizers see it.
void look_at_ack(const ParsedPacket& packet) {
  const AckHeader header = packet.ack();
  WEFT_CHECK(header.sack_words <= kMaxSackWords && header.results <= kMaxResults);
  std::uint64_t seen = 0;
  for (std::size_t i = 0; i < header.sack_words; ++i) {
    seen ^= packet.sack_word(i);
  }
  for (std::size_t i = 0; i < header.results; ++i) {
    const ResultEntry entry = packet.result(i);
    WEFT_CHECK(entry.code != 0);
    seen ^= entry.psn.value();
  }
  volatile std::uint64_t sink = seen;
  static_cast<void>(sink);
}

void look_at_packet(std::span<const std::byte> bytes, std::size_t more_size, bool trimmed) {
  const ParsedPacket packet = parse_packet(bytes, more_size, trimmed);
  WEFT_CHECK(packet.reason() <= DropReason::trimmed_without_psn);
  if (!packet.ok()) {
    return;
  }
  const CommonHeader common = packet.common();
  WEFT_CHECK(common.version == kVersion && common.path.value() < kMaxPaths);
  WEFT_CHECK(common.source_life.value() != 0);
  if (packet.has_data_header()) {
    const DataHeader header = packet.data();
    const std::size_t there = packet.payload().size() + more_size;
    WEFT_CHECK(trimmed ? there <= header.payload_length.value()
                       : there == header.payload_length.value());
    WEFT_CHECK(header.back.value() < kWindowSpan);
    WEFT_CHECK(header.common.flags & kReadFailed ||
               header.payload_length.value() <= header.message_length.value());
  } else if (packet.type() == PacketType::ack) {
    look_at_ack(packet);
  } else if (packet.type() == PacketType::stale_life) {
    WEFT_CHECK(packet.stale_life().refused_life.value() != 0);
  } else {
    WEFT_CHECK(packet.credit_request().common.type == common.type);
  }
  // The same bytes, sealed, are what a receiver accepts.
  std::vector<std::byte> sealed(bytes.begin(), bytes.end());
  seal(sealed);
  const ParsedPacket again = parse_packet(sealed, more_size, trimmed);
  WEFT_CHECK(again.ok() && verify_checksum(again, {}, true) == DropReason::none);
}

// Of IPv4, which an input does not find by itself.
void fix_header_checksum(std::span<std::byte> frame) {
  if (frame.size() < net::kEnvelopeSizeV4) {
    return;
  }
  std::uint32_t sum = 0;
  frame[24] = frame[25] = std::byte{0};
  for (std::size_t i = 14; i < 34; i += 2) {
    sum += std::to_integer<std::uint32_t>(frame[i]) << 8 |
           std::to_integer<std::uint32_t>(frame[i + 1]);
  }
  sum = (sum & 0xFFFF) + (sum >> 16);
  sum = ~(sum + (sum >> 16));
  frame[24] = static_cast<std::byte>(sum >> 8);
  frame[25] = static_cast<std::byte>(sum);
}

// What was parsed, written again, parses to the same.
void check_round_trip(const net::Envelope& envelope) {
  const auto writer = net::EnvelopeWriter::make(envelope.source(), wire::SrdCodec::kPorts);
  WEFT_CHECK(writer.has_value());
  std::vector<std::byte> frame(writer->size() + envelope.packet().size());
  WEFT_CHECK(writer->write(frame.data(), envelope.destination(), envelope.path(), envelope.ecn(),
                           envelope.dscp(), envelope.packet().size()));
  std::ranges::copy(envelope.packet(), frame.begin() + static_cast<std::ptrdiff_t>(writer->size()));
  const net::Envelope again = net::Envelope::parse(frame, wire::SrdCodec::kPorts);
  WEFT_CHECK(again.ok() && again.source() == envelope.source() &&
             again.destination() == envelope.destination() && again.path() == envelope.path() &&
             again.ecn() == envelope.ecn() && again.dscp() == envelope.dscp() &&
             std::ranges::equal(again.packet(), envelope.packet()));
}

void look_at_frame(std::vector<std::byte> frame) {
  const net::Envelope envelope = net::Envelope::parse(frame, wire::SrdCodec::kPorts);
  if (!envelope.ok()) {
    return;
  }
  check_round_trip(envelope);
  look_at_packet(envelope.packet(), 0, wire::SrdCodec::is_trimmed(envelope.dscp()));
  const std::size_t before = envelope.packet().size();
  const bool can_be_trimmed = envelope.dscp() == wire::kDscpData && before > sizeof(DataHeader);
  const std::size_t size = wire::SrdCodec::trim(frame);
  WEFT_CHECK(size <= frame.size());
  frame.resize(size);
  const net::Envelope rest = net::Envelope::parse(frame, wire::SrdCodec::kPorts);
  WEFT_CHECK(rest.ok());
  WEFT_CHECK(rest.packet().size() == (can_be_trimmed ? sizeof(DataHeader) : before));
  WEFT_CHECK(!can_be_trimmed || wire::SrdCodec::is_trimmed(rest.dscp()));
}

}  // namespace
}  // namespace weft::srd::wire

// The first byte says how the rest is taken: as a packet (bit 0 clear; bit 1: trimmed; upper six
// bits: bytes of payload elsewhere) or as a frame (bit 0 set; bit 1: make the IPv4 header checksum
// right).
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  namespace wire = weft::srd::wire;
  if (size == 0) {
    return 0;
  }
  const auto bytes = std::as_bytes(std::span{data, size}).subspan(1);
  if ((data[0] & 1) == 0) {
    wire::look_at_packet(bytes, data[0] >> 2, (data[0] & 2) != 0);
    return 0;
  }
  std::vector<std::byte> frame(bytes.begin(), bytes.end());
  if ((data[0] & 2) != 0) {
    wire::fix_header_checksum(frame);
  }
  wire::look_at_frame(std::move(frame));
  return 0;
}
