// Owns the transport's headers: frozen layouts, specified in docs/wire.md section 3.
#pragma once

#include <algorithm>
#include <bit>
#include <boost/endian/buffers.hpp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

namespace weft::srd::wire {

using boost::endian::big_uint16_buf_t;
using boost::endian::big_uint24_buf_t;
using boost::endian::big_uint32_buf_t;
using boost::endian::big_uint64_buf_t;

inline constexpr std::uint8_t kVersion = 2;

// [wire 3.2]
enum class PacketType : std::uint8_t {
  send = 1,
  write = 2,
  read_request = 3,
  read_response = 4,
  probe = 5,
  ack = 16,
  stale_life = 17,
  credit_request = 18,
};

// [wire 3.3] Bits of CommonHeader::flags. The upper five, and the first, mean something else in an
// ack.
enum Flags : std::uint8_t {
  kAckRequested = 0x01,
  kLeaving = 0x01,
  kImmediate = 0x02,
  kChecksummed = 0x04,
  kLastOfMessage = 0x08,
  kNoWindow = 0x08,
  kReadFailed = 0x10,
  kCompletes = 0x20,
  kEchoValid = 0x10,
  kEchoCongested = 0x20,
  kEchoProbe = 0x40,
  kCreditValid = 0x80,
};

// [wire 3.1] Every packet begins with it. Steering reads the destination at its fixed offset.
struct CommonHeader {
  std::uint8_t version;
  std::uint8_t type;
  std::uint8_t flags;
  std::uint8_t attempt;  // data: transmissions of this PSN before this one; ack: echo of it
  big_uint16_buf_t destination_attachment;
  big_uint24_buf_t destination_qpn;
  big_uint24_buf_t source_qpn;
  big_uint16_buf_t source_attachment;
  big_uint16_buf_t path;  // data: the sender's path; ack: echo of it
  big_uint32_buf_t source_life;
  big_uint32_buf_t destination_life;  // 0: not known yet
  big_uint32_buf_t checksum;          // CRC32C of the packet with this field zero
};
static_assert(sizeof(CommonHeader) == 28);
inline constexpr std::size_t kDestinationAttachmentOffset = 4;
inline constexpr std::size_t kDestinationQpnOffset = 6;
static_assert(offsetof(CommonHeader, destination_attachment) == kDestinationAttachmentOffset &&
              offsetof(CommonHeader, destination_qpn) == kDestinationQpnOffset);

// Three fields of CommonHeader that lie side by side, read and written as one word: a number of
// three bytes alone takes twice as many instructions.
struct Addressing {
  std::uint16_t destination_attachment = 0;
  std::uint32_t destination_qpn = 0;
  std::uint32_t source_qpn = 0;
};
static_assert(offsetof(CommonHeader, source_qpn) == kDestinationQpnOffset + 3);

// [wire 3.4] send, write, read_request, read_response, probe.
struct DataHeader {
  CommonHeader common;
  big_uint32_buf_t psn;
  big_uint16_buf_t back;  // psn minus the oldest PSN that the sender still cares for
  big_uint16_buf_t payload_length;
  big_uint32_buf_t send_time;  // sender's clock, nanoseconds modulo 2^32; echoed
  big_uint32_buf_t message;    // write: message number; read: request number
  big_uint32_buf_t key;        // send: Q_Key; write, read_request: region key; failed read: status
  big_uint64_buf_t remote_address;  // write, read_request: address; read_response: offset
  big_uint32_buf_t immediate;
  big_uint32_buf_t message_length;  // bytes of the whole message
};
static_assert(sizeof(DataHeader) == 64);

// [wire 3.5] Followed by `sack_words` 64-bit words and `results` ResultEntry.
struct AckHeader {
  CommonHeader common;
  big_uint32_buf_t echo_psn;    // with kLeaving: the next PSN of the sender's own packets
  big_uint32_buf_t cumulative;  // every PSN before this one is settled
  big_uint32_buf_t echo_send_time;
  big_uint32_buf_t credit;  // cumulative grant in units of kCreditUnit bytes, modulo 2^32
  std::uint8_t sack_words;  // at most kMaxSackWords
  std::uint8_t results;     // at most kMaxResults
  big_uint16_buf_t reserved;
  big_uint32_buf_t marked;  // accepted packets that carried CE, cumulative, modulo 2^32
  big_uint32_buf_t wait;    // nanoseconds from the echoed packet's arrival to this ack
};
static_assert(sizeof(AckHeader) == 56);

// [wire 3.6] The fate of one PSN that is not plain success.
struct ResultEntry {
  big_uint32_buf_t psn;
  std::uint8_t code;     // srd::Status, or one of the codes below
  std::uint8_t attempt;  // trimmed, deferred: of the transmission that met this; else 0
  std::uint8_t reserved[2];
};
static_assert(sizeof(ResultEntry) == 8);
inline constexpr std::uint8_t kResultTrimmed = 128;   // header arrived without payload: send again
inline constexpr std::uint8_t kResultDeferred = 129;  // no room to note the outcome: send later

// [wire 4.6] The classes of messages by their bytes: below 32 KiB, 256 KiB, 2 MiB, 16 MiB, and
// above.
inline constexpr std::uint32_t kSizeClasses = 5;
[[nodiscard]] constexpr std::uint32_t size_class(std::uint32_t bytes) {
  constexpr int kBitsOfShort = 15;
  constexpr int kBitsOfStep = 3;
  const int bits = static_cast<int>(std::bit_width(bytes));
  const int steps =
      bits <= kBitsOfShort ? 0 : (bits - kBitsOfShort + kBitsOfStep - 1) / kBitsOfStep;
  return std::min(static_cast<std::uint32_t>(steps), kSizeClasses - 1);
}

// [wire 3.7]
struct StaleLife {
  CommonHeader common;            // source_life: the receiver's own
  big_uint32_buf_t refused_life;  // destination_life of the packet that was refused
};
static_assert(sizeof(StaleLife) == 32);

// [wire 3.8]
struct CreditRequest {
  CommonHeader common;
  big_uint32_buf_t demand;  // cumulative, in units of kCreditUnit bytes, modulo 2^32
};
static_assert(sizeof(CreditRequest) == 32);

inline constexpr std::uint32_t kMaxWindow = 2048;  // [wire 4.1] PSNs a receiver keeps track of
inline constexpr std::uint32_t kWindowSpan = kMaxWindow - 64;  // a window may begin within a word
inline constexpr std::uint8_t kMaxSackWords = kMaxWindow / 64;
inline constexpr std::uint8_t kMaxRecordedResults = 16;  // [wire 4.3] kept per peer, in every ack
inline constexpr std::uint8_t kMaxResults = 24;  // the recorded ones, and 8 that are told once
inline constexpr std::uint32_t kCreditUnit = 256;
inline constexpr std::uint32_t kQpnMask = 0xFFFFFF;
inline constexpr std::uint32_t kMaxPaths = 256;
inline constexpr std::uint32_t kMaxMessageLength = 1U << 30;  // [wire 3.4] write and read
inline constexpr std::size_t kLargestAck =
    sizeof(AckHeader) + kMaxSackWords * 8 + kMaxResults * sizeof(ResultEntry);

[[nodiscard]] inline Addressing addressing_of(const CommonHeader& header) {
  big_uint64_buf_t word;
  std::memcpy(&word, reinterpret_cast<const std::byte*>(&header) + kDestinationAttachmentOffset,
              sizeof word);
  const std::uint64_t value = word.value();
  return {.destination_attachment = static_cast<std::uint16_t>(value >> 48),
          .destination_qpn = static_cast<std::uint32_t>(value >> 24) & kQpnMask,
          .source_qpn = static_cast<std::uint32_t>(value) & kQpnMask};
}
inline void address(CommonHeader& header, const Addressing& to) {
  const big_uint64_buf_t word{std::uint64_t{to.destination_attachment} << 48 |
                              std::uint64_t{to.destination_qpn & kQpnMask} << 24 |
                              (to.source_qpn & kQpnMask)};
  std::memcpy(reinterpret_cast<std::byte*>(&header) + kDestinationAttachmentOffset, &word,
              sizeof word);
}

// Headers are copied out of and into packets; nothing ever points a struct at packet memory.
template <class Header>
[[nodiscard]] inline bool load(std::span<const std::byte> bytes, Header& header) {
  static_assert(std::is_trivially_copyable_v<Header>);
  if (bytes.size() < sizeof(Header)) {
    return false;
  }
  std::memcpy(&header, bytes.data(), sizeof(Header));
  return true;
}
template <class Header>
inline void store(std::byte* to, const Header& header) {
  static_assert(std::is_trivially_copyable_v<Header>);
  std::memcpy(to, &header, sizeof(Header));
}

}  // namespace weft::srd::wire
