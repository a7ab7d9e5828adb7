// Owns the account of all requests of a run, the memory they are about, and the rules that no run
// may break.
#pragma once

#include <cstdint>
#include <deque>
#include <set>
#include <string>
#include <vector>

#include "emu/roce/swarm/plan.hpp"

namespace weft::roce::swarm {

// Each request has a slot of memory of its own at both ends, so that each byte there has one
// author.
inline constexpr std::uint32_t kSlot = 2304;            // bytes of memory for one request
inline constexpr std::uint32_t kMaxMessageSize = 2000;  // of what fits a receive
inline constexpr std::uint32_t kReceiveSize = kMaxMessageSize + kGrhSize;
inline constexpr std::uint64_t kReceiveId = std::uint64_t{1}
                                            << 40;  // wr_ids of receives begin here
inline constexpr std::byte kBlank{0xEE};

// Registered memory with a margin to which no peer may write.
class GuardedBuffer {
 public:
  static constexpr std::size_t kMargin = 64;
  explicit GuardedBuffer(std::size_t size) : bytes_(size + 2 * kMargin, kBlank) {}
  [[nodiscard]] std::byte* at(std::size_t offset) { return bytes_.data() + kMargin + offset; }
  [[nodiscard]] std::uint64_t address(std::size_t offset) {
    return reinterpret_cast<std::uint64_t>(at(offset));
  }
  [[nodiscard]] std::size_t size() const { return bytes_.size() - 2 * kMargin; }
  [[nodiscard]] bool margins_intact() const;

 private:
  std::vector<std::byte> bytes_;
};

enum class Kind : std::uint8_t {
  send,
  write,
  write_immediate,
  read,
  add,        // atomic
  read_back,  // of a slot ...
  copy,       // ... that a fenced write sends on
  bind,       // of a memory window, which has no packet
  bad_key,    // a write with a key that was never given out
  read_only,  // a write to memory that may only be read
  outside,    // a write that ends behind its region
  too_long,   // a send that no receive holds
  bad_local,  // a write from memory that is not registered
};

// A request that was posted, and what became of it.
struct PostedRequest {
  std::uint32_t number = 0;
  std::uint32_t connection = 0;
  std::uint32_t end = 0;
  std::uint32_t slot = 0;
  Kind kind = Kind::send;
  std::uint32_t length = 0;
  std::uint32_t pattern = 0;  // number of the request whose bytes these are
  bool done = false;
  bool succeeded = false;
  std::uint32_t deliveries = 0;
};

struct PostedReceive {
  std::uint32_t host = 0;
  std::uint32_t qpn = 0;  // 0: of the SRQ
  std::uint32_t slot = 0;
  bool done = false;
};

// One end of a connection: what it has posted, heard and where its memory is.
struct End {
  std::uint32_t host = 0;
  std::uint32_t qpn = 0;
  std::uint32_t posted = 0;     // steps
  std::uint32_t next_slot = 1;  // slot 0 holds the counter
  std::uint32_t open = 0;
  std::uint32_t receives = 0;    // posted, not completed
  bool ended = false;            // a completion has said that its queue pair is in error
  bool warned = false;           // an event has, or the application; what completed before may come
  std::uint32_t last_sent = 0;   // number of the last completed request
  std::uint32_t last_heard = 0;  // of the last delivered one
  std::uint64_t last_receive = 0;
  // Of the requests of this end: where their data comes from, and what they are about at the peer.
  GuardedBuffer local;
  GuardedBuffer target;
  GuardedBuffer read_only;
  std::uint32_t local_key = 0;
  std::uint32_t target_key = 0;
  std::uint32_t read_only_key = 0;
  std::uint32_t window = 0;           // the key that it has when all binds are done
  std::set<std::uint64_t> originals;  // values that its atomics have found: each only once
  std::uint32_t adds = 0;
  explicit End(std::uint32_t steps)
      : local(std::size_t{steps * 2 + 2} * kSlot),
        target(std::size_t{steps * 2 + 2} * kSlot),
        read_only(kSlot) {}
};

// Both ends of a connection; end 1 is the peer of end 0.
struct Connection {
  ConnectionPlan plan;
  std::vector<End> ends;
};

[[nodiscard]] std::byte content(std::uint32_t number, std::size_t at);
void paint(std::byte* to, std::uint32_t number, std::size_t length);
[[nodiscard]] bool is_painted(const std::byte* at, std::uint32_t number, std::size_t length);

// Told of everything that applications see; judges at once, and once more at the end.
class Judge {
 public:
  Judge(const Plan& plan, const World& world) : plan_(plan), world_(world) {}

  std::deque<Connection> connections;
  std::deque<PostedRequest> requests;  // number 1 is the first
  std::deque<PostedReceive> receives;
  std::vector<GuardedBuffer> receive_memory;  // by host

  // The first rule that was broken, or empty.
  [[nodiscard]] const std::string& verdict() const { return verdict_; }
  void condemn(const std::string& text);
  [[nodiscard]] PostedRequest& request(std::uint64_t number) { return requests[number - 1]; }
  [[nodiscard]] End* end_of(std::uint32_t host, std::uint32_t qpn);

  void heard_event(std::uint32_t host, const Event& event);
  void completed(std::uint32_t host, const Completion& completion);
  void check_at_the_end();

 private:
  void completed_request(std::uint32_t host, const Completion& completion);
  void completed_receive(std::uint32_t host, const Completion& completion);
  void check_success(PostedRequest& request, End& end);
  void check_message(const Completion& completion, End& end, const PostedReceive& receive);
  [[nodiscard]] bool explained(const PostedRequest& request, WcStatus status);
  [[nodiscard]] bool ran_out_of_retries(const Connection& connection, std::uint32_t end) const;
  [[nodiscard]] bool ran_out_of_patience(const Connection& connection, const End& peer) const;
  void check_unheard();
  void check_receives();
  void check_slots(Connection& connection, std::uint32_t end);
  [[nodiscard]] std::string name(const PostedRequest& request) const;

  const Plan& plan_;
  const World& world_;
  std::string verdict_;
};

}  // namespace weft::roce::swarm
