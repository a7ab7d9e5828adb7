// Owns the names that the engine and its owner share: kinds and states of queue pairs, requests,
// completions, events. The numbers are those of the verbs.
#pragma once

#include <cstddef>
#include <cstdint>

#include "srd/base/ring_queue.hpp"
#include "srd/net/address.hpp"

namespace weft::roce {

enum class QpType : std::uint8_t { rc = 2, uc = 3, ud = 4 };
enum class QpState : std::uint8_t { reset = 0, init, rtr, rts, sqd, sqe, error };

enum Access : std::uint32_t {
  kLocalWrite = 1,
  kRemoteWrite = 2,
  kRemoteRead = 4,
  kRemoteAtomic = 8,
  kWindowBind = 16,
  kZeroBased = 32,
};

enum class WrOpcode : std::uint8_t {
  write = 0,
  write_immediate = 1,
  send = 2,
  send_immediate = 3,
  read = 4,
  compare_swap = 5,
  fetch_add = 6,
  local_invalidate = 7,
  bind_window = 8,
  send_invalidate = 9,
  atomic_write = 15,  // of eight bytes, which lie in the request
};
// What is answered with a response of its own, instead of an acknowledgement.
[[nodiscard]] constexpr bool is_read_or_atomic(WrOpcode opcode) {
  return opcode == WrOpcode::read || opcode == WrOpcode::compare_swap ||
         opcode == WrOpcode::fetch_add || opcode == WrOpcode::atomic_write;
}
enum SendFlag : std::uint8_t { kFence = 1, kSignaled = 2, kSolicitedEvent = 4, kInline = 8 };

enum class WcStatus : std::uint8_t {
  success = 0,
  local_length = 1,
  local_qp_operation = 2,
  local_protection = 4,
  flushed = 5,
  window_bind = 6,
  bad_response = 7,
  local_access = 8,
  remote_invalid_request = 9,
  remote_access = 10,
  remote_operation = 11,
  retries_exceeded = 12,
  rnr_retries_exceeded = 13,
};
enum class WcOpcode : std::uint8_t {
  send = 0,
  write = 1,
  read = 2,
  compare_swap = 3,
  fetch_add = 4,
  bind_window = 5,
  local_invalidate = 6,
  atomic_write = 9,
  receive = 128,
  receive_write_immediate = 129,
};
enum WcFlag : std::uint8_t { kWcGrh = 1, kWcImmediate = 2, kWcInvalidate = 8 };

enum class EventType : std::uint8_t {
  qp_fatal = 1,
  qp_request_error = 2,
  qp_access_error = 3,
  communication_established = 4,
  send_queue_drained = 5,
  srq_limit_reached = 15,
  last_wqe_reached = 16,
};

inline constexpr std::uint32_t kMaxSge = 32;
inline constexpr std::uint32_t kGrhSize = 40;  // in front of a datagram, in its receive
inline constexpr std::uint32_t kMaxMessage = 1U << 31;
inline constexpr std::uint32_t kNoSrq = 0xFFFFFFFF;

struct Sge {
  std::uint64_t address = 0;
  std::uint32_t length = 0;
  std::uint32_t lkey = 0;
};

// Where a packet goes, as an address handle or a connection's path says it.
struct AddressVector {
  srd::Address destination;
  std::uint32_t source_index = 0;  // in EngineConfig::addresses
  std::uint32_t flow_label = 0;
  std::uint8_t traffic_class = 0;
  std::uint8_t hop_limit = 64;
};

// A send request without its segments. Keys and addresses are unchecked.
struct WorkRequest {
  std::uint64_t wr_id = 0;
  WrOpcode opcode = WrOpcode::send;
  std::uint8_t flags = 0;        // SendFlag
  std::uint32_t immediate = 0;   // as the application stored it
  std::uint32_t invalidate = 0;  // the key
  std::uint64_t remote_address = 0;
  std::uint32_t rkey = 0;
  std::uint64_t compare_add = 0;
  std::uint64_t swap = 0;
  // UD
  AddressVector address;
  std::uint32_t remote_qpn = 0;
  std::uint32_t remote_qkey = 0;
  // bind_window; an address range of the region `bind_lkey`, or of length 0 to unbind
  std::uint32_t window = 0;    // the window's present key
  std::uint32_t new_rkey = 0;  // its low byte becomes the window's
  std::uint32_t bind_lkey = 0;
  std::uint32_t bind_access = 0;
  std::uint64_t bind_address = 0;
  std::uint64_t bind_length = 0;
};

// One entry of a completion queue.
struct Completion {
  std::uint64_t wr_id = 0;
  WcStatus status = WcStatus::success;
  WcOpcode opcode = WcOpcode::send;
  std::uint8_t flags = 0;  // WcFlag
  bool solicited = false;
  std::uint32_t cq = 0;
  std::uint32_t length = 0;
  std::uint32_t immediate = 0;  // or the key that was invalidated
  std::uint32_t qpn = 0;
  std::uint32_t source_qpn = 0;
  // Of a datagram: what kind of header came in front of it, as Annex 17 of the specification wants
  // completions to say, in the bits in which other NICs for Ethernet say so.
  std::uint8_t service_level = 0;
};
inline constexpr std::uint8_t kServiceLevelIpv4 = 0xA;
inline constexpr std::uint8_t kServiceLevelIpv6 = 0x9;

struct Event {
  EventType type = EventType::qp_fatal;
  std::uint32_t id = 0;  // of the queue pair, or of the SRQ
};

// Where an engine puts what its owner is to hear. The owner empties it between two calls; what it
// can grow to is bounded by the requests that are posted.
struct Sink {
  RingQueue<Completion> completions;
  RingQueue<Event> events;
};

}  // namespace weft::roce
