// Owns the sending half of a reliability context: what waits to be sent to one peer, what is in
// flight, and along which paths, how fast and how patiently it is sent.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "srd/base/prefetch.hpp"
#include "srd/engine/cc/congestion_control.hpp"
#include "srd/engine/cc/credit_balance.hpp"
#include "srd/engine/cc/distance_question.hpp"
#include "srd/engine/loss_detector.hpp"
#include "srd/engine/paths/peer_paths.hpp"
#include "srd/engine/retransmission_timer.hpp"
#include "srd/engine/send_window.hpp"
#include "srd/engine/work.hpp"
#include "srd/net/machine.hpp"
#include "srd/wire/parse.hpp"

namespace weft::srd {

struct EngineParts;
struct Peer;

// Made when the first request to the peer is posted, or its first read is answered, and kept from
// then on. Between two calls:
// - Whatever may be sent now, or could be if window, pacing or credits let it, has made the peer
//   ready in the scheduler; an acknowledgement, a deadline or a post brings it back.
// - The peer has a deadline in the scheduler that is not later than next_deadline().
// - Each slot of the window that is not settled names a work of this peer, and each work counts its
//   slots (Work::outstanding).
// - A muted sender has nothing in flight: its peer was given up, and nothing leaves until the peer
//   is heard or work is posted.
//
// What a packet passes on its way is inlined by force where one function calls it: saving and
// restoring registers for each call made a tenth of all instructions. What packets look
// at lies in few cache lines, because with thousands of peers none of them is in the cache.
class alignas(kCacheLine) Sender {
 public:
  // Both must outlive it. `peer` is the one whose sender this is.
  Sender(EngineParts& parts, Peer& peer);
  Sender(const Sender&) = delete;
  Sender& operator=(const Sender&) = delete;

  // --- Work that begins
  // `work` is the one at `index`; it has its number already.
  void enqueue_request(std::uint32_t index, Work& work);
  void enqueue_response(std::uint32_t index, Work& work);
  [[nodiscard]] std::uint32_t number_message() { return next_message_++; }
  // Where the numbers of reads go on; the caller counts it up.
  [[nodiscard]] std::uint32_t& next_read() { return next_read_; }

  // --- Packets (transmit.cpp, acknowledge.cpp)
  // Fills `out` with the next packet to the peer, or returns false if none may leave now.
  [[nodiscard]] bool transmit(TimePoint now, TxPacket& out);
  // False: it was dropped, and means nothing.
  [[nodiscard]] bool on_ack(TimePoint now, TimePoint arrived, const wire::ParsedPacket& packet);
  // Bytes of a read have come.
  void on_response(TimePoint now) { timer_.on_response(now); }
  void make_ready();
  [[nodiscard]] bool has_work() const { return queues_.has_ready() || window_.has_lost(); }
  // The path of a reply: `path`, or one near it that is not abandoned.
  [[nodiscard]] PathId reply_path(TimePoint now, PathId path) {
    return paths_.usable_near(now, path);
  }

  // --- Time (timers.cpp)
  void on_timeout(TimePoint now);
  [[nodiscard]] TimePoint next_deadline() const;

  // --- Work that ends
  // Out of its queue and out of the window.
  void withdraw(std::uint32_t index, Work& work);
  // A read that had left has ended.
  void end_read();

  // --- The end of either process [wire 4.10]
  // Tells the peer how far it was heard.
  void say_heard(TimePoint now);
  // The number of the next packet, and the endpoints of the latest request.
  [[nodiscard]] Psn next() const { return window_.next(); }
  [[nodiscard]] Qpn last_to() const { return last_to_; }
  [[nodiscard]] Qpn last_from() const { return last_from_; }

  // --- The peer
  // A later life of it, or the first one that is known.
  void address(Life life) { header_.destination_life = life.value(); }
  // A later life is addressed now, which has seen nothing of what we sent.
  void restart();
  [[nodiscard]] bool muted() const { return muted_; }
  void unmute();

  // --- Hints for callers that know which peer comes next
  // A packet will leave soon. With a thousand peers none of this is in the nearest cache.
  void prefetch_to_send() const {
    prefetch(this, kCacheLine);
    prefetch(&timer_, kCacheLine);
    prefetch(&header_, kCacheLine);
    prefetch(&paths_, 2 * kCacheLine);
    window_.prefetch_next();
    cc_.prefetch_window();
  }
  // What any packet touches, in either direction.
  void prefetch_all() const;

 private:
  friend class Engine;  // next_transmit() inlines transmit()

  // transmit.cpp
  [[nodiscard]] bool transmit_inline(TimePoint now, TxPacket& out);
  [[nodiscard]] bool transmit_question(TimePoint now, TxPacket& out);
  [[nodiscard]] bool transmit_path_probe(TimePoint now, TxPacket& out);
  [[nodiscard]] SendSlot* next_lost();
  [[nodiscard]] bool transmit_data(TimePoint now, TxPacket& out);
  [[nodiscard]] bool transmit_next(TimePoint now, TxPacket& out);
  void pace(TimePoint now, Duration interval);
  [[nodiscard]] PathId pick_for_question(TimePoint now);
  [[nodiscard]] bool may_leave_again(const SendSlot& slot) const;
  [[nodiscard]] bool retransmit(TimePoint now, SendSlot& slot, TxPacket& out);
  [[nodiscard]] Queue choose_queue();
  [[nodiscard]] std::uint32_t packet_order(const Work& work, std::uint32_t n) const;
  void reorder_on_purpose(TimePoint now);
  void emit(TimePoint now, const Work& work, SendSlot& slot, TxPacket& out);
  void fill_message(const Work& work, SendSlot& slot, TxPacket& out, wire::DataHeader& header);
  [[nodiscard]] std::uint32_t fill_response(const Work& work, const SendSlot& slot,
                                            std::uint32_t offset, std::uint32_t length,
                                            TxPacket& out, wire::DataHeader& header);
  void emit_probe(TimePoint now, PathId path, TxPacket& out);
  // A packet before this one asked for an acknowledgement and is under way.
  [[nodiscard]] bool awaits_answer_before(Psn psn) {
    return asked_ != psn && window_.contains(asked_) &&
           window_.slot(asked_).state == SendSlot::State::in_flight;
  }

  // Credits (transmit.cpp). [wire 4.8]
  // Whether one more packet may be sent; otherwise the sender waits for a grant and must have asked
  // for one. What is left when no bytes are wanted needs none: no grant would ever come for it.
  [[nodiscard]] bool has_credit() const {
    return !rationed_ || credits_.may_send() || !credits_.wants_more();
  }
  // True if a request has to leave before anything else: the receiver does not know of all that
  // waits, or is asked how far it is.
  [[nodiscard]] bool credit_request_due() const {
    return requests_wanted_ != 0 || (rationed_ && credits_.should_request());
  }
  void emit_credit_request(TimePoint now, TxPacket& out);
  [[nodiscard]] CreditBalance first_credits(Bytes sharers) const;
  void take_grant(TimePoint arrived, std::uint32_t granted);

  // acknowledge.cpp
  // What an acknowledgement says about the marks of the packets that it does not echo.
  enum class OtherMarks : std::uint8_t { none, some, all };

  void take_echo(TimePoint now, TimePoint arrived, const wire::AckHeader& header,
                 AckSample& sample);
  void take_results(TimePoint now, const wire::ParsedPacket& packet, std::size_t count,
                    AckSample& sample);
  void take_result(TimePoint now, SendSlot& slot, const wire::ResultEntry& entry,
                   AckSample& sample);
  void note_arrival(const SendSlot& slot);
  void note_refused_arrival(const SendSlot& slot);
  void refuse(TimePoint now, SendSlot& slot, Status status);
  void take_sack(TimePoint now, const wire::ParsedPacket& packet, const wire::AckHeader& header,
                 AckSample& sample);
  template <class Visit>
  void for_each_claim(const wire::ParsedPacket& packet, const wire::AckHeader& header,
                      const Visit& visit) const;
  [[nodiscard]] OtherMarks take_marks(const wire::ParsedPacket& packet,
                                      const wire::AckHeader& header, AckSample& sample);
  bool take_slot(TimePoint now, SendSlot& slot, const wire::AckHeader& header, Duration rtt,
                 OtherMarks others);
  void credit_path(TimePoint now, const SendSlot& slot, bool marked, bool known, Duration rtt);
  void find_gaps(TimePoint now);
  void find_losses(TimePoint now);
  void lose(TimePoint now, SendSlot& slot, PathEvent how);
  void path_feedback(TimePoint now, PathId path, PathEvent event, Duration rtt);
  void path_delivery(TimePoint now, PathId path, PathEvent event);
  [[nodiscard]] bool ends_run(const SendSlot& slot);
  [[gnu::cold, gnu::noinline]] void note_change(TimePoint now, PathId path, PathChange change);
  void settle_packets(Work& work, std::uint32_t index);
  // The packet's fate is known, or of no interest any more. Its bytes were wanted again if it was
  // to be sent again.
  void settle(SendSlot& slot) {
    if (slot.state != SendSlot::State::in_flight) [[unlikely]] {
      credits_.give_up(slot.length);
    }
    window_.settle(slot);
  }

  // timers.cpp
  void expire_packets(TimePoint now);
  void ask_for_life(TimePoint now);
  void ask_for_first_answer(TimePoint now);
  void ask_for_tail(TimePoint now);
  void want_probes(TimePoint now, std::uint32_t count);
  [[nodiscard]] std::uint8_t questions_after_silence() const;
  [[nodiscard]] TimePoint path_probe_due() const;
  [[nodiscard]] bool owed_by_peer() const;
  [[nodiscard]] TimePoint question_due() const;
  [[nodiscard]] bool died_of_silence(TimePoint now, TimePoint since);
  void give_up_peer(TimePoint now);
  void release_waiting(TimePoint now);

  // --- What every packet looks at: the first line, and the first part of each group behind it.
  EngineParts& parts_;
  Peer& peer_;
  TimePoint paced_until_{};  // nothing leaves before
  std::uint8_t turn_ = 0;    // which queue is next
  bool muted_ = false;
  bool pace_holds_back_ = false;      // the next packet; nothing else does
  bool rationed_;                     // the receiver grants credits
  bool heard_ = false;                // an acknowledgement has come, ever
  std::uint8_t requests_wanted_ = 0;  // for credits, again; or how far the peer is
  std::uint16_t probes_wanted_ = 0;   // before anything else
  std::uint32_t next_message_;
  Psn asked_;      // latest number that asked for an acknowledgement
  Qpn last_from_;  // endpoints of the latest request, for packets that belong to none
  Qpn last_to_;
  WorkQueues queues_;  // begins with that of single packets
  std::uint32_t next_read_;
  PathId asked_along_;       // that the latest question took
  bool ask_surest_ = false;  // the latest one took a path that is known to work, if there was one
  alignas(kCacheLine) RetransmissionTimer timer_;
  alignas(kCacheLine) wire::CommonHeader header_{};  // what is the same in all data packets
  std::uint32_t marked_ = 0;  // packets of ours that have arrived with a mark, as the peer says
  LossDetector losses_;
  CreditBalance credits_;  // begins with what counts without rations, too
  alignas(kCacheLine) PeerPaths paths_;
  alignas(kCacheLine) SendWindow window_;
  alignas(kCacheLine) CongestionControl cc_;

  // --- The rest
  std::uint32_t reads_outstanding_ = 0;
  // As they travel in the packets: of the latest probe, and when those of which the answers are
  // waited for were wanted.
  std::uint32_t last_probe_time_ = 0;
  std::uint32_t probed_since_ = 0;
  DistanceQuestion how_far_;
  alignas(kCacheLine) PathChain chain_;
};

}  // namespace weft::srd
