// Owns the ids of connection management of one process, and the messages that they exchange with
// other processes over queue pair 1 of the host's NICs.
//
// It is driven like a Machine: no clock, thread or lock in it, and `now` never goes backwards. The
// owner makes all calls from one thread at a time, and after each of them, or after several:
//   1. on_mad() for each message that has arrived;
//   2. on_timeout(), if next_timeout() has passed;
//   3. next_mad() until it returns false: what goes to an id of this manager itself turns round in
//      there, so that this comes before
//   4. next_event() until it returns false;
//   5. next_timeout(), to know when the next round is due at the latest.
// Calls of programs return 0 or an errno, as the kernel's calls do; handles must be valid.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "emu/roce/cm/attributes.hpp"
#include "emu/roce/cm/connection.hpp"
#include "emu/roce/cm/mutation.hpp"
#include "emu/roce/cm/ports.hpp"
#include "emu/roce/cm/types.hpp"
#include "srd/base/deadline_heap.hpp"
#include "srd/base/flat_map.hpp"
#include "srd/base/rng.hpp"
#include "srd/base/slab.hpp"

namespace weft::roce::cm {

// Whether there is a way to a NIC. The owner implements it.
class Reachability {
 public:
  // 0, or an errno that the event ADDR_ERROR is to say: ENETUNREACH, EHOSTUNREACH, ETIMEDOUT.
  // `source` is one of the manager's own addresses, of the family of `destination`.
  [[nodiscard]] virtual int reach(const srd::Address& source,
                                  const srd::Address& destination) const = 0;

 protected:
  ~Reachability() = default;
};

class Manager {
 public:
  // Both must outlive it.
  Manager(Config config, ServiceClaims& claims, const Reachability& reachability);
  Manager(const Manager&) = delete;
  Manager& operator=(const Manager&) = delete;

  // --- What a program does with an id. Nothing, if there are too many.
  [[nodiscard]] std::optional<Handle> create(PortSpace space, Transport transport);
  // Says good-bye to the peer, twice, because nobody is left to say it again: of ids that go
  // together all first copies leave before any second one. No event of this id, and no request that
  // came to it, is told afterwards; what was told already is its owner's matter.
  void destroy(TimePoint now, Handle id);
  [[nodiscard]] int bind(Handle id, SocketAddress address);
  // `source` may be unknown. Without an address it is the first own one of the same family.
  [[nodiscard]] int resolve_address(Handle id, SocketAddress source, SocketAddress destination);
  [[nodiscard]] int resolve_route(Handle id);
  [[nodiscard]] int listen(Handle id, std::uint32_t backlog);
  [[nodiscard]] int connect(TimePoint now, Handle id, const ConnectParameters& parameters);
  // Without parameters, on the active side: the program's queue pair is ready.
  [[nodiscard]] int accept(TimePoint now, Handle id, const ConnectParameters* parameters);
  [[nodiscard]] int reject(TimePoint now, Handle id, Reason reason, const PrivateData& data);
  [[nodiscard]] int disconnect(TimePoint now, Handle id);
  // The queue pair has heard the peer before its RTU came.
  [[nodiscard]] int establish(Handle id);
  [[nodiscard]] int qp_settings(Handle id, std::uint32_t state, QpSettings& settings);
  // Ends with a multicast_join that has this number and says how to send to the group. The queue
  // pairs that are to hear it join by themselves: there is no other registry on RoCE.
  [[nodiscard]] int join(Handle id, const SocketAddress& address, std::uint32_t number);
  // A connect_request of this listening id has been fetched: there is room for another.
  void took_request(Handle listener);

  void set_traffic_class(Handle id, std::uint8_t value) { ids_[id.value()].traffic_class = value; }
  [[nodiscard]] int set_reuse(Handle id, bool on);
  [[nodiscard]] int set_own_family(Handle id, bool on);
  [[nodiscard]] int set_ack_timeout(Handle id, std::uint8_t exponent);

  [[nodiscard]] const Connection& look(Handle id) const { return ids_[id.value()]; }
  // Of an id that has one.
  [[nodiscard]] const LocalNic& nic_of(Handle id) const { return config_.nics[look(id).nic]; }

  // --- Messages and time.
  // `to`: the address of ours that the message was for.
  void on_mad(TimePoint now, const srd::Address& from, const srd::Address& to,
              std::span<const std::byte> mad);
  [[nodiscard]] bool next_mad(TimePoint now, Outgoing& out);
  void on_timeout(TimePoint now);
  [[nodiscard]] TimePoint next_timeout() const { return deadlines_.earliest(); }
  [[nodiscard]] bool next_event(Event& event);

  [[nodiscard]] const Counters& counters() const { return counters_; }
  [[nodiscard]] std::uint32_t ids() const { return ids_.used(); }
  [[nodiscard]] bool listens() const { return !listeners_.empty(); }

 private:
  using Message = wire::CmMessage;
  using RemoteKey = std::pair<std::uint64_t, std::uint32_t>;  // GUID of the NIC, and a number of it
  // Identifies an SIDR request: its sender's address and number. There is no GUID in it.
  struct SidrKey {
    std::array<std::uint64_t, 2> address;
    std::uint32_t request;
    auto operator<=>(const SidrKey&) const = default;
  };
  // A connection that is remembered after its end, so that a late copy of its REQ is refused again
  // and makes no new connection.
  struct Ended {
    TimePoint until;
    Reason reason;
    srd::Address peer;
    std::uint32_t sequence;       // of its REQ; another process may count up to the same number
    std::vector<std::byte> data;  // what the program said when it rejected that
  };
  // A message with its addresses, checked in form only.
  struct Arrival {
    TimePoint now;
    srd::Address from;
    srd::Address to;
    const Message& message;
  };

  // --- manager.cpp
  [[nodiscard]] std::uint32_t allocate();
  void free(std::uint32_t slot);
  void drop_events(TimePoint now, Handle id);
  [[nodiscard]] int take_nic(Connection& id, const srd::Address& address) const;
  [[nodiscard]] SocketAddress without_loopback(SocketAddress address) const;
  [[nodiscard]] const LocalAddress* find_address(const srd::Address& address) const;
  [[nodiscard]] const LocalAddress* first_address(bool v4) const;
  void tell(std::uint32_t slot, EventKind kind, std::int32_t status = 0);
  void tell(std::uint32_t slot, EventKind kind, std::int32_t status, const PrivateData& data);

  // --- connect.cpp
  void give_local_id(std::uint32_t slot);
  [[nodiscard]] int send_request(TimePoint now, std::uint32_t slot, const ConnectParameters& with);
  [[nodiscard]] int send_sidr_request(TimePoint now, std::uint32_t slot,
                                      const ConnectParameters& with);
  [[nodiscard]] int send_reply(TimePoint now, std::uint32_t slot, const ConnectParameters& with);
  [[nodiscard]] int send_ready(std::uint32_t slot);
  [[nodiscard]] int answer_sidr(std::uint32_t slot, SidrStatus status,
                                const ConnectParameters& with);
  [[nodiscard]] int send_reject(TimePoint now, std::uint32_t slot, Reason reason,
                                std::span<const std::byte> data);
  [[nodiscard]] int send_disconnect(TimePoint now, std::uint32_t slot);
  [[nodiscard]] Message disconnect_of(std::uint32_t slot);
  [[nodiscard]] int send_disconnect_reply(TimePoint now, std::uint32_t slot);
  void part(TimePoint now, std::uint32_t slot);
  [[nodiscard]] int set_qkey(Connection& id, std::uint32_t qkey) const;

  // --- receive.cpp
  void handle(const Arrival& arrival);
  void handle_request(const Arrival& arrival);
  void end_stale(std::uint32_t old, const Arrival& arrival);
  void handle_again(std::uint32_t slot, const Arrival& arrival);
  void welcome(std::uint32_t listener, const Arrival& arrival, const wire::CmIpHeader& header);
  void handle_reply(const Arrival& arrival);
  void take_reply(std::uint32_t slot, const Arrival& arrival);
  void handle_reply_again(const Arrival& arrival);
  void handle_ready(const Arrival& arrival);
  [[nodiscard]] bool asks_again(TimePoint now, std::uint32_t slot, const Message& message);
  void handle_reject(const Arrival& arrival);
  void handle_acknowledgement(const Arrival& arrival);
  void handle_disconnect(const Arrival& arrival);
  void handle_disconnect_reply(const Arrival& arrival);
  void handle_sidr_request(const Arrival& arrival);
  void handle_sidr_reply(const Arrival& arrival);
  [[nodiscard]] std::uint32_t find(const Arrival& arrival, bool with_remote_id = true) const;
  // The sender of a rejection for timeout.
  [[nodiscard]] static std::uint64_t guid_in(const Message& reject);
  [[nodiscard]] std::uint32_t find_timed_out(const Arrival& arrival) const;
  // The listening id for a request, or kNone: then it has been refused, or dropped.
  [[nodiscard]] std::uint32_t find_listener(const Arrival& arrival, wire::CmIpHeader& header);
  void refuse(const Arrival& arrival, Reason reason, std::span<const std::byte> data = {});
  [[nodiscard]] std::uint32_t accept_stranger(std::uint32_t listener, const Arrival& arrival,
                                              const wire::CmIpHeader& header);

  // --- send.cpp
  void post(const Connection& id, const Message& message);
  void post(const srd::Address& from, const srd::Address& to, std::uint8_t traffic_class,
            std::span<const std::byte, wire::kMadSize> mad);
  void post_reliably(TimePoint now, std::uint32_t slot, const Message& message);
  void post_last_words(const Connection& id, bool are_said_before);
  void send_again(const Connection& id);
  void stop_timer(std::uint32_t slot);
  void give_up(TimePoint now, std::uint32_t slot);
  void enter_timewait(TimePoint now, std::uint32_t slot);
  void reset(TimePoint now, std::uint32_t slot, Reason reason,
             std::span<const std::byte> data = {});
  // Its request may come once more, late: then it is refused for that reason.
  void forget_peer(TimePoint now, std::uint32_t slot, Reason reason,
                   std::span<const std::byte> data = {});
  [[nodiscard]] bool turns_round(const Outgoing& message) const;
  [[nodiscard]] Message answer_of(const Connection& id, wire::CmKind kind) const;

  static constexpr std::uint32_t kNone = Slab<Connection>::kNone;

  Config config_;
  const Reachability& reachability_;
  Rng rng_;
  Ports ports_;
  Slab<Connection> ids_;
  std::uint32_t next_number_;  // of communication ids, below the attachment
  // Tables by which a message finds its id. by_remote_qpn_ finds a stale connection of a queue
  // pair.
  FlatMap<std::uint32_t> by_local_id_;
  std::map<RemoteKey, std::uint32_t> by_remote_id_;
  std::map<RemoteKey, std::uint32_t> by_remote_qpn_;
  std::map<SidrKey, std::uint32_t> by_sidr_;
  std::multimap<std::uint64_t, std::uint32_t> listeners_;
  std::map<RemoteKey, Ended> ended_;
  std::deque<std::pair<TimePoint, RemoteKey>> ended_order_;
  DeadlineHeap deadlines_;  // by slot: to send again, or the end of timewait
  std::deque<Outgoing> outgoing_;
  std::uint32_t last_words_ = 0;     // of outgoing_
  std::deque<Outgoing> said_again_;  // last words that leave when outgoing_ is empty
  std::deque<Event> events_;
  Counters counters_;
};

}  // namespace weft::roce::cm
