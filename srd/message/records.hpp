// Owns what a messenger remembers: other messengers, messages on their way out and in.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "srd/base/slab.hpp"
#include "srd/message/header.hpp"
#include "srd/message/messages.hpp"

namespace weft::srd::message {

inline constexpr std::uint32_t kNone = 0xFFFFFFFF;

// How many sequence numbers of one sender may be under way at a time. It bounds the messages that a
// receiver holds because they came before their turn; both ends must have the same value.
inline constexpr std::uint32_t kOrderWindow = 256;

// Unanswered requests to one messenger: messages for which it has no receive yet. An eager message
// that was refused and became a request is sent even beyond this limit: the requests that fill it
// may come after that message in the order, and would keep it out for ever.
inline constexpr std::uint32_t kMaxRequests = 64;
inline constexpr std::uint32_t kMaxRequestsHeld = kMaxRequests + kOrderWindow;

// A message, write or read on its way out, from post to completion. A failed one completes only
// when the engine has given its memory back.
struct SendRecord {
  enum class Kind : std::uint8_t { none, message, write, read };

  std::uint64_t cookie = 0;
  std::uint64_t tag = 0;
  const std::byte* data = nullptr;
  std::uint32_t length = 0;
  std::uint32_t immediate = 0;
  std::uint32_t qkey = 0;
  std::uint32_t partner = kNone;
  std::uint32_t restarts = 0;  // write, read: of the peer, when posted
  std::uint32_t sequence = 0;
  std::uint32_t next = kNone;    // in its partner's queue
  std::uint32_t before = kNone;  // in its partner's list of messages under way
  std::uint32_t after = kNone;
  std::uint32_t number = 0;  // on the wire, of a message that the receiver reads
  RegionKey region;          // what the receiver reads
  Kind kind = Kind::none;
  Status status = Status::ok;  // otherwise: failed, but still in the engine
  Status answer = Status::ok;  // from the receiver
  bool has_immediate = false;
  bool request = false;  // the receiver reads the bytes
  bool numbered = false;
  bool converted = false;  // to a request, because as an eager message it was refused
  bool in_engine = false;  // which therefore uses `header` and `data`
  bool answered = false;
  bool parked = false;  // the request has arrived: nothing is under way until the answer
  Header header;
};

// The address at which a receiver reads the bytes of a request. Region keys are used again: with
// the key alone, a late receiver could read the bytes of a later message.
[[nodiscard]] constexpr std::uint64_t address_of_message(std::uint32_t number) {
  return std::uint64_t{number} << 32;
}

// A posted receive; later the read that fills it; then the answer to the sender.
struct ReceiveRecord {
  enum class State : std::uint8_t { free, posted, reading, answering };

  std::uint64_t cookie = 0;
  std::uint64_t tag = 0;
  std::uint64_t ignore = 0;
  std::uint64_t from = 0;  // key_of() of the only sender wanted
  std::byte* data = nullptr;
  std::uint32_t capacity = 0;
  bool any_source = true;
  bool waits = false;      // for room in the engine
  std::uint8_t tries = 0;  // of the answer
  State state = State::free;
  std::uint32_t partner = kNone;  // kNone: an answer without a receive
  MessageAddress to;              // where the answer goes
  Header header;                  // of the message, then of the answer
};

// A message that has arrived and has no receive yet.
struct Arrival {
  Header header;
  std::uint32_t partner = kNone;
  std::uint32_t buffer = kNone;  // eager: where its bytes are

  [[nodiscard]] bool is_request() const {
    return header.kind == static_cast<std::uint8_t>(Kind::request);
  }
};

// FIFO of sends through SendRecord::next.
class SendQueue {
 public:
  [[nodiscard]] bool empty() const { return head_ == kNone; }
  [[nodiscard]] std::uint32_t front() const { return head_; }
  void push(Slab<SendRecord>& sends, std::uint32_t index) {
    sends[index].next = kNone;
    (empty() ? head_ : sends[tail_].next) = index;
    tail_ = index;
  }
  void pop(const Slab<SendRecord>& sends) { head_ = sends[head_].next; }
  void clear() { head_ = kNone; }

 private:
  std::uint32_t head_ = kNone;
  std::uint32_t tail_ = kNone;
};

// Sends in the order in which they were posted, linked through SendRecord::before and ::after, so
// that any of them can be taken out.
class SendList {
 public:
  [[nodiscard]] bool empty() const { return first_ == kNone; }
  [[nodiscard]] std::uint32_t first() const { return first_; }
  void push(Slab<SendRecord>& sends, std::uint32_t index) {
    sends[index].before = last_;
    sends[index].after = kNone;
    (empty() ? first_ : sends[last_].after) = index;
    last_ = index;
  }
  void take(Slab<SendRecord>& sends, std::uint32_t index) {
    const SendRecord& record = sends[index];
    (record.before == kNone ? first_ : sends[record.before].after) = record.after;
    (record.after == kNone ? last_ : sends[record.after].before) = record.before;
  }

 private:
  std::uint32_t first_ = kNone;
  std::uint32_t last_ = kNone;
};

// Another messenger: what we send to it and what we receive from it.
struct Partner {
  MessageAddress address;

  // --- What we send
  std::uint32_t restarts = 0;  // of the peer, when the epoch began
  std::uint32_t epoch = 0;
  std::uint32_t next_sequence = 0;
  std::uint32_t oldest = 0;                                // sequence that has not arrived
  std::array<std::uint64_t, kOrderWindow / 64> arrived{};  // by sequence, from `oldest` on
  SendList under_way;                                      // messages that have not failed
  SendQueue waiting;                                       // for their turn
  SendQueue converting;                                    // numbered, to go out as requests
  std::uint32_t next_number = 0;                           // of the next request
  std::uint32_t requests = 0;                              // not answered
  std::uint32_t converted = 0;                             // of these
  std::uint32_t parked = 0;  // requests that have arrived and are not answered
  bool watched = false;      // the engine asks from time to time whether it lives
  bool stalled = false;      // the engine had no room

  // --- What we receive
  bool heard = false;
  std::uint32_t their_life = 0;
  std::uint32_t their_epoch = 0;
  std::uint32_t expected = 0;        // sequence whose turn it is
  std::vector<std::uint32_t> early;  // arrivals before their turn, by sequence; made when needed
  std::uint32_t requests_held = 0;   // among the arrivals without a receive
};

}  // namespace weft::srd::message
