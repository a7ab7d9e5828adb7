// Owns the engine: the queue pairs of one NIC in one process, as a Machine. Its parts have Linux's
// names: req.cpp sends requests, comp.cpp takes what comes back, resp.cpp takes requests,
// replay.cpp answers them and repeats the answers, ud.cpp is for datagrams.
//
// How a request travels: post_send() puts it into the send queue and wakes the queue pair;
// next_transmit() gives it PSNs and builds its packets one by one; the peer's responder executes
// them in order and queues an answer; our completer takes the answer and completes the request into
// the Sink. Only RC is answered; UC and UD complete when the last packet has left.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "emu/roce/engine/attributes.hpp"
#include "emu/roce/engine/counters.hpp"
#include "emu/roce/engine/keys.hpp"
#include "emu/roce/engine/mutation.hpp"
#include "emu/roce/engine/qp.hpp"
#include "emu/roce/wire/datagram.hpp"
#include "emu/roce/wire/packet.hpp"
#include "srd/base/deadline_heap.hpp"
#include "srd/base/free_numbers.hpp"
#include "srd/base/ring_queue.hpp"
#include "srd/net/machine.hpp"

namespace weft::roce {

// What the NIC is; fixed for the life of an engine.
struct EngineConfig {
  std::vector<srd::Address> addresses;  // the NIC's GID table
  std::uint32_t first_qpn = 2;
  std::uint32_t max_qps = 64;
  std::uint8_t max_path_mtu = 5;  // as QpAttributes::path_mtu; what the port carries
  // A process waits for its core: what the specification counts in microseconds would be loss.
  Duration min_timeout = std::chrono::milliseconds{20};
  std::uint32_t window = 128;       // PSNs that are not acknowledged, as Linux has it
  bool congestion_control = false;  // answer and obey congestion notifications
  Rate line_rate = Rate::gbps(100);
  std::uint64_t salt = 0;  // of the keys
};

// One thread at a time calls an engine; its owner also owns the lock, the carrier and the clock. It
// never waits and has hardly any memory of its own for payload: what it sends is lent from the
// regions of the application, and only a packet out of many pieces is gathered; what arrives is
// copied there at once. Everything that applications wait for is put into the Sink during the
// calls. Between two calls it is at rest, so that objects may be made and destroyed then.
class Engine final : public srd::Machine {
 public:
  // Asks the owner to put what lies in a receive queue of its own (one that the application writes
  // and the engine cannot see) into `queue`: called only when the engine finds none there and needs
  // one, from within on_packet().
  struct RefillHook {
    void (*refill)(void* owner, bool is_srq, std::uint32_t id, ReceiveQueue& queue) = nullptr;
    void* owner = nullptr;
  };
  // What an owner with queues of its own is to know of a queue pair.
  struct Moved {
    std::uint32_t qpn = 0;
    std::uint64_t retired = 0;  // send requests since the last reset that are over
    QpState state = QpState::reset;
  };

  // Counts into `counters`, if not null, else into counters of its own.
  Engine(const EngineConfig& config, Sink& sink, Counters* counters = nullptr);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  [[nodiscard]] KeyTable& keys() { return keys_; }
  [[nodiscard]] const Counters& counters() const { return counters_; }
  void set_refill(RefillHook hook) { refill_ = hook; }
  // Tells from now on, once, of each queue pair of which requests have ended since it was told of,
  // or that has come to an error.
  void tell_moves() { tells_moves_ = true; }
  [[nodiscard]] bool next_moved(Moved& moved);
  // Send requests that are not over.
  [[nodiscard]] std::uint64_t outstanding() const { return outstanding_; }

  // The number of the new queue pair, or 0 when there is no room or the request is none. Numbers go
  // round: one that was destroyed is used again as late as possible, so that stray packets of its
  // former life find no queue pair.
  [[nodiscard]] std::uint32_t create_qp(const QpSetup& request);
  // Its requests vanish.
  [[nodiscard]] int destroy_qp(std::uint32_t qpn);
  [[nodiscard]] int modify_qp(TimePoint now, std::uint32_t qpn, std::uint32_t mask,
                              const QpAttributes& attributes);
  // With the PSNs that are next.
  [[nodiscard]] std::optional<QpAttributes> query_qp(std::uint32_t qpn) const;
  // The number of the new shared receive queue, or kNoSrq.
  [[nodiscard]] std::uint32_t create_srq(std::uint32_t max_receive, std::uint32_t max_sge);
  // No queue pair may use it any more.
  void destroy_srq(std::uint32_t srq);
  // Raises srq_limit_reached once, when fewer than `limit` receives remain.
  [[nodiscard]] int arm_srq(std::uint32_t srq, std::uint32_t limit);
  [[nodiscard]] int attach_multicast(std::uint32_t qpn, const srd::Address& group);
  [[nodiscard]] int detach_multicast(std::uint32_t qpn, const srd::Address& group);
  // How many groups there are, and queue pairs in one.
  [[nodiscard]] std::size_t groups() const { return groups_.size(); }
  [[nodiscard]] std::size_t members_of(const srd::Address& group) const {
    const auto found = groups_.find(group);
    return found == groups_.end() ? 0 : found->second.size();
  }

  // --- Work: EINVAL in a state that takes none, or for a bad request; ENOMEM when the queue is
  // full.
  [[nodiscard]] int post_send(std::uint32_t qpn, const WorkRequest& request,
                              std::span<const Sge> segments,
                              std::span<const std::byte> inline_data = {});
  [[nodiscard]] int post_receive(std::uint32_t qpn, std::uint64_t wr_id,
                                 std::span<const Sge> segments);
  [[nodiscard]] int post_srq_receive(std::uint32_t srq, std::uint64_t wr_id,
                                     std::span<const Sge> segments);

  // --- Machine. Packets are BTH to pad; the carrier makes and checks the ICRC.
  void on_packet(TimePoint now, const srd::RxPacket& packet) override;
  // For carriers that know the headers around the packet: a datagram's receiver sees them.
  void on_packet(TimePoint now, const srd::RxPacket& packet, const wire::DatagramHeader& outer);
  void on_timeout(TimePoint now) override;
  [[nodiscard]] bool next_transmit(TimePoint now, srd::TxPacket& out) override;
  [[nodiscard]] TimePoint next_timeout() const override { return deadlines_.earliest(); }
  // Of the packet that next_transmit() gave last.
  [[nodiscard]] const wire::DatagramHeader& outer() const { return outer_; }

 private:
  // A packet that has arrived. Valid during one call of on_packet() only.
  struct Arrival {
    const wire::Packet& packet;
    const srd::RxPacket& rx;
    const wire::DatagramHeader& outer;
  };

  // engine.cpp
  [[nodiscard]] QpContext* find(std::uint32_t qpn) const;
  [[nodiscard]] bool is_from_its_peer(const QpContext& qp, const Arrival& arrival) const;
  [[nodiscard]] bool has_srq(std::uint32_t srq) const {
    return srq < srqs_.size() && srqs_[srq] != nullptr;
  }
  void wake(QpContext& qp);
  void note_moved(QpContext& qp);
  void forget_sends(QpContext& qp);
  void set_deadline(QpContext& qp);
  void raise(EventType type, std::uint32_t id) { sink_.events.push_slot() = {type, id}; }
  void apply(QpContext& qp, std::uint32_t mask, const QpAttributes& attributes);
  void enter_error(QpContext& qp);
  static void drop_responses(QpContext& qp);
  void flush_sends(QpContext& qp);
  void flush_receives(QpContext& qp);
  void reset(QpContext& qp);

  // transmit.cpp
  [[nodiscard]] bool transmit(QpContext& qp, TimePoint now, srd::TxPacket& out);
  [[nodiscard]] bool transmit_own(QpContext& qp, TimePoint now, srd::TxPacket& out);
  void finish(QpContext& qp, wire::Packet& packet, TimePoint now, srd::TxPacket& out);
  [[nodiscard]] bool is_paced(QpContext& qp, TimePoint now);
  void transmit_congestion_notification(QpContext& qp, TimePoint now, srd::TxPacket& out);

  // req.cpp
  [[nodiscard]] bool transmit_request(QpContext& qp, TimePoint now, srd::TxPacket& out);
  [[nodiscard]] bool begin(QpContext& qp, SendWqe& wqe);
  void execute_local(QpContext& qp, SendWqe& wqe);
  [[nodiscard]] WcStatus why_not(const QpContext& qp, const SendWqe& wqe) const;
  [[nodiscard]] WcStatus fill(QpContext& qp, std::uint64_t position, wire::Packet& packet,
                              srd::TxPacket& out);
  [[nodiscard]] WcStatus lend(QpContext& qp, std::uint64_t position, std::uint32_t offset,
                              std::uint32_t length, srd::TxPacket& out);
  [[nodiscard]] bool can_write(QpContext& qp, std::uint64_t position);
  void packet_left(QpContext& qp, std::uint64_t position, wire::Packet& packet, TimePoint now);
  void fail_here(QpContext& qp, WcStatus status);
  void complete_head(QpContext& qp, WcStatus status);
  void check_drained(QpContext& qp);

  // comp.cpp
  void on_response(TimePoint now, QpContext& qp, const Arrival& arrival);
  [[nodiscard]] bool acknowledge_to(QpContext& qp, std::uint32_t end);
  void take_read_response(QpContext& qp, const Arrival& arrival);
  void take_atomic_response(QpContext& qp, const Arrival& arrival);
  void take_nak(TimePoint now, QpContext& qp, std::uint8_t syndrome);
  void take_rnr_nak(TimePoint now, QpContext& qp, std::uint8_t timer);
  void progressed(TimePoint now, QpContext& qp);
  void seek(QpContext& qp, std::uint32_t psn);
  void retry(TimePoint now, QpContext& qp);
  void fail_head(QpContext& qp, WcStatus status);
  [[nodiscard]] bool scatter(const QpContext& qp, std::span<const Sge> segments,
                             std::uint64_t offset, const Arrival& arrival, std::size_t skip,
                             std::uint32_t length);
  void on_qp_timeout(TimePoint now, QpContext& qp);
  void restart_timer(TimePoint now, QpContext& qp);
  [[nodiscard]] Duration timeout_of(const QpContext& qp) const;

  // resp.cpp
  void on_request(QpContext& qp, const Arrival& arrival);
  [[nodiscard]] bool is_in_sequence(QpContext& qp, const Arrival& arrival);
  [[nodiscard]] static bool fits_message(const QpContext& qp, const wire::Packet& packet);
  [[nodiscard]] bool is_allowed(const QpContext& qp, const wire::Packet& packet) const;
  [[nodiscard]] static bool has_good_length(const QpContext& qp, const wire::Packet& packet);
  [[nodiscard]] bool take_receive(QpContext& qp);
  void accept(QpContext& qp, const Arrival& arrival);
  void accept_send(QpContext& qp, const Arrival& arrival);
  void accept_write(QpContext& qp, const Arrival& arrival);
  void accept_read(QpContext& qp, const wire::Packet& packet);
  void accept_atomic(QpContext& qp, const Arrival& arrival);
  void executed(QpContext& qp, const wire::Packet& packet);
  void complete_receive(QpContext& qp, const wire::Packet& packet, WcStatus status,
                        std::uint32_t length, std::uint8_t service_level = 0);
  void refuse(QpContext& qp, const wire::Packet& packet, std::uint8_t syndrome, WcStatus status);

  // replay.cpp
  void answer(QpContext& qp, std::uint8_t syndrome, std::uint32_t psn);
  void respond(QpContext& qp, Response& response);
  void on_duplicate(QpContext& qp, const Arrival& arrival);
  void replay_read(QpContext& qp, const wire::Packet& packet);
  void replay_atomic(QpContext& qp, const wire::Packet& packet);
  void answer_read(QpContext& qp, const Resource& resource, const wire::Packet& packet);
  void answer_atomic(QpContext& qp, const Resource& resource);
  Resource& new_resource(QpContext& qp);
  [[nodiscard]] bool transmit_response(QpContext& qp, TimePoint now, srd::TxPacket& out);
  [[nodiscard]] bool fill_read_response(QpContext& qp, Response& response, wire::Packet& packet,
                                        srd::TxPacket& out);

  // ud.cpp
  [[nodiscard]] bool transmit_datagram(QpContext& qp, TimePoint now, srd::TxPacket& out);
  void on_datagram(QpContext& qp, const Arrival& arrival);
  void on_multicast(const Arrival& arrival);
  [[nodiscard]] ReceiveQueue* stocked_queue(QpContext& qp);
  void took_from_srq(QpContext& qp);

  EngineConfig config_;
  Sink& sink_;
  KeyTable keys_;
  Counters own_counters_;
  Counters& counters_;
  RefillHook refill_;
  std::vector<std::unique_ptr<QpContext>> qps_;  // by number - first_qpn
  std::uint32_t next_qp_ = 0;                    // where the search for a free number goes on
  FreeNumbers srq_numbers_;
  std::vector<std::unique_ptr<ReceiveQueue>> srqs_;
  std::unordered_map<srd::Address, std::vector<std::uint32_t>> groups_;
  // Queue pairs by number, each at most once (QpContext::ready, ::moved); destroyed ones are
  // skipped.
  RingQueue<std::uint32_t> ready_;
  RingQueue<std::uint32_t> moved_;
  bool tells_moves_ = false;
  std::uint64_t outstanding_ = 0;
  std::uint32_t turn_ = 0;  // packets of the first in ready_
  DeadlineHeap deadlines_;
  wire::DatagramHeader outer_;
  // Payloads out of many pieces: a place for each packet that a burst may have, in turn.
  using Gathered = std::array<std::byte, 4096>;
  std::array<Gathered, srd::TxPacket::kMaxBurst> gathered_;
  std::size_t next_gathered_ = 0;
};

}  // namespace weft::roce
