// Owns remote memory access between the members of a group: NCCL's puts, gets and signals.
//
// A group is made by all its members, who registered memory together: a window has a part at each
// member. A put is a write of the transport, a get a read. The network keeps no order, so a signal,
// which the other side's CPU adds to a word of its memory, leaves only when what it has to follow
// has been acknowledged: its own put (weak), or everything before it to that member (strong).
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "integration/nccl/core/core.hpp"
#include "integration/nccl/core/links.hpp"
#include "integration/nccl/core/rma_wire.hpp"
#include "srd/base/ring_queue.hpp"
#include "srd/base/rng.hpp"

namespace weft::nccl {

struct RmaConfig {
  CoreConfig nic;
  std::uint32_t part_bytes = srd::kMaxTransfer;  // of a put or get, at most, in one write or read
};

struct RmaCounters {
  std::uint64_t puts = 0;
  std::uint64_t gets = 0;
  std::uint64_t signals = 0;          // sent
  std::uint64_t signals_applied = 0;  // that came
  std::uint64_t signals_held = 0;     // strong ones that had to wait for others
  std::uint64_t stalls = 0;           // the engine had no room
  std::uint64_t malformed = 0;        // messages
  std::uint64_t strays = 0;           // messages that name nothing here, and all immediates
  std::uint64_t failed_members = 0;
};

// A stretch of a window at some member.
struct RmaPlace {
  std::uint32_t window = 0;
  std::uint64_t offset = 0;
};
struct RmaSignal {
  RmaPlace word;  // of 8 bytes, aligned to 8 in its window
  std::uint64_t value = 0;
  bool strong = true;
};

// How far a step is that all members take together.
enum class RmaStep : std::uint8_t { waits, done, failed };

// Pure, like Core. Groups, contexts and windows are named by numbers; a number that names nothing
// is refused. Requests are taken and given back under the caller's lock.
class Rma {
 public:
  [[nodiscard]] static Result<std::unique_ptr<Rma>> create(srd::Engine& engine,
                                                           const RmaConfig& config);
  ~Rma() { links_.close(); }
  Rma(const Rma&) = delete;
  Rma& operator=(const Rma&) = delete;

  // --- Driving it: every completion of one of its endpoints, and then progress().
  [[nodiscard]] bool owns(srd::Qpn endpoint) const {
    return endpoint.value() - links_.control().value() < kEndpoints;
  }
  void take(const srd::Completion& completion);
  void progress(TimePoint now);
  [[nodiscard]] TimePoint next_timeout() const { return next_check_; }
  [[nodiscard]] bool has_groups() const { return !groups_.empty(); }
  // No message waits for room.
  [[nodiscard]] bool idle() const { return outbox_.empty(); }
  [[nodiscard]] const RmaCounters& counters() const { return counters_; }

  // --- Groups. All members call join() with the handles of all; `listener` is the own one.
  [[nodiscard]] std::uint32_t listen(ListenHandle& handle);
  // Members that have joined it are told that its group will never be.
  void close_listener(std::uint32_t listener);
  [[nodiscard]] Outcome join(std::span<const ListenHandle> handles, std::uint32_t rank,
                             std::uint32_t listener, std::uint16_t& group);
  [[nodiscard]] RmaStep joined(std::uint16_t group);
  // Afterwards no memory that was lent or registered for it is touched.
  void close(std::uint16_t group);
  [[nodiscard]] bool has_failed(std::uint16_t group);
  [[nodiscard]] Outcome failure_of(std::uint16_t group);

  // --- Windows. All members register in the same order. `data` is null for a member that cannot
  // take part: then the window fails at all of them.
  [[nodiscard]] Outcome register_window(std::uint16_t group, std::byte* data, std::size_t size,
                                        std::uint32_t& window);
  [[nodiscard]] RmaStep registered(std::uint16_t group, std::uint32_t window);
  // Of this member alone. Afterwards its memory is not touched.
  [[nodiscard]] bool deregister(std::uint16_t group, std::uint32_t window);

  // --- Contexts: an order of their own for strong signals. `stride`: only ranks at multiples of it
  // from the own one are reached.
  [[nodiscard]] Outcome create_context(std::uint16_t group, std::uint32_t stride,
                                       std::uint32_t& context);
  void destroy_context(std::uint16_t group, std::uint32_t context);

  // --- Operations. `out` is null if so many are under way to that member that there is no room.
  [[nodiscard]] Outcome put(std::uint16_t group, std::uint32_t context, std::uint32_t rank,
                            RmaPlace from, std::size_t size, RmaPlace to,
                            const std::optional<RmaSignal>& signal, Request*& out);
  [[nodiscard]] Outcome get(std::uint16_t group, std::uint32_t context, std::uint32_t rank,
                            RmaPlace from, std::size_t size, RmaPlace to, Request*& out);
  // The caller has seen the request's end, and forgets it.
  void release(Request& request);

  static constexpr std::size_t kMaxOutstanding = 256;  // of a context and a member

 private:
  static constexpr Duration kCheckEvery = std::chrono::milliseconds{50};
  static constexpr Duration kAskEvery = std::chrono::seconds{1};
  static constexpr std::uint32_t kMaxRanks = 1U << 16;
  static constexpr std::uint32_t kEarlyWindows = 4;  // that others may be ahead of us

  struct Identity {
    std::uint16_t number = 0;
    std::uint32_t nonce = 0;
    [[nodiscard]] bool operator==(const Identity&) const = default;
  };
  // Who has joined a listener's group so far, by rank.
  struct Join {
    RemoteEnd partner;
    Identity group;
    std::uint64_t ranks = 0;
    std::uint32_t as = 0;  // the rank that we have for it
  };
  struct Listener {
    std::uint64_t secret = 0;
    std::map<std::uint32_t, Join> joins;
  };
  // What we know of another member. Nothing may be sent to its windows before it has told its name
  // (`joined`), and join() is not over before it knows ours (`told`).
  struct Member {
    RemoteEnd partner;
    Identity group;  // its own name for it
    std::uint32_t restarts = 0;
    bool joined = false;  // it has told its name ...
    bool told = false;    // ... and knows ours
    ListenHandle handle;  // of its listener, while it is being told
    bool left = false;
    bool rejected = false;  // what it sent, once: that fails its group for good
    bool asked = false;     // whether it is alive; the answer is under way
    TimePoint ask_next{};
    std::optional<Outcome> failure;
  };
  // One member's part of a window.
  struct Part {
    bool known = false;
    bool missing = false;
    std::uint64_t address = 0;
    std::uint64_t size = 0;
    srd::RegionKey key;
  };
  struct Window {
    std::byte* data = nullptr;
    std::size_t size = 0;
    srd::RegionKey key;
    std::vector<Part> parts;  // by rank
    [[nodiscard]] bool holds(std::uint64_t offset, std::uint64_t length) const {
      return offset <= size && length <= size - offset;
    }
  };
  // The order of one context towards one member: operations that have not ended, oldest first.
  struct Channel {
    std::deque<std::uint32_t> operations;
    std::size_t posted = 0;  // so many from the front are with the engine entirely
    bool stalled = false;
  };
  struct Context {
    std::uint32_t stride = 1;
    std::vector<Channel> channels;  // by rank
  };
  struct Group {
    Identity name;
    std::uint32_t rank = 0;
    std::uint32_t listener = 0;
    std::uint64_t secret = 0;
    std::optional<Outcome> failure;
    std::vector<Member> members;
    std::map<std::uint32_t, Window> windows;
    std::uint32_t next_window = 1;
    std::map<std::pair<std::uint32_t, std::uint32_t>, Part> early;  // by window and rank
    std::map<std::uint32_t, Context> contexts;
    std::uint32_t next_context = 0;
  };
  enum class Stage : std::uint8_t { moving, moved, signalled, ended };
  // Request is what the caller tests; the rest is ours. Three parties refer to a slot: the caller
  // until release(), the engine while `in_engine` is not 0, the channel while `listed`. Only when
  // all three have let go may it be used again (recycle()).
  struct Operation : Request {
    std::uint32_t slot = 0;
    bool released = true;  // by the caller
    bool listed = false;   // in its channel
    Identity group;
    std::uint32_t context = 0;
    std::uint32_t rank = 0;
    std::uint32_t window = 0;  // of the memory that is lent
    bool reads = false;
    Stage stage = Stage::ended;
    std::byte* local = nullptr;
    std::uint64_t size = 0;
    std::uint64_t posted = 0;
    std::uint32_t in_engine = 0;  // parts, or the signal
    std::uint64_t address = 0;
    srd::RegionKey key;
    std::optional<RmaSignal> signal;
  };
  // What a message was for, to be known when it has been acknowledged or has failed.
  struct Purpose {
    RmaKind kind{};
    Identity group;
    std::uint32_t rank = 0;
    std::uint32_t operation = 0;
  };
  // A message that waits for a control buffer. Letters leave in order, all members together.
  struct Letter {
    RemoteEnd to;
    RmaMessage message;
    Purpose purpose;
  };
  struct Watch {
    bool under_way = false;
    bool wanted = false;
    RemoteEnd partner;  // to which it is under way
  };

  Rma(srd::Engine& engine, const RmaConfig& config);

  // rma_group.cpp
  [[nodiscard]] Group* find(std::uint16_t number);
  [[nodiscard]] Group* find(const Identity& name);
  [[nodiscard]] std::uint32_t restarts_of(srd::PeerId peer) const;
  void send(Group& group, std::uint32_t rank, RmaMessage message, std::uint32_t operation = 0);
  void post_outbox();
  void tell_join(Group& group, std::uint32_t rank);
  void fail_member(Group& group, std::uint32_t rank, Outcome outcome);
  // Those with this partner, or with anybody at its peer.
  void fail_all(const RemoteEnd& partner, bool at_peer);
  [[nodiscard]] static bool waits_for(const Group& group, std::uint32_t rank);
  void check(TimePoint now);
  void ask_members(TimePoint now);
  void notice_restarts();

  // rma_operations.cpp
  [[nodiscard]] Outcome admit(Group*& group, std::uint16_t number, std::uint32_t context,
                              std::uint32_t rank);
  [[nodiscard]] Operation& make_operation(Group& group, std::uint32_t context, std::uint32_t rank);
  void begin(Group& group, Operation& operation, Request*& out);
  [[nodiscard]] bool post_parts(Operation& operation, const RemoteEnd& partner);
  void advance(Group& group, std::uint32_t context, std::uint32_t rank);
  void on_moved(Group& group, Operation& operation);
  void send_signal(Group& group, Operation& operation);
  void end(Operation& operation, Outcome outcome);
  [[nodiscard]] bool is_full(const Channel& channel) const;
  void settle_front(Group& group, std::uint32_t context, std::uint32_t rank);
  void recycle(Operation& operation);
  void abandon(const Group& group, std::optional<std::uint32_t> context);
  [[nodiscard]] static bool add_to_word(const Window& window, std::uint64_t offset,
                                        std::uint64_t value);

  // rma_arrive.cpp
  void on_message(const srd::Completion& completion, std::span<const std::byte> bytes);
  void on_join(const srd::Completion& completion, const RmaMessage& message);
  [[nodiscard]] bool accept_join(Group& group, std::uint32_t rank, const Join& join);
  void on_window(Group& group, std::uint32_t rank, const RmaMessage& message);
  [[nodiscard]] bool on_signal(const Group& group, const RmaMessage& message);
  void reject(const srd::Completion& completion, const RmaMessage& message);
  void reject(const Join& join);
  void on_sent(const Purpose& purpose, srd::Status status);
  void on_signal_sent(Group* group, Operation& operation, srd::Status status);
  void on_part(std::uint32_t slot, srd::Status status);

  RmaConfig config_;
  Rng rng_;
  srd::Engine& engine_;
  Links links_;
  RmaCounters counters_;
  std::map<std::uint32_t, Listener> listeners_;
  std::uint32_t last_listener_ = 0;
  std::map<std::uint16_t, Group> groups_;
  std::uint16_t last_group_ = 0;
  std::deque<Operation> operations_;  // by slot
  std::vector<std::uint32_t> free_operations_;
  RingQueue<Letter> outbox_;
  std::vector<Purpose> sent_;  // by the buffer of the message
  // Channels for whose writes the engine had no room.
  struct Stalled {
    Identity group;
    std::uint32_t context = 0;
    std::uint32_t rank = 0;
  };
  RingQueue<Stalled> stalled_;
  std::map<std::uint32_t, Watch> watches_;  // by peer
  std::uint64_t seen_restarts_ = 0;
  TimePoint next_check_ = kNever;
};

}  // namespace weft::nccl
