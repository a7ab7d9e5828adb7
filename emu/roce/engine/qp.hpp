// Owns what a queue pair knows: requester and completer, responder, and what it still has to
// answer.
#pragma once

#include <cstdint>
#include <vector>

#include "emu/roce/engine/attributes.hpp"
#include "emu/roce/engine/queues.hpp"
#include "emu/roce/engine/rate.hpp"
#include "srd/base/time.hpp"

namespace weft::roce {

// 24-bit sequence numbers.
inline constexpr std::uint32_t kPsnMask = 0xFFFFFF;
inline constexpr std::uint32_t kHalfOfPsns = 1U << 23;  // farther apart, they cannot be compared
[[nodiscard]] constexpr std::uint32_t psn_plus(std::uint32_t psn, std::uint32_t count) {
  return (psn + count) & kPsnMask;
}
// How far `psn` is ahead of `other`; negative: behind.
[[nodiscard]] constexpr std::int32_t psn_minus(std::uint32_t psn, std::uint32_t other) {
  return static_cast<std::int32_t>((psn - other) << 8) >> 8;
}
[[nodiscard]] constexpr bool psn_before(std::uint32_t psn, std::uint32_t other) {
  return psn_minus(psn, other) < 0;
}

// What a queue pair is made with; fixed until it is destroyed.
struct QpSetup {
  QpType type = QpType::rc;
  std::uint32_t domain = 0;
  std::uint32_t send_cq = 0;
  std::uint32_t receive_cq = 0;
  std::uint32_t srq = kNoSrq;
  std::uint32_t max_send = 1;
  std::uint32_t max_receive = 1;
  std::uint32_t max_send_sge = 1;
  std::uint32_t max_receive_sge = 1;
  std::uint32_t max_inline = 0;
  bool signal_all = false;
};

// One thing that the responder still has to send, in this order.
struct Response {
  enum class Kind : std::uint8_t { acknowledge, read, atomic, written };
  Kind kind = Kind::acknowledge;
  std::uint8_t syndrome = 0;
  std::uint32_t psn = 0;  // read: of the next packet
  std::uint32_t msn = 0;
  // read
  std::uint32_t first_psn = 0;  // of the READ as it was first asked for
  std::uint32_t last_psn = 0;
  std::uint64_t address = 0;
  std::uint32_t left = 0;
  std::uint32_t rkey = 0;
  std::uint64_t original = 0;  // atomic
};

// What a READ or atomic leaves behind, for the case that its answer is lost and it is asked for
// again by the same PSN. Kept until as many later ones have come.
struct Resource {
  bool used = false;
  bool is_read = false;
  bool is_written = false;  // an atomic write, whose answer is a READ's of no bytes
  std::uint32_t first_psn = 0;
  std::uint32_t last_psn = 0;
  std::uint64_t address = 0;
  std::uint32_t length = 0;
  std::uint32_t rkey = 0;
  std::uint64_t original = 0;
};

// The sending side: acked <= send_psn <= sent_end, by PSN. What lies between acked and sent_end has
// been sent and may have to be sent again; send_psn goes back to acked when it is.
struct Requester {
  std::uint64_t next = 0;      // position of the request whose packets are sent next
  std::uint32_t send_psn = 0;  // of the next packet
  std::uint32_t sent_end = 0;  // no packet from here on has ever been sent
  std::uint32_t acked = 0;     // the oldest PSN that is not acknowledged
  std::uint32_t reads = 0;     // READs and atomics under way
  std::uint32_t unasked = 0;   // packets since the last that asked for an acknowledgement
  std::uint8_t retries_left = 0;
  std::uint8_t rnr_left = 0;
  bool retry_started = false;           // and nothing has come of it yet
  bool rnr_told = false;                // of `acked`
  WcStatus failed = WcStatus::success;  // of the request at `next`, told when those before it are
  TimePoint retransmit_at = kNever;
  TimePoint rnr_until = kNever;
  TimePoint pace_at = kNever;
};

// The receiving side: what is expected next, the message that is under way, and answers that wait
// for their turn.
struct Responder {
  enum class Message : std::uint8_t { none, send, write };
  std::uint32_t expected = 0;
  std::uint32_t acknowledged = 0;  // of the newest packet of a SEND or WRITE that was executed
  std::uint32_t msn = 0;
  Message message = Message::none;
  bool nak_sent = false;  // nothing more is said until the expected packet comes
  bool has_receive = false;
  bool dropping = false;  // UC: the rest of a message that lost a packet
  Receive receive;
  std::uint32_t placed = 0;         // bytes of the message
  std::uint64_t write_address = 0;  // of the next byte
  std::uint32_t write_left = 0;
  std::uint32_t write_rkey = 0;
  std::vector<Resource> resources;  // a ring; as many as max_dest_reads
  std::uint32_t next_resource = 0;
  RingQueue<Response> responses{kMaxResponses};
  bool ack_due = false;  // after all responses; a later one takes its place
  std::uint32_t ack_psn = 0;

  static constexpr std::size_t kMaxResponses = 512;
};

// Everything of one queue pair, in one allocation; a reset makes a new one.
struct QpContext {
  QpContext(std::uint32_t number, const QpSetup& request)
      : qpn(number),
        type(request.type),
        made(request),
        send_queue(request.max_send, request.max_send_sge, request.max_inline),
        receive_queue(request.max_receive, request.max_receive_sge) {}

  std::uint32_t qpn;
  QpType type;
  QpSetup made;
  QpAttributes attributes;  // its state among them
  std::uint32_t mtu = 256;
  SendQueue send_queue;
  ReceiveQueue receive_queue;
  Requester req;
  Responder resp;
  bool ready = false;           // it is in the list of those that may have something to send
  bool moved = false;           // it is in the list of those of which the owner is to be told
  bool responded_last = false;  // whose turn it is: see Engine::transmit()
  bool established = false;     // the event has been raised, or is not due
  bool drained = false;         // SQD: all that was begun is over
  bool notify_peer_of_congestion = false;
  TimePoint notified_at = kNever;  // when the last such notification left
  RateControl rate;

  [[nodiscard]] QpState state() const { return attributes.state; }
};

}  // namespace weft::roce
