// Owns what both ends of a connection have in common: names, life, registered memory, requests.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "integration/nccl/core/control_wire.hpp"
#include "srd/engine/engine.hpp"

namespace weft::nccl {

// How a call or a request ends; NCCL's results.
enum class Outcome : std::uint8_t {
  ok,
  system_error,
  internal_error,
  invalid_argument,
  invalid_usage,
  remote_error,
};

// The caller holds a pointer to it from the post until test() has told the end. A request changes
// hands by its state: the caller's thread takes a free one and frees it; in between only the core,
// under its lock, ends it. The state is therefore atomic, and what it guards is written before it.
struct Request {
  enum class State : std::uint8_t { free, pending, done, failed };
  std::atomic<State> state{State::free};
  Outcome outcome = Outcome::ok;  // of a failed one
  // Of messages; `sizes` says in bytes how long each was.
  std::uint8_t count = 1;
  std::array<std::uint32_t, kMaxGroup> sizes{};
  void* owner = nullptr;  // of the core, for the caller

  void end(Outcome how) {
    outcome = how;
    state.store(how == Outcome::ok ? State::done : State::failed, std::memory_order_release);
  }
};

// Memory that was registered for one connection. The key is of this connection alone: when it goes,
// no partner can write there through it, whatever other connections have registered. What is only
// sent has no key.
struct CommRegion {
  srd::RegionKey key;
  std::byte* data = nullptr;
  std::size_t size = 0;
  std::uint32_t uses = 0;

  [[nodiscard]] bool holds(const std::byte* begin, std::size_t length) const {
    const auto offset =
        reinterpret_cast<std::uintptr_t>(begin) - reinterpret_cast<std::uintptr_t>(data);
    return offset <= size && length <= size - offset;
  }
};

// Where the other plugin is.
struct RemoteEnd {
  srd::PeerId peer;
  srd::Qpn control;  // and, at the next numbers, its endpoints for data and for watching
  std::uint32_t qkey = 0;

  [[nodiscard]] srd::Qpn data() const { return srd::Qpn{control.value() + 1}; }
  [[nodiscard]] srd::Qpn watch() const { return srd::Qpn{control.value() + 2}; }
  [[nodiscard]] bool operator==(const RemoteEnd&) const = default;
};

// For WEFT_NCCL_REPORT, and for tests. Only the core counts, under its lock.
struct CoreCounters {
  std::uint64_t sends = 0;
  std::uint64_t receives = 0;
  std::uint64_t sent_bytes = 0;
  std::uint64_t received_bytes = 0;
  std::uint64_t eager = 0;         // sends that did not wait for a buffer
  std::uint64_t early = 0;         // receives whose completion was told early
  std::uint64_t sends_waited = 0;  // sends that found no announced buffer
  std::uint64_t overtaken = 0;     // messages complete before an earlier one of their connection
  std::uint64_t stray_immediates = 0;  // that name no buffer that waits
  std::uint64_t stray_controls = 0;    // for no connection of this process
  std::uint64_t malformed_controls = 0;
  std::uint64_t stalls = 0;  // the engine had no room for a write
  std::uint64_t failed_connections = 0;
};

// The state of one end. It outlives its closing until the engine holds no work of it, because a
// cookie names it by number. All of it belongs to the core's lock, but the requests' states.
struct Comm {
  enum class State : std::uint8_t {
    connecting,
    open,
    deserted,  // the other end was closed: what is under way ends, nothing new begins
    failed,
    closed,  // waits only for the engine to give its work back
  };

  std::uint16_t number = 0;
  std::uint32_t nonce = 0;
  RemoteEnd partner;
  std::uint16_t partner_number = 0;
  std::uint32_t partner_nonce = 0;
  std::uint32_t restarts = 0;  // of the partner's process when the connection was made
  State state = State::connecting;
  Outcome failure = Outcome::ok;
  void* owner = nullptr;

  std::uint32_t in_engine = 0;  // writes and eager messages that have not completed
  std::uint32_t pending = 0;    // requests that have not ended
  std::uint32_t ended = 0;      // counts; tells whether anything moves
  std::uint32_t ended_before = 0;
  std::vector<std::unique_ptr<CommRegion>> regions;

  [[nodiscard]] bool usable() const { return state == State::open || state == State::connecting; }
  // Whether the other end may be open and wait. It is if this one failed for what was done here.
  [[nodiscard]] bool owes_goodbye() const {
    return state == State::open || (state == State::failed && failure == Outcome::invalid_usage);
  }
  [[nodiscard]] bool is(std::uint32_t other_nonce, srd::PeerId peer) const {
    return nonce == other_nonce && partner.peer == peer && state != State::closed;
  }
  // Of an end that is not open: what is posted to it is taken all the same, and its test tells.
  // Whether the other end was closed just before a post or just after it is chance, and must not
  // make a difference to the caller.
  void refuse(Request& request) {
    ++pending;
    end(request, state == State::failed ? failure : Outcome::remote_error);
  }
  [[nodiscard]] bool knows(const CommRegion* region) const;
  void end(Request& request, Outcome outcome) {
    --pending;
    ++ended;
    request.end(outcome);
  }
};

// Gives free requests, or nullptr if there is none. They are used in turn and not the first free
// one: so an old pointer that a caller tests once too often mostly finds a free request, and not
// another send's.
template <std::size_t kCount>
class RequestPool {
 public:
  [[nodiscard]] Request* take(void* owner) {
    for (std::size_t tried = 0; tried < kCount; ++tried) {
      Request& request = requests_[next_++ % kCount];
      if (request.state.load(std::memory_order_acquire) == Request::State::free) {
        request.owner = owner;
        request.state.store(Request::State::pending, std::memory_order_relaxed);
        return &request;
      }
    }
    return nullptr;
  }
  [[nodiscard]] std::size_t index_of(const Request& request) const {
    return static_cast<std::size_t>(&request - requests_.data());
  }
  [[nodiscard]] Request& operator[](std::size_t index) { return requests_[index]; }

 private:
  std::array<Request, kCount> requests_;
  std::size_t next_ = 0;
};

}  // namespace weft::nccl
