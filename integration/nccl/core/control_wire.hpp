// Owns the control messages between two plugins: layouts and their validation.
//
// They go as sends, which the transport delivers once but in any order. So nothing here relies on
// what was said before: each message names the end that it is for, and announcements carry a
// number.
#pragma once

#include <boost/endian/buffers.hpp>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace weft::nccl {

enum class ControlKind : std::uint8_t {
  hello = 1,     // sender: connect me to that listener
  welcome = 2,   // receiver: accepted
  refuse = 3,    // receiver: there is no such listener
  announce = 4,  // receiver: so many buffers wait for you
  reject = 5,    // sender: a message does not fit its buffer
  goodbye = 6,   // either: this end of the connection is no more
  eager = 7,     // sender: a short message, whether or not a buffer waits for it
};

inline constexpr std::uint8_t kControlVersion = 3;
inline constexpr std::size_t kMaxGroup = 8;  // buffers of one receive

// Every message is the payload of an engine's send. Which end of a connection is meant follows from
// the kind; of a goodbye the flag says it. A number names an end while it lives, the nonce tells it
// from earlier ends of that number.
struct ControlHeader {
  std::uint8_t version = kControlVersion;
  std::uint8_t kind = 0;
  std::uint8_t flags = 0;
  std::uint8_t count = 0;  // announce: buffers
  boost::endian::big_uint16_buf_t to_number{0};
  boost::endian::big_uint16_buf_t from_number{0};
  boost::endian::big_uint32_buf_t to_nonce{0};
  boost::endian::big_uint32_buf_t from_nonce{0};
  // announce: of the group; hello: the listener; eager: of the eager messages of its connection
  boost::endian::big_uint32_buf_t sequence{0};
  boost::endian::big_uint32_buf_t qkey{0};    // of the sender of this
  boost::endian::big_uint64_buf_t secret{0};  // hello: from the listener's handle
};
static_assert(sizeof(ControlHeader) == 32);

inline constexpr std::uint8_t kToSender = 0x01;  // goodbye: to the sending end

// One buffer that waits.
struct ControlEntry {
  boost::endian::big_uint64_buf_t address{0};
  boost::endian::big_uint32_buf_t key{0};
  boost::endian::big_uint32_buf_t size{0};
  boost::endian::big_int64_buf_t tag{0};
};
static_assert(sizeof(ControlEntry) == 24);

inline constexpr std::size_t kMaxControl = sizeof(ControlHeader) + kMaxGroup * sizeof(ControlEntry);

// How an eager message begins; its bytes follow.
struct EagerHeader {
  ControlHeader control;
  boost::endian::big_int64_buf_t tag{0};
};
static_assert(sizeof(EagerHeader) == 40);

// An eager message is copied twice, which costs less than to wait for an announcement as long as it
// is short. Its packet fits into the frames of an Ethernet.
inline constexpr std::size_t kMaxEager = 1024;
inline constexpr std::size_t kMaxMessage = sizeof(EagerHeader) + kMaxEager;
static_assert(kMaxMessage >= kMaxControl);
// Announcements and eager messages are counted from here: the numbers wrap after a hundred of them,
// so that tests and users meet the wrap soon, not after years.
inline constexpr std::uint32_t kFirstSequence = ~std::uint32_t{0} - 99;
// See EagerWindow.
inline constexpr std::uint32_t kEagerWindow = 16;

// The header of a message; nothing if that is no valid one.
[[nodiscard]] std::optional<ControlHeader> parse_control(std::span<const std::byte> bytes);
// Of an announcement that parse_control() has accepted; index < count.
[[nodiscard]] ControlEntry entry_of(std::span<const std::byte> bytes, std::size_t index);
// Of an eager message that parse_control() has accepted.
[[nodiscard]] std::int64_t tag_of(std::span<const std::byte> bytes);

// What a write with immediate data says of the message that it completes.
struct Immediate {
  static constexpr std::uint32_t kSlots = 64;
  static constexpr std::uint32_t kPhases = 128;

  std::uint16_t comm = 0;      // the receiving end
  std::uint32_t sequence = 0;  // of the group; only its last 13 bits travel
  std::uint8_t sub = 0;        // which buffer of the group

  [[nodiscard]] constexpr std::uint32_t pack() const {
    return std::uint32_t{comm} << 16 | (sequence % kSlots) << 10 | std::uint32_t{sub} << 7 |
           sequence / kSlots % kPhases;
  }
  [[nodiscard]] static constexpr Immediate unpack(std::uint32_t word) {
    return {static_cast<std::uint16_t>(word >> 16),
            (word >> 10) % kSlots + (word % kPhases) * kSlots,
            static_cast<std::uint8_t>(word >> 7 & 7)};
  }
  // At most 64 groups are open at a time, so 13 bits are enough to tell one from all that may be
  // late.
  [[nodiscard]] constexpr bool means(std::uint32_t other) const {
    return sequence == other % (kSlots * kPhases);
  }
};

}  // namespace weft::nccl
