// Owns the engine's record of one work request, and the queues in which requests wait for the wire.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "srd/base/index_chain.hpp"
#include "srd/base/prefetch.hpp"
#include "srd/base/slab.hpp"
#include "srd/base/time.hpp"
#include "srd/engine/mutation.hpp"
#include "srd/engine/requests.hpp"
#include "srd/wire/srd_header.hpp"

namespace weft::srd {

enum class WorkKind : std::uint8_t { none, send, write, read, read_response };

// The queues of a peer.
enum class Queue : std::uint8_t {
  singles,  // requests of one packet
  reads,    // read requests, which the peer accepts only so many of at a time
  bulk,     // requests and answers of many packets: the shortest, and one queue for each size class
  longest_bulk = bulk + 4,
  back_off,  // refused for now, for the first time; then one queue for each longer back-off
  longest_back_off = back_off + 6,
  held_back,  // forced reorder: each for a time of its own
  none,
};
static_assert(static_cast<std::uint32_t>(Queue::longest_bulk) -
                  static_cast<std::uint32_t>(Queue::bulk) + 1 ==
              wire::kSizeClasses);
inline constexpr std::uint32_t kBackOffs = static_cast<std::uint32_t>(Queue::longest_back_off) -
                                           static_cast<std::uint32_t>(Queue::back_off) + 1;

// A read_response is the responder's own work: it streams the bytes of a peer's read.
// Two cache lines: the order of the fields is that of their sizes.
struct alignas(kCacheLine) Work {
  static constexpr std::uint32_t kNoPacket = 0xFFFFFFFF;

  std::array<std::byte*, kMaxSegments> data{};
  std::uint64_t remote_address = 0;
  std::uint64_t cookie = 0;
  TimePoint not_before{};  // back-off after receiver_not_ready or responder_busy; forced reorder
  std::array<std::uint32_t, kMaxSegments> lengths{};  // of data
  PeerId peer;
  Qpn source;
  Qpn destination;
  std::uint32_t key = 0;  // Q_Key, or the remote region's key (read_response: the local one's)
  union {
    std::uint32_t immediate = 0;  // send, write
    std::uint32_t received;       // read: bytes that have come back
  };
  std::uint32_t length = 0;          // bytes of the message
  std::uint32_t packets = 0;         // that the message is cut into
  std::uint32_t next_packet = 0;     // first one that has not been sent yet
  std::uint32_t message = 0;         // number on the wire
  std::uint32_t resend = kNoPacket;  // packet that was refused for now and must be sent once more
  ChainLinks in_queue;
  ChainLinks of_peer;
  ChainLinks of_endpoint;         // read_response: among those of muted peers
  std::uint16_t outstanding = 0;  // sequence numbers in the window that are not settled
  std::uint16_t first_psn = 0;    // the lower half of the oldest of these, or of an older one
  std::uint16_t refusals = 0;     // receiver_not_ready or responder_busy answers so far
  WorkKind kind = WorkKind::none;
  Status status = Status::ok;
  std::uint8_t rnr_retry = kRnrRetryForever;
  Queue queue = Queue::none;  // that it is in
  bool has_immediate = false;
  bool phantom = false;
  bool answered = false;   // read: all bytes are here, or the reason why not
  bool held_back = false;  // forced reorder has had its turn with this request
  bool revoked = false;    // its memory must not be read again

  // Makes a used record new. Field by field: assigning a whole new record costs several times as
  // much.
  void begin(WorkKind what, PeerId to, Qpn from_endpoint, Qpn to_endpoint, std::uint32_t bytes) {
    lengths = {};
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
    message = 0;
    resend = kNoPacket;
    not_before = {};
    refusals = 0;
    kind = what;
    status = Status::ok;
    rnr_retry = kRnrRetryForever;
    queue = Queue::none;
    has_immediate = false;
    phantom = false;
    answered = false;
    held_back = false;
    revoked = false;
  }
  [[nodiscard]] SegmentList segments() const {
    SegmentList list;
    for (std::size_t i = 0; i < list.size(); ++i) {
      list[i] = {data[i], lengths[i]};
    }
    return list;
  }
  // The part of its memory that holds `count` of its bytes from `offset` on. `parts` must be empty.
  void slice(std::uint32_t offset, std::uint32_t count,
             std::array<std::span<const std::byte>, kMaxSegments>& parts) const {
    static_assert(kMaxSegments == 2);
    if (offset + count <= lengths[0]) [[likely]] {
      parts[0] = {data[0] + offset, count};
    } else if (offset >= lengths[0]) {
      parts[0] = {data[1] + (offset - lengths[0]), count};
    } else {
      parts[0] = {data[0] + offset, lengths[0] - offset};
      parts[1] = {data[1], count - (lengths[0] - offset)};
    }
  }
  [[nodiscard]] bool queued() const { return queue != Queue::none; }
  [[nodiscard]] bool all_sent() const { return next_packet == packets; }
  [[nodiscard]] bool is_response() const { return kind == WorkKind::read_response; }
};
static_assert(sizeof(Work) == 2 * kCacheLine);

using WorkSlab = Slab<Work>;

// Work of one owner, the oldest first, counted: requests of ours, and answers to peers' reads.
template <ChainLinks Work::*kLinks>
class WorkList {
 public:
  [[nodiscard]] std::uint32_t requests() const { return requests_; }
  [[nodiscard]] std::uint32_t responses() const { return responses_; }

  // `work` is works[index] and has begun, in these.
  void add(WorkSlab& works, std::uint32_t index, Work& work) {
    chain_.push_back(works, index, work);
    ++(work.is_response() ? responses_ : requests_);
  }
  void remove(WorkSlab& works, std::uint32_t index, const Work& work) {
    chain_.remove(works, index, work);
    --(work.is_response() ? responses_ : requests_);
  }
  // visit(index) may take that work out, but no other.
  template <class Visit>
  void for_each(const WorkSlab& works, const Visit& visit) const {
    chain_.for_each(works, visit);
  }

 private:
  IndexChain<WorkSlab, Work, kLinks> chain_;
  std::uint32_t requests_ = 0;
  std::uint32_t responses_ = 0;
};
using PeerWorks = WorkList<&Work::of_peer>;
using EndpointWorks = WorkList<&Work::of_endpoint>;
using MutedResponses = IndexChain<WorkSlab, Work, &Work::of_endpoint>;

// Sets of queues: one, and all from one to another.
[[nodiscard]] constexpr std::uint32_t bit_of(Queue queue) {
  return 1U << static_cast<std::uint32_t>(queue);
}
[[nodiscard]] constexpr std::uint32_t bits_of(Queue first, Queue last) {
  return 2 * bit_of(last) - bit_of(first);
}

// All queues of one peer; a request is in one of them at most.
class WorkQueues {
 public:
  [[nodiscard]] bool empty(Queue queue) const { return (filled_ & bit_of(queue)) == 0; }
  [[nodiscard]] std::uint32_t front(Queue queue) const { return at(queue).front(); }
  // Something waits for nothing but its turn.
  [[nodiscard]] bool has_ready() const {
    return (filled_ & (bit_of(Queue::singles) | bit_of(Queue::reads) | kBulk)) != 0;
  }
  [[nodiscard]] bool has_bulk() const { return (filled_ & kBulk) != 0; }
  // Something was refused, and waits for its time.
  [[nodiscard]] bool has_refused() const { return (filled_ & kRefused) != 0; }
  // Where a request of so many packets and bytes waits for its turn.
  [[nodiscard]] static Queue queue_for(std::uint32_t packets, std::uint32_t bytes) {
    return packets == 1 ? Queue::singles : bulk_queue(wire::size_class(bytes));
  }
  // Which of the bulk queues is next; there must be one. Of those that are not empty the one with
  // the shortest messages has every second turn, the next one every second of the others, and so
  // on; the last one has the rest. So the shorter a message, the sooner it is through, and with all
  // five busy the longest ones still have every sixteenth turn.
  [[nodiscard]] Queue next_bulk() {
    std::uint32_t candidates = (filled_ & kBulk) >> static_cast<std::uint32_t>(Queue::bulk);
    if ((candidates & (candidates - 1)) != 0) {
      bulk_turn_ = mutated(Mutation::shortest_bulk_first)
                       ? std::uint8_t{1}
                       : static_cast<std::uint8_t>(bulk_turn_ + 1);
      for (std::uint32_t turn = bulk_turn_; (turn & 1) == 0 && (candidates & (candidates - 1)) != 0;
           turn >>= 1) {
        candidates &= candidates - 1;
      }
    }
    return bulk_queue(static_cast<std::uint32_t>(std::countr_zero(candidates)));
  }
  // The queue for works that were refused for the n-th time, counted from 0. All in it wait equally
  // long, so the first one is due first.
  [[nodiscard]] static Queue back_off(std::uint32_t n) {
    return static_cast<Queue>(static_cast<std::uint32_t>(Queue::back_off) +
                              std::min(n, kBackOffs - 1));
  }

  // `work` is works[index].
  void push_back(WorkSlab& works, Queue queue, std::uint32_t index, Work& work) {
    work.queue = queue;
    at(queue).push_back(works, index, work);
    filled_ |= bit_of(queue);
  }
  void push_front(WorkSlab& works, Queue queue, std::uint32_t index, Work& work) {
    work.queue = queue;
    at(queue).push_front(works, index, work);
    filled_ |= bit_of(queue);
  }
  // Out of the queue that it is in.
  void remove(WorkSlab& works, std::uint32_t index, Work& work) {
    const Queue queue = work.queue;
    at(queue).remove(works, index, work);
    work.queue = Queue::none;
    filled_ &= at(queue).empty() ? ~bit_of(queue) : ~0U;
  }
  template <class Visit>
  void for_each(const WorkSlab& works, Queue queue, const Visit& visit) const {
    at(queue).for_each(works, visit);
  }

 private:
  using Chain = IndexChain<WorkSlab, Work, &Work::in_queue>;

  static constexpr std::uint32_t kBulk = bits_of(Queue::bulk, Queue::longest_bulk);
  static constexpr std::uint32_t kRefused = bits_of(Queue::back_off, Queue::longest_back_off);

  [[nodiscard]] Chain& at(Queue queue) { return chains_[static_cast<std::size_t>(queue)]; }
  [[nodiscard]] const Chain& at(Queue queue) const {
    return chains_[static_cast<std::size_t>(queue)];
  }

  [[nodiscard]] static Queue bulk_queue(std::uint32_t size_class) {
    return static_cast<Queue>(static_cast<std::uint32_t>(Queue::bulk) + size_class);
  }
  std::uint32_t filled_ = 0;  // one bit for each queue that is not empty
  std::uint8_t bulk_turn_ = 0;
  std::array<Chain, static_cast<std::size_t>(Queue::none)> chains_;
};

}  // namespace weft::srd
