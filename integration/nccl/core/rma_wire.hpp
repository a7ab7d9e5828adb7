// Owns the messages between two members of a group for remote memory access.
//
// They go as sends, once each but in any order. Whoever needs an order waits for acknowledgements.
#pragma once

#include <boost/endian/buffers.hpp>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace weft::nccl {

enum class RmaKind : std::uint8_t {
  join = 1,    // I am that rank of your listener's group
  window = 2,  // there is my part of that window
  signal = 3,  // add to a word of your part of that window
  reject = 4,  // what you sent names nothing that is here
  leave = 5,   // I am no more
  alive = 6,   // nothing; that it is acknowledged says that you are there
};

inline constexpr std::uint8_t kRmaVersion = 1;
inline constexpr std::uint8_t kNoMemory = 0x01;  // window: the sender has no part; nobody uses it

// A number names a group while it lives, the nonce tells it from earlier ones of that number. A
// join names a listener instead, by its number and secret.
struct RmaMessage {
  std::uint8_t version = kRmaVersion;
  std::uint8_t kind = 0;
  std::uint8_t flags = 0;
  std::uint8_t reserved = 0;
  boost::endian::big_uint16_buf_t to_group{0};
  boost::endian::big_uint16_buf_t from_group{0};
  boost::endian::big_uint32_buf_t to_nonce{0};
  boost::endian::big_uint32_buf_t from_nonce{0};
  boost::endian::big_uint32_buf_t from_rank{0};
  boost::endian::big_uint32_buf_t to_rank{0};
  boost::endian::big_uint32_buf_t qkey{0};    // of the sender of this
  boost::endian::big_uint32_buf_t number{0};  // of the listener or the window
  boost::endian::big_uint32_buf_t key{0};     // window
  boost::endian::big_uint64_buf_t place{0};   // join: secret; window: address; signal: offset
  boost::endian::big_uint64_buf_t amount{0};  // join: ranks; window: bytes; signal: what is added
};
static_assert(sizeof(RmaMessage) == 52);

[[nodiscard]] std::optional<RmaMessage> parse_rma(std::span<const std::byte> bytes);

}  // namespace weft::nccl
