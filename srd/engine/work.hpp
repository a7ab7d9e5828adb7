// Owns the engine's record of one work request, and the queues in which requests wait for the wire.
#pragma once

#include <cstdint>

#include "srd/base/prefetch.hpp"
#include "srd/base/slab.hpp"
#include "srd/base/time.hpp"
#include "srd/engine/requests.hpp"

namespace weft::srd {

enum class WorkKind : std::uint8_t { none, send, write, read, read_response };

// A read_response is the responder's own work: it streams the bytes of somebody else's read.
struct alignas(kCacheLine) Work {
  static constexpr std::uint32_t kNoPacket = 0xFFFFFFFF;

  SegmentList segments{};
  std::uint64_t remote_address = 0;
  std::uint64_t cookie = 0;
  PeerId peer;
  Qpn source;
  Qpn destination;
  std::uint32_t key = 0;  // Q_Key, or the remote region's key (read_response: the local one's)
  std::uint32_t immediate = 0;
  std::uint32_t length = 0;          // bytes of the message
  std::uint32_t packets = 0;         // that the message is cut into
  std::uint32_t next_packet = 0;     // first one that has not been sent yet
  std::uint32_t outstanding = 0;     // sequence numbers in the window that are not settled
  std::uint32_t received = 0;        // read: bytes that have come back
  std::uint32_t message = 0;         // number on the wire
  std::uint32_t next = 0xFFFFFFFF;   // in its queue
  std::uint32_t resend = kNoPacket;  // packet that was refused for now and must be sent once more
  TimePoint not_before{};  // back-off after receiver_not_ready or responder_busy; forced reorder
  std::uint16_t generation = 0;  // of this record, against responses to an earlier use of it
  std::uint16_t refusals = 0;    // receiver_not_ready or responder_busy answers so far
  WorkKind kind = WorkKind::none;
  Status status = Status::ok;
  std::uint8_t rnr_retry = kRnrRetryForever;
  bool has_immediate = false;
  bool phantom = false;
  bool queued = false;
  bool answered = false;   // read: all bytes are here, or the reason why not
  bool held_back = false;  // forced reorder has had its turn with this request
  bool revoked = false;    // its memory must not be read again

  // Makes a used record new; its generation goes on. Field by field: assigning a whole new record
  // costs several times as much.
  void begin(WorkKind what, PeerId to, Qpn from_endpoint, Qpn to_endpoint, std::uint32_t bytes) {
    for (Segment& segment : segments) {
      segment.data = nullptr;
      segment.length = 0;
    }
    remote_address = 0;
    cookie = 0;
    peer = to;
    source = from_endpoint;
    destination = to_endpoint;
    key = 0;
    immediate = 0;
    length = bytes;
    packets = 1;
    next_packet = 0;
    outstanding = 0;
    received = 0;
    message = 0;
    resend = kNoPacket;
    not_before = {};
    refusals = 0;
    kind = what;
    status = Status::ok;
    rnr_retry = kRnrRetryForever;
    has_immediate = false;
    phantom = false;
    queued = false;
    answered = false;
    held_back = false;
    revoked = false;
  }
  [[nodiscard]] bool all_sent() const { return next_packet == packets; }
  [[nodiscard]] bool is_response() const { return kind == WorkKind::read_response; }
};

using WorkSlab = Slab<Work>;

// FIFO linked through Work::next. Nothing is allocated.
class WorkQueue {
 public:
  [[nodiscard]] bool empty() const { return head_ == WorkSlab::kNone; }
  [[nodiscard]] std::uint32_t front() const { return head_; }

  void push_back(WorkSlab& works, std::uint32_t index) {
    works[index].next = WorkSlab::kNone;
    works[index].queued = true;
    if (empty()) {
      head_ = index;
    } else {
      works[tail_].next = index;
    }
    tail_ = index;
  }
  void push_front(WorkSlab& works, std::uint32_t index) {
    works[index].next = head_;
    works[index].queued = true;
    if (empty()) {
      tail_ = index;
    }
    head_ = index;
  }
  void pop_front(WorkSlab& works) {
    works[head_].queued = false;
    head_ = works[head_].next;
  }
  template <class Visit>
  void for_each(const WorkSlab& works, const Visit& visit) const {
    for (std::uint32_t index = head_; index != WorkSlab::kNone; index = works[index].next) {
      visit(index);
    }
  }
  // Takes out every request for which `condition(index)` holds; the order of the others stays.
  template <class Condition>
  void remove_if(WorkSlab& works, const Condition& condition) {
    WorkQueue kept;
    for (std::uint32_t index = head_; index != WorkSlab::kNone;) {
      const std::uint32_t following = works[index].next;
      if (condition(index)) {
        works[index].queued = false;
      } else {
        kept.push_back(works, index);
      }
      index = following;
    }
    *this = kept;
  }

 private:
  std::uint32_t head_ = WorkSlab::kNone;
  std::uint32_t tail_ = WorkSlab::kNone;
};

}  // namespace weft::srd
