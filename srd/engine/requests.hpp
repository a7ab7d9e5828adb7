// Owns what a user of the engine hands in (work requests) and gets back (completions).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "srd/engine/types.hpp"

namespace weft::srd {

inline constexpr std::uint32_t kMaxTransfer = 1U << 30;  // bytes of one read or write

enum class PostResult : std::uint8_t {
  accepted,
  queue_full,  // a limit of the configuration: try again after poll()
  no_such_peer,
  no_such_endpoint,
  too_long,  // a send beyond max_send_size(), a read or write beyond kMaxTransfer
};

// A piece of the user's memory. It is lent to the engine from post to completion.
struct Segment {
  std::byte* data = nullptr;
  std::uint32_t length = 0;
};

inline constexpr std::size_t kMaxSegments = 2;
using SegmentList = std::array<Segment, kMaxSegments>;  // unused ones have length 0

// The pieces of memory that a receive may be scattered to.
inline constexpr std::size_t kMaxReceiveSegments = 3;
using ReceiveSegments = std::array<Segment, kMaxReceiveSegments>;

// How often a request that met a receiver without a posted receive is tried again.
inline constexpr std::uint8_t kRnrRetryForever = 7;

// Fields that every request has.
struct RequestBase {
  PeerId peer;
  Qpn source;              // the local endpoint that posts
  Qpn destination;         // the endpoint at the peer
  std::uint32_t qkey = 0;  // must equal the destination endpoint's
  std::uint64_t cookie = 0;
  std::uint8_t rnr_retry = kRnrRetryForever;
};

// One message of at most Engine::max_send_size() bytes.
struct SendRequest : RequestBase {
  SegmentList segments{};
  std::optional<std::uint32_t> immediate;
};

struct WriteRequest : RequestBase {
  SegmentList segments{};
  std::uint64_t remote_address = 0;
  RegionKey remote_key;
  std::optional<std::uint32_t> immediate;
  bool phantom = false;  // simulated bulk: lengths are real, bytes are neither read nor sent
};

struct ReadRequest : RequestBase {
  SegmentList segments{};
  std::uint64_t remote_address = 0;
  RegionKey remote_key;
};

struct ReceiveRequest {
  ReceiveSegments segments{};
  std::uint64_t cookie = 0;
};

// Every accepted request gives exactly one completion.
struct Completion {
  enum class Kind : std::uint8_t {
    send,
    write,
    read,
    receive,            // a message lies in the posted receive named by the cookie
    receive_write_imm,  // a write with immediate data has been placed entirely
  };
  std::uint64_t cookie = 0;
  Kind kind = Kind::send;
  Status status = Status::ok;
  bool has_immediate = false;
  bool consumed_receive =
      true;      // receive_write_imm only: false if the endpoint takes them unsolicited
  Qpn endpoint;  // the local endpoint
  Qpn remote;    // the peer's endpoint
  PeerId peer;
  std::uint32_t length = 0;
  std::uint32_t immediate = 0;
};

struct EndpointConfig {
  std::uint32_t qkey = 0;
  std::uint32_t domain = 0;  // protection domain: remote access must name a region of the same one
  std::uint32_t receive_depth = 0;     // most receives that can be posted
  bool receiving = true;               // false: every arriving packet is answered with bad_qpn
  bool acquainted_only = false;        // remote access only for addresses that acquaint() named
  bool unsolicited_immediate = false;  // writes with immediate do not consume a posted receive
};

}  // namespace weft::srd
