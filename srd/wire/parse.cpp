// Owns the checks of [wire 5.1], in the order in which the specification lists them.
//
// The header is copied out first and only the copy is looked at, because the packet may lie in
// memory that its sender can still write to. For an acknowledgement that includes everything behind
// the header.
#include "srd/wire/parse.hpp"

#include <array>

#include "srd/base/check.hpp"
#include "srd/net/crc32c.hpp"

namespace weft::srd::wire {
namespace {

static_assert(sizeof(CreditRequest) == kSmallestHeader && sizeof(AckHeader) >= kSmallestHeader);

constexpr std::uint8_t kRefused = 0;

// [wire 3.3] Which flags a type may carry.
constexpr std::uint8_t allowed_flags(std::uint8_t type) {
  switch (static_cast<PacketType>(type)) {
    case PacketType::send:
      return kAckRequested | kImmediate | kChecksummed | kLastOfMessage;
    case PacketType::write:
      return kAckRequested | kImmediate | kChecksummed | kLastOfMessage | kCompletes;
    case PacketType::read_response:
      return kAckRequested | kChecksummed | kLastOfMessage | kReadFailed;
    case PacketType::read_request:
    case PacketType::probe:
      return kAckRequested | kChecksummed;
    case PacketType::ack:
      return kLeaving | kChecksummed | kNoWindow | kEchoValid | kEchoCongested | kEchoProbe |
             kCreditValid;
    case PacketType::stale_life:
    case PacketType::credit_request:
      return kChecksummed;
  }
  return kRefused;  // every type may carry kChecksummed: only unknown ones come here
}

constexpr std::uint8_t kEchoes = kEchoValid | kEchoCongested | kEchoProbe;

constexpr std::size_t kTypes = 32;
constexpr auto kAllowedFlags = [] {
  std::array<std::uint8_t, kTypes> table{};
  for (std::uint8_t type = 0; type < kTypes; ++type) {
    table[type] = allowed_flags(type);
  }
  return table;
}();

// [wire 3.6] The statuses that travel: srd::Status from bad_qpn to unknown_peer.
constexpr bool is_wire_status(std::uint32_t code) { return code >= 1 && code <= 10; }

DropReason check_message(PacketType type, const DataHeader& header) {
  const std::uint32_t payload = header.payload_length.value();
  const std::uint32_t message = header.message_length.value();
  const bool failed = (header.common.flags & kReadFailed) != 0;
  switch (type) {
    case PacketType::send:
      return payload == message ? DropReason::none : DropReason::bad_message;
    case PacketType::write:
      // Only a message without bytes has a packet without bytes.
      return message <= kMaxMessageLength && payload <= message && (payload != 0 || message == 0)
                 ? DropReason::none
                 : DropReason::bad_message;
    case PacketType::read_request:
      return message <= kMaxMessageLength && payload == 0 ? DropReason::none
                                                          : DropReason::bad_message;
    case PacketType::read_response: {
      if (failed) {
        return payload == 0 && is_wire_status(header.key.value()) ? DropReason::none
                                                                  : DropReason::bad_message;
      }
      const std::uint64_t offset = header.remote_address.value();
      return message <= kMaxMessageLength && offset <= message && payload <= message - offset &&
                     (payload != 0 || message == 0)
                 ? DropReason::none
                 : DropReason::bad_message;
    }
    default:
      return payload == 0 ? DropReason::none : DropReason::bad_message;
  }
}

}  // namespace

// A trimmed packet may be shorter than its header says, never longer; one without payload had
// nothing that could be trimmed.
[[gnu::always_inline]] inline DropReason ParsedPacket::check_data(std::size_t size) const {
  if (size < sizeof(DataHeader)) {
    return trimmed_ ? DropReason::trimmed_without_psn : DropReason::too_short;
  }
  const std::size_t whole = sizeof(DataHeader) + header_.payload_length.value();
  if (trimmed_ ? size > whole : size != whole) {
    return DropReason::bad_length;
  }
  if (trimmed_ && header_.payload_length.value() == 0) {
    return DropReason::trimmed_control;
  }
  if (header_.back.value() >= kWindowSpan) {
    return DropReason::bad_window;
  }
  return check_message(type_, header_);
}

// [wire 3.5] The header says how many words and results follow; the packet must be exactly as long.
[[gnu::hot]] DropReason ParsedPacket::check_ack(std::size_t size) {
  if (size < sizeof(AckHeader)) {
    return DropReason::too_short;
  }
  const AckHeader header = ack();
  if (header.sack_words > kMaxSackWords) {
    return DropReason::bad_sack;
  }
  if (header.results > kMaxResults) {
    return DropReason::bad_result;
  }
  results_at_ = static_cast<std::uint16_t>(header.sack_words * sizeof(std::uint64_t));
  const std::size_t tail = results_at_ + header.results * sizeof(ResultEntry);
  if (size != sizeof(AckHeader) + tail) {
    return DropReason::bad_length;
  }
  std::memcpy(ack_tail_.data(), bytes_.data() + sizeof(AckHeader), tail);
  for (std::size_t i = 0; i < header.results; ++i) {
    const ResultEntry entry = result(i);
    if (!is_wire_status(entry.code) && entry.code != kResultTrimmed &&
        entry.code != kResultDeferred) {
      return DropReason::bad_result;
    }
    if ((entry.reserved[0] | entry.reserved[1]) != 0) {
      return DropReason::reserved_bits;
    }
  }
  return DropReason::none;
}

DropReason ParsedPacket::check(std::size_t more_size) {
  if (bytes_.size() < sizeof(CommonHeader)) {
    return DropReason::too_short;
  }
  if (bytes_.size() >= sizeof header_) [[likely]] {
    std::memcpy(&header_, bytes_.data(), sizeof header_);
  } else {
    std::memcpy(&header_, bytes_.data(), bytes_.size());
  }
  const CommonHeader& header = common();
  if (header.version != kVersion) {
    return DropReason::bad_version;
  }
  const std::uint8_t allowed = header.type < kTypes ? kAllowedFlags[header.type] : kRefused;
  if (allowed == kRefused) {
    return DropReason::bad_type;
  }
  type_ = static_cast<PacketType>(header.type);
  const bool word = type_ == PacketType::ack && (header.flags & kLeaving) != 0;  // has no echo
  if ((header.flags & ~allowed) != 0 || (word && (header.flags & kEchoes) != 0)) {
    return DropReason::reserved_bits;
  }
  if (header.path.value() >= kMaxPaths) {
    return DropReason::bad_path;
  }
  const bool answers = type_ == PacketType::ack || type_ == PacketType::stale_life;
  if (header.source_life.value() == 0 || (answers && header.destination_life.value() == 0)) {
    return DropReason::zero_life;
  }
  if (has_data_header()) {
    // [wire 3] The whole header must lie in the carrier's first piece.
    return check_data(bytes_.size() < sizeof(DataHeader) ? bytes_.size()
                                                         : bytes_.size() + more_size);
  }
  if (trimmed_) {
    return DropReason::trimmed_control;
  }
  if (more_size != 0) {
    return DropReason::bad_length;
  }
  if (type_ == PacketType::ack) {
    return check_ack(bytes_.size());
  }
  if (bytes_.size() < kSmallestHeader) {
    return DropReason::too_short;
  }
  if (bytes_.size() != kSmallestHeader) {
    return DropReason::bad_length;
  }
  return type_ == PacketType::stale_life && stale_life().refused_life.value() == 0
             ? DropReason::zero_life
             : DropReason::none;
}

// The only way to make a ParsedPacket, so each has been checked.
[[gnu::hot]] ParsedPacket parse_packet(std::span<const std::byte> bytes, std::size_t more_size,
                                       bool trimmed) {
  ParsedPacket packet;
  packet.bytes_ = bytes;
  packet.trimmed_ = trimmed;
  packet.reason_ = packet.check(more_size);
  return packet;
}

std::uint32_t packet_checksum(std::span<const std::byte> header, std::span<const std::byte> payload,
                              std::span<const std::byte> more_payload) {
  WEFT_CHECK(header.size() >= kSmallestHeader);
  std::array<std::byte, kSmallestHeader> first;
  std::memcpy(first.data(), header.data(), first.size());
  constexpr std::size_t kField = offsetof(CommonHeader, checksum);
  std::memset(first.data() + kField, 0, sizeof(CommonHeader::checksum));
  std::uint32_t sum = crc32c(0, first);
  sum = crc32c(sum, header.subspan(first.size()));
  if (!payload.empty()) {
    sum = crc32c(sum, payload);
  }
  if (!more_payload.empty()) {
    sum = crc32c(sum, more_payload);
  }
  return sum;
}

void seal(std::span<std::byte> header, std::span<const std::byte> payload,
          std::span<const std::byte> more_payload) {
  WEFT_CHECK(header.size() >= kSmallestHeader);
  header[offsetof(CommonHeader, flags)] |= std::byte{kChecksummed};
  const big_uint32_buf_t sum{packet_checksum(header, payload, more_payload)};
  std::memcpy(header.data() + offsetof(CommonHeader, checksum), &sum, sizeof sum);
}

DropReason verify_checksum(const ParsedPacket& packet, std::span<const std::byte> more,
                           bool required) {
  if (!packet.has(kChecksummed)) {
    return required ? DropReason::missing_checksum : DropReason::none;
  }
  if (packet.trimmed()) {
    return DropReason::none;
  }
  return packet_checksum(packet.bytes(), more) == packet.common().checksum.value()
             ? DropReason::none
             : DropReason::bad_checksum;
}

}  // namespace weft::srd::wire
