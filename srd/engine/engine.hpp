// Owns the transport engine: reliable, unordered, sprayed datagrams and remote memory access
// between NICs.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "srd/base/flat_map.hpp"
#include "srd/base/result.hpp"
#include "srd/base/rng.hpp"
#include "srd/engine/cc/credit_scheduler.hpp"
#include "srd/engine/completion_queue.hpp"
#include "srd/engine/config.hpp"
#include "srd/engine/counters.hpp"
#include "srd/engine/endpoint.hpp"
#include "srd/engine/memory_table.hpp"
#include "srd/engine/mutation.hpp"
#include "srd/engine/observer.hpp"
#include "srd/engine/peer_table.hpp"
#include "srd/engine/requests.hpp"
#include "srd/engine/scheduler.hpp"
#include "srd/engine/work.hpp"
#include "srd/net/machine.hpp"
#include "srd/wire/parse.hpp"

namespace weft::srd {

inline constexpr std::uint32_t kMaxTransfer = 1U << 30;  // bytes of one read or write

// The road of a packet, one file per event:
//   post()/open_endpoint() engine.cpp - next_transmit() transmit.cpp - on_packet() receive.cpp -
//   reads.cpp - acknowledgements: reply.cpp (made), acknowledge.cpp (taken) - on_timeout()
//   timers.cpp - the end of requests and of peers: settle.cpp
// What a packet passes on its way is inlined by force where one function calls it: saving and
// restoring registers for each call made a tenth of all instructions.
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
    return std::min(schedule_.next_due(), credit_grants_.next_due());
  }

  // --- Peers. A reliability context is made on first use and shared by all endpoints.
  [[nodiscard]] Result<PeerId> peer(const Address& address, AttachmentId attachment);
  [[nodiscard]] const PeerKey& key_of(PeerId peer) const { return peers_[peer].key; }
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
  // cookie `concerns` holds: it is not touched any more. They end as local_protection; of sends and
  // writes that have left, only those that would have to leave once more.
  void revoke(const std::function<bool(std::uint64_t cookie)>& concerns);

  // Takes up to completions.size() of what has ended.
  [[nodiscard]] std::size_t poll(std::span<Completion> completions);
  // The same one by one, without a copy: nullptr if nothing has ended; pop_completion() takes it.
  [[nodiscard]] const Completion* next_completion() const { return completions_.next(); }
  void pop_completion() { completions_.pop(); }

  // Whether endpoints of this domain that take acquainted peers only take this one.
  void acquaint(std::uint32_t domain, const Address& address, bool known);

  [[nodiscard]] MemoryTable& memory() { return memory_; }
  [[nodiscard]] const EngineConfig& config() const { return config_; }
  [[nodiscard]] const Counters& counters() const { return counters_; }
  [[nodiscard]] std::size_t max_send_size() const { return config_.mtu_payload; }
  // Requests accepted whose completion has not been taken by poll() yet; receives not counted.
  [[nodiscard]] std::size_t outstanding() const { return local_works_; }
  void observe(Observer* observer) { observer_ = observer; }

  // A hint: a packet of `from` will come soon, or (nullptr) next_transmit(). Called with step 1, 2,
  // 3, some time apart: each follows what the one before has fetched.
  void prefetch(const PeerKey* from, unsigned step) const;

 private:
  // engine.cpp
  Outbound& outbound(Peer& peer) { return peer.out ? *peer.out : make_outbound(peer); }
  Outbound& make_outbound(Peer& peer);
  struct NewWork {
    std::uint32_t index = WorkSlab::kNone;
    Work* work = nullptr;
    Peer* peer = nullptr;
  };
  [[nodiscard]] PostResult new_work(const RequestBase& request, WorkKind kind,
                                    const SegmentList& segments, Bytes limit, NewWork& made);
  void enqueue(const NewWork& made, Outbound& out);

  // transmit.cpp
  [[nodiscard]] bool transmit_data(TimePoint now, Peer& peer, TxPacket& out);
  [[nodiscard]] static PathId pick_for_question(TimePoint now, Outbound& out);
  [[nodiscard]] bool may_leave_again(const SendSlot& slot) const;
  [[nodiscard]] bool retransmit(TimePoint now, Peer& peer, SendSlot& slot, TxPacket& out);
  [[nodiscard]] Queue choose_queue(Outbound& out);
  [[nodiscard]] std::uint32_t packet_order(const Work& work, std::uint32_t n) const;
  void reorder_on_purpose(TimePoint now, Peer& peer);
  void emit(TimePoint now, Peer& peer, SendSlot& slot, TxPacket& out);
  void fill_message(const Work& work, SendSlot& slot, TxPacket& out, wire::DataHeader& header);
  void emit_probe(TimePoint now, Peer& peer, PathId path, TxPacket& out);
  void finish(TxPacket& out);
  void make_ready(Peer& peer) {
    if (schedule_.make_ready(peer)) {
      peer.out->prefetch_to_send();
    }
  }

  // receive.cpp
  void on_data(TimePoint now, Peer& peer, const wire::DataHeader& header, const RxPacket& packet);
  void on_trimmed(TimePoint now, Peer& peer, const wire::DataHeader& header,
                  const RxPacket& packet);
  [[nodiscard]] bool meet_life(TimePoint now, Peer& peer, Life source, Life destination, bool asks);
  static void adopt_life(Peer& peer, Life life);
  [[nodiscard]] std::uint8_t deliver(TimePoint now, Peer& peer, const wire::DataHeader& header,
                                     const RxPacket& packet);
  void fail_receive(const Endpoint& endpoint, const ReceiveRequest& receive);
  [[nodiscard]] std::uint8_t deliver_send(Peer& peer, const wire::DataHeader& header,
                                          const RxPacket& packet);
  void count_arrival(Peer& peer, const wire::DataHeader& header, PathId path);
  void count_order(Peer& peer, std::uint32_t message);
  [[nodiscard]] std::uint8_t deliver_write(Peer& peer, const wire::DataHeader& header,
                                           const RxPacket& packet);
  [[nodiscard]] std::uint8_t deliver_immediate(Peer& peer, Endpoint& endpoint,
                                               const wire::DataHeader& header);
  [[nodiscard]] bool receive_room() const {
    return completions_.has_room_for_receive(local_works_);
  }
  [[nodiscard]] bool request_room() const {
    return local_works_ < config_.max_work_requests &&
           completions_.has_room_for_request(local_works_);
  }

  // Answers to reads have records of their own number, or readers could keep us from posting.
  [[nodiscard]] bool response_room() const {
    return works_.used() - local_works_ < config_.max_work_requests;
  }

  [[nodiscard]] bool may_access(const Endpoint& endpoint, const Peer& peer) const {
    return !endpoint.config.acquainted_only || is_acquainted(endpoint, peer);
  }
  [[nodiscard]] bool is_acquainted(const Endpoint& endpoint, const Peer& peer) const;

  // reads.cpp
  [[nodiscard]] std::uint8_t accept_read(Peer& peer, const wire::DataHeader& header);
  [[nodiscard]] std::uint32_t fill_response(const Work& work, const SendSlot& slot,
                                            std::uint32_t offset, std::uint32_t length,
                                            TxPacket& out, wire::DataHeader& header);
  void take_response(TimePoint now, Peer& peer, const wire::DataHeader& header,
                     const RxPacket& packet);
  static constexpr std::uint64_t read_key(PeerId peer, std::uint32_t number) {
    return std::uint64_t{peer.value()} << 32 | number;
  }

  // reply.cpp
  void note_arrival(TimePoint now, Peer& peer, const wire::DataHeader& header,
                    const RxPacket& packet, bool at_once);
  void note_again(Peer& peer, const wire::DataHeader& header, std::uint8_t code);
  [[nodiscard]] bool transmit_reply(TimePoint now, Peer& peer, TxPacket& out);
  void forget_stranger(Peer& peer);
  void build_ack(TimePoint now, Peer& peer, TxPacket& out);
  [[nodiscard]] PathId reply_path(TimePoint now, Peer& peer);
  void build_stale_notice(Peer& peer, TxPacket& out);
  [[nodiscard]] wire::CommonHeader common_header(const Peer& peer, wire::PacketType type) const;

  // acknowledge.cpp
  void on_ack(TimePoint now, TimePoint arrived, Peer& peer, const wire::ParsedPacket& packet);
  void take_results(TimePoint now, Peer& peer, const wire::ParsedPacket& packet, std::size_t count);
  void take_result(TimePoint now, Peer& peer, SendSlot& slot, const wire::ResultEntry& entry);
  void take_echo(TimePoint now, TimePoint arrived, Peer& peer, const wire::AckHeader& header,
                 AckSample& sample);
  // What an acknowledgement says about the marks of the packets that it does not echo.
  enum class OtherMarks : std::uint8_t { none, some, all };

  void take_sack(TimePoint now, Peer& peer, const wire::ParsedPacket& packet,
                 const wire::AckHeader& header, AckSample& sample);
  template <class Visit>
  void for_each_claim(const SendWindow& window, const wire::ParsedPacket& packet,
                      const wire::AckHeader& header, const Visit& visit) const;
  [[nodiscard]] OtherMarks take_marks(Outbound& out, const wire::ParsedPacket& packet,
                                      const wire::AckHeader& header, AckSample& sample) const;
  bool take_slot(TimePoint now, Peer& peer, SendSlot& slot, const wire::AckHeader& header,
                 Duration rtt, OtherMarks others);
  void credit_path(TimePoint now, Peer& peer, const SendSlot& slot, bool marked, bool known,
                   Duration rtt);
  void find_losses(TimePoint now, Peer& peer);
  void lose(TimePoint now, Peer& peer, SendSlot& slot, PathEvent how);
  void path_feedback(TimePoint now, Peer& peer, PathId path, PathEvent event, Duration rtt);
  void path_delivery(TimePoint now, Peer& peer, PathId path);
  void note_recovery(TimePoint now, const Peer& peer, PathId path, std::uint16_t bad_before);
  void find_gaps(TimePoint now, Peer& peer);
  void on_stale_notice(TimePoint now, Peer& peer, Life source, Life destination, Life refused);

  // credits.cpp
  // Whether `out` may send one more packet; otherwise it waits for a grant and must have asked for
  // one. A packet may overdraw the balance by itself: then messages without bytes need no credit.
  // Nor does what is left when no bytes are wanted: no grant would ever come for it.
  [[nodiscard]] bool has_credit(const Outbound& out) const {
    return !config_.receiver_credits || out.credits.may_send(0) || !out.credits.wants_more();
  }
  // True if a request has to leave before anything else: the receiver does not know of all that
  // waits.
  [[nodiscard]] bool credit_request_due(const Outbound& out) const {
    return config_.receiver_credits && (out.ask_again || out.credits.should_request());
  }
  void emit_credit_request(TimePoint now, Peer& peer, TxPacket& out);
  void on_credit_request(TimePoint now, Peer& peer, const wire::CreditRequest& request);
  void queue_grants(TimePoint now);
  [[nodiscard]] CreditBalance first_credits(Bytes sharers) const;
  static void take_grant(Peer& peer, const wire::AckHeader& header);
  void restart_credits(Peer& peer);
  // Payload of a request that has not left yet. A read has none.
  [[nodiscard]] Bytes unsent_bytes(const Work& work) const {
    const Bytes sent = Bytes{work.next_packet} * config_.mtu_payload;
    return work.kind == WorkKind::read || sent >= work.length ? 0 : work.length - sent;
  }

  // timers.cpp
  void on_peer_timeout(TimePoint now, Peer& peer);
  void expire_packets(TimePoint now, Peer& peer);
  void ask_for_life(TimePoint now, Peer& peer);
  [[nodiscard]] TimePoint path_probe_due(const Outbound& out) const;
  [[nodiscard]] bool owed_by_peer(const Outbound& out) const;
  [[nodiscard]] bool died_of_silence(TimePoint now, Peer& peer, TimePoint since);
  void release_waiting(TimePoint now, WorkQueues& queues);
  [[nodiscard]] TimePoint next_deadline(const Peer& peer) const;

  // settle.cpp
  void refuse_work(TimePoint now, Peer& peer, SendSlot& slot, Status status);
  // `work` is works_[index], in these.
  void finish_if_done(std::uint32_t index, Work& work) {
    if (work.outstanding == 0 && !work.queued() && (work.kind != WorkKind::read || work.answered)) {
      complete(index, work, work.status);
    }
  }
  void complete(std::uint32_t index, Work& work, Status status);
  void release(std::uint32_t index, Work& work);
  void tell_user(const Work& work, Status status);
  void abandon(std::uint32_t index, Status status);
  static void settle_packets(SendWindow& window, Work& work, std::uint32_t index);
  [[nodiscard]] static bool outlives_restart(const Work& work);
  void mute(Peer& peer);
  void unmute(Peer& peer) {
    if (peer.out->muted) [[unlikely]] {
      end_mute(peer);
    }
  }
  void end_mute(Peer& peer);
  void evict_muted_response();
  void restart_peer(TimePoint now, Peer& peer, Life life);
  void lose_peer(TimePoint now, Peer& peer);
  void release_read(Peer& peer, const Work& work);

  void tell(Event::Kind kind, TimePoint when, const Peer& peer, Psn psn, PathId path,
            std::uint64_t detail = 0, Status status = Status::ok) {
    if (observer_ != nullptr) [[unlikely]] {
      observer_->on_event({kind, when, peer.id, psn, path, status, detail});
    }
  }

  struct Acquaintance {
    Address address;
    std::uint32_t domain = 0;
    friend bool operator==(const Acquaintance&, const Acquaintance&) = default;
  };
  struct AcquaintanceHash {
    std::size_t operator()(const Acquaintance& who) const noexcept {
      return std::hash<Address>{}(who.address) + who.domain * 0x9E3779B97F4A7C15ULL;
    }
  };

  static constexpr std::uint32_t kMostToldOnce = 4 * PsnBitmap::kSpan;  // four whole windows
  static constexpr std::uint32_t kMostProbes = 16 * wire::kMaxPaths;    // of all paths of 16 peers

  EngineConfig config_;
  PathSelectorKind selector_kind_;
  PathTuning path_tuning_;
  CongestionControlKind cc_kind_;
  CcTuning cc_tuning_;
  RetransmissionTuning patience_;
  std::uint32_t window_span_;
  Rng rng_;
  // The latest `now`: for an engine time never goes backwards.
  TimePoint advance(TimePoint now) { return latest_ = std::max(latest_, now); }

  TimePoint latest_ = TimePoint::min();
  Counters own_counters_;
  Counters& counters_;
  Observer* observer_ = nullptr;

  std::optional<MemoryTable> own_memory_;
  MemoryTable& memory_;
  EndpointTable endpoints_;
  WorkSlab works_;
  FlatMap<std::uint64_t> reads_by_number_;  // by read_key()
  std::size_t local_works_ = 0;
  std::size_t busy_peers_ = 0;      // with requests of ours
  MutedResponses muted_responses_;  // answers to peers that were given up
  CompletionQueue completions_;

  PeerTable peers_;
  Scheduler schedule_;
  FlatMap<Acquaintance, AcquaintanceHash> acquaintances_;
  Bytes credit_window_;  // what a sender may send before it is granted anything
  CreditScheduler credit_grants_;
  OwedPool<ReceiveWindow::Result> told_once_{kMostToldOnce};
  OwedPool<Echo> probe_echoes_{kMostProbes};
  GapFinder gaps_;  // scratch of take_sack for find_gaps
};

}  // namespace weft::srd
