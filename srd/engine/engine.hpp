// Owns the transport engine: reliable, unordered, sprayed datagrams and remote memory access
// between NICs.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "srd/base/result.hpp"
#include "srd/engine/config.hpp"
#include "srd/engine/counters.hpp"
#include "srd/engine/delivery.hpp"
#include "srd/engine/engine_parts.hpp"
#include "srd/engine/memory_table.hpp"
#include "srd/engine/observer.hpp"
#include "srd/engine/requests.hpp"
#include "srd/net/machine.hpp"
#include "srd/wire/parse.hpp"

namespace weft::srd {

// How to drive it is at the head of machine.hpp. It does little itself: it takes calls and packets,
// and passes them on to the parts that keep the state, each with invariants of its own.
//   WorkTable     requests and answers to reads, until they have ended
//   Scheduler     which peer is served next, and when
//   PeerTable     the peers; in each of them
//     PeerLife      which incarnation of its process is the present one
//     Sender        what we send: queues, window, paths, congestion control, timers, credits
//     Receiver      what it sends: window, and the acknowledgements that are owed
//   Delivery      what an arrived message does: receives, regions, reads
//   EndpointTable, CompletionBacklog, MemoryTable
// The road of a message, and where its steps are written:
//
//   sender                                         receiver
//   post()               engine.cpp
//   Sender::transmit()   transmit.cpp   --data-->  on_packet(), on_data()   receive.cpp
//                                                  Delivery                 deliver.cpp, reads.cpp
//                                                  Receiver::note_arrival() receiver.hpp
//   Sender::on_ack()     acknowledge.cpp <--ack--  transmit_reply()         reply.cpp
//   Sender::on_timeout() timers.cpp: what nobody has acknowledged leaves again
//   WorkTable            work_table.cpp: the completion
//
// What most packets pass is marked [[gnu::hot]], here and in srd/base and srd/wire: linkers put
// such functions side by side. Together they just fit into a first-level instruction cache of
// 32 KB; scattered among other code they push each other out of it.
class Engine final : public Machine {
 public:
  // The configuration must have passed validate().
  // Counts into `counters`, so that others can watch, and looks keys up in `memory`, if they are
  // given; they must outlive it.
  explicit Engine(const EngineConfig& config, Counters* counters = nullptr,
                  MemoryTable* memory = nullptr);

  // --- Machine
  void on_packet(TimePoint now, const RxPacket& packet) override;
  void on_timeout(TimePoint now) override;
  [[nodiscard]] bool next_transmit(TimePoint now, TxPacket& out) override;
  [[nodiscard]] TimePoint next_timeout() const override {
    return std::min(parts_.schedule.next_due(), parts_.grants.next_due());
  }

  // --- Peers. A reliability context is made on first use and shared by all endpoints.
  [[nodiscard]] Result<PeerId> peer(const Address& address, AttachmentId attachment);
  [[nodiscard]] const PeerKey& key_of(PeerId peer) const { return parts_.peers[peer].key; }
  // Nothing for an id that peer() never gave.
  [[nodiscard]] std::optional<PeerHistory> history_of(PeerId peer) const;

  // --- Endpoints (queue pairs).
  [[nodiscard]] Result<void> open_endpoint(Qpn qpn, const EndpointConfig& config);
  // Its outstanding requests and posted receives complete as flushed.
  void close_endpoint(Qpn qpn);
  // An endpoint that does not receive answers with bad_qpn, as if it were not there.
  void set_receiving(Qpn qpn, bool receiving);
  void set_qkey(Qpn qpn, std::uint32_t qkey);

  // --- Work. What is not accepted has no effect and gives no completion.
  [[nodiscard]] PostResult post(const SendRequest& request);
  [[nodiscard]] PostResult post(const WriteRequest& request);
  [[nodiscard]] PostResult post(const ReadRequest& request);
  [[nodiscard]] PostResult post_receive(Qpn qpn, const ReceiveRequest& request);
  // Ends the outstanding requests of `source` towards `peer`: an address handle is destroyed.
  void flush(PeerId peer, Qpn source);
  // Takes back memory that was lent to the outstanding requests and posted receives for whose
  // cookie `concerns` holds: it is not touched any more. They end as local_protection. But a send
  // or write of which every packet has left does so only if one of these has to leave again.
  void revoke(const std::function<bool(std::uint64_t cookie)>& concerns);

  // Takes up to completions.size() of what has ended.
  [[nodiscard]] std::size_t poll(std::span<Completion> completions);
  // The same one by one, without a copy: nullptr if nothing has ended; pop_completion() takes it.
  [[nodiscard]] const Completion* next_completion() const { return parts_.completions.next(); }
  void pop_completion() { parts_.completions.pop(); }

  // From now on, endpoints of this domain with `acquainted_only` let this address read and write
  // (`known`), or refuse it.
  void acquaint(std::uint32_t domain, const Address& address, bool known);

  // The process is about to end, and nobody will answer for it. Each peer is told so, and again
  // what it may not have heard, and asked whether it has.
  void take_leave(TimePoint now, Leave how);
  // A peer that lives may not have heard of all that had come from it when that began.
  [[nodiscard]] bool is_awaited() const;
  // Peers that did not answer are not waited for any more, unless they send again.
  void stop_waiting();

  [[nodiscard]] MemoryTable& memory() { return parts_.memory; }
  [[nodiscard]] const EngineConfig& config() const { return parts_.config; }
  [[nodiscard]] const Counters& counters() const { return parts_.counters; }
  [[nodiscard]] std::size_t max_send_size() const { return parts_.config.mtu_payload; }
  // Requests accepted that have not ended; receives not counted.
  [[nodiscard]] std::size_t outstanding() const { return parts_.works.outstanding(); }
  void observe(Observer* observer) { parts_.observer = observer; }

  // A hint: a packet of `from` will come soon, or (nullptr) next_transmit(). Called with step 1, 2,
  // 3, some time apart: each follows what the one before has fetched.
  void prefetch(const PeerKey* from, unsigned step) const;

 private:
  // engine.cpp
  struct NewRequest {
    std::uint32_t index = WorkSlab::kNone;
    Work* work = nullptr;
    Sender* sender = nullptr;
  };
  [[nodiscard]] PostResult begin(const RequestBase& request, WorkKind kind,
                                 const SegmentList& segments, Bytes limit, NewRequest& made);
  void queue_grants(TimePoint now);

  // receive.cpp
  [[nodiscard]] Peer* make_peer(const PeerKey& key, bool may_make);
  void on_data(TimePoint now, Peer& peer, const wire::DataHeader& header, const RxPacket& packet);
  void on_trimmed(TimePoint now, Peer& peer, const wire::DataHeader& header,
                  const RxPacket& packet);
  void on_ack(TimePoint now, Peer& peer, const wire::ParsedPacket& parsed, const RxPacket& packet);
  void on_credit_request(TimePoint now, Peer& peer, const wire::CreditRequest& request);
  void on_stale_notice(TimePoint now, Peer& peer, Life source, Life destination, Life refused);
  [[nodiscard]] bool meet_life(TimePoint now, Peer& peer, Life source, Life destination, bool asks);
  static void adopt_life(Peer& peer, Life life);
  void restart_peer(TimePoint now, Peer& peer, Life life);
  void forget_stranger(Peer& peer);
  void count_arrival(Peer& peer, const wire::DataHeader& header, Psn psn, PathId path);
  [[nodiscard]] bool note_arrival(TimePoint now, Peer& peer, const wire::DataHeader& header,
                                  const RxPacket& packet);
  void acknowledge_at_once(TimePoint now, Peer& peer, const wire::DataHeader& header,
                           const RxPacket& packet);

  // reply.cpp
  [[nodiscard]] bool transmit_reply(TimePoint now, Peer& peer, TxPacket& out);
  void build_ack(TimePoint now, Peer& peer, TxPacket& out);
  [[nodiscard]] PathId reply_path(TimePoint now, Peer& peer);
  void build_stale_notice(Peer& peer, TxPacket& out);
  [[nodiscard]] static bool is_given_up(const Peer& peer);

  // The latest `now`: for an engine time never goes backwards.
  TimePoint advance(TimePoint now) { return latest_ = std::max(latest_, now); }

  TimePoint latest_ = TimePoint::min();
  TimePoint granted_at_{};      // when grants were looked for, at the latest ...
  TimePoint granting_since_{};  // ... and since when without a pause
  EngineParts parts_;
  Delivery delivery_{parts_};
};

}  // namespace weft::srd
