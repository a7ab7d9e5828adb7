// Owns the first look at arriving bytes: any string of them becomes a checked packet or a reason to
// drop it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "srd/wire/drop_reason.hpp"
#include "srd/wire/srd_header.hpp"

namespace weft::srd::wire {

// The smallest header of all types.
inline constexpr std::size_t kSmallestHeader = sizeof(StaleLife);

// What parse_packet() found. The accessors cannot fail if the packet is ok() and its type has what
// they return. Headers are copies: the bytes may lie in memory that the sender can still write to,
// and what was checked must be what is used.
class ParsedPacket {
 public:
  [[nodiscard]] bool ok() const { return reason_ == DropReason::none; }
  [[nodiscard]] DropReason reason() const { return reason_; }

  // The carrier's first piece, which was parsed.
  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }
  [[nodiscard]] PacketType type() const { return type_; }
  // send, write, read_request, read_response, probe: has a DataHeader.
  [[nodiscard]] bool has_data_header() const { return type_ <= PacketType::probe; }
  // The payload, or a part of it, was cut off on the way [wire 4.9].
  [[nodiscard]] bool trimmed() const { return trimmed_; }
  [[nodiscard]] bool has(Flags flag) const {
    return (header_.common.flags & static_cast<std::uint8_t>(flag)) != 0;
  }

  [[nodiscard]] const CommonHeader& common() const { return header_.common; }
  [[nodiscard]] const DataHeader& data() const { return header_; }
  // The part of the payload that lies behind the header; what is missing lies in the carrier's
  // second piece.
  [[nodiscard]] std::span<const std::byte> payload() const {
    return bytes_.subspan(sizeof(DataHeader));
  }

  [[nodiscard]] AckHeader ack() const { return copy<AckHeader>(&header_); }
  // index < ack().sack_words
  [[nodiscard]] std::uint64_t sack_word(std::size_t index) const {
    return copy<big_uint64_buf_t>(&ack_tail_[index * sizeof(std::uint64_t)]).value();
  }
  // index < ack().results
  [[nodiscard]] ResultEntry result(std::size_t index) const {
    return copy<ResultEntry>(&ack_tail_[results_at_ + index * sizeof(ResultEntry)]);
  }

  [[nodiscard]] StaleLife stale_life() const { return copy<StaleLife>(&header_); }
  [[nodiscard]] CreditRequest credit_request() const { return copy<CreditRequest>(&header_); }

 private:
  friend ParsedPacket parse_packet(std::span<const std::byte> bytes, std::size_t more_size,
                                   bool trimmed);

  // The large members are deliberately not initialised: parse_packet() fills what the type has.
  ParsedPacket() {}  // NOLINT(modernize-use-equals-default)

  template <class Header>
  [[nodiscard]] static Header copy(const void* from) {
    Header header;
    std::memcpy(&header, from, sizeof header);
    return header;
  }

  [[nodiscard]] DropReason check(std::size_t more_size);
  [[nodiscard]] DropReason check_data(std::size_t size) const;
  [[nodiscard]] DropReason check_ack(std::size_t size);

  std::span<const std::byte> bytes_;
  PacketType type_{};
  DropReason reason_ = DropReason::none;
  bool trimmed_ = false;
  std::uint16_t results_at_ = 0;  // in ack_tail_
  DataHeader header_;             // the largest one
  std::array<std::byte, kLargestAck - sizeof(AckHeader)> ack_tail_;
};

// [wire 5.1] Judges a packet by its header alone. `bytes` is the packet, or its beginning with the
// whole header; `more_size` bytes of payload lie elsewhere. `trimmed`: the envelope says so.
[[nodiscard]] ParsedPacket parse_packet(std::span<const std::byte> bytes, std::size_t more_size = 0,
                                        bool trimmed = false);

// [wire 3.1] The checksum of a packet that lies in up to three pieces. The value in its checksum
// field does not matter. `header` is at least the smallest header: 32 bytes.
[[nodiscard]] std::uint32_t packet_checksum(std::span<const std::byte> header,
                                            std::span<const std::byte> payload = {},
                                            std::span<const std::byte> more_payload = {});

// For the sender: marks the packet as checksummed and writes the checksum into its header.
void seal(std::span<std::byte> header, std::span<const std::byte> payload = {},
          std::span<const std::byte> more_payload = {});

// For the receiver of a parsed packet and the carrier's second piece: none, bad_checksum, or, where
// `required`, missing_checksum. A trimmed packet cannot be verified and passes.
[[nodiscard]] DropReason verify_checksum(const ParsedPacket& packet,
                                         std::span<const std::byte> more, bool required);

}  // namespace weft::srd::wire
