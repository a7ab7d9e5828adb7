// Owns the header that every message and every note between messengers begins with.
#pragma once

#include <boost/endian/buffers.hpp>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace weft::srd::message {

// A message or note is the payload of an engine's send; docs/messages.md specifies it.
enum class Kind : std::uint8_t {
  eager = 1,     // header and all bytes of a message
  request = 2,   // a message whose bytes the receiver reads for itself
  finished = 3,  // answer to a request: the sender has its memory back
};

enum MessageFlags : std::uint8_t {
  kHasImmediate = 0x01,
  kUnordered = 0x02,
};

inline constexpr std::uint8_t kMessageVersion = 2;

// All numbers are big-endian. A life or epoch that does not fit says that the message is of the
// past.
struct Header {
  std::uint8_t version = kMessageVersion;
  std::uint8_t kind = 0;
  std::uint8_t flags = 0;
  std::uint8_t status = 0;  // finished
  boost::endian::big_uint32_buf_t immediate{0};
  boost::endian::big_uint64_buf_t tag{0};
  boost::endian::big_uint32_buf_t source_life{0};
  boost::endian::big_uint32_buf_t destination_life{0};  // 0: not known yet
  boost::endian::big_uint32_buf_t epoch{0};             // a failure begins the next
  boost::endian::big_uint32_buf_t sequence{0};          // within the epoch
  boost::endian::big_uint32_buf_t length{0};            // bytes of the message
  boost::endian::big_uint32_buf_t message{0};           // request, finished: the sender's number
  boost::endian::big_uint32_buf_t region{0};            // request: where the bytes are
  boost::endian::big_uint32_buf_t qkey{0};              // of the sender, for an answer
};
static_assert(sizeof(Header) == 48);

// The header of the payload `bytes`; nothing if that is no valid message or note.
[[nodiscard]] std::optional<Header> parse_header(std::span<const std::byte> bytes);

}  // namespace weft::srd::message
