// Owns a sender's patience with one peer: how long it waits for an answer before it asks, sends
// again, and gives up.
//
// Three waits follow from the round-trip time:
// - tail_wait(), the shortest: the last packets are not acknowledged, so a probe asks what has
//   arrived. Asking costs a packet without payload.
// - retransmit_wait(): a packet is lost. It doubles with each timeout until a round trip has been
//   measured again, and not merely with any answer: while all packets are sent twice none is
//   measured, and a wait that fell back to the old estimate would go on sending everything twice.
// - the wait before a question, four times as long: nothing is in flight, and yet the peer owes
//   something, as the bytes of a read. The answer to a question is waited for like any packet's.
//   How long credits are waited for follows from how often they come (CreditBalance). Where losses
//   are reported a question is repeated once before the wait for its answer doubles, and a tail
//   several times.
//
// Before the first round trip is measured packets are asked for after retransmit_wait(), and taken
// for lost only after max_rto: they may be waiting behind the first windows of any number of other
// senders, and nothing tells how long that lasts. RFC 6298 (2.1) is as conservative.
//
// Any sign of life ends the count of timeouts. A peer has died of silence after kTimeoutsToDie of
// them, if these took as long as peer_timeout.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "srd/base/prefetch.hpp"
#include "srd/base/time.hpp"
#include "srd/engine/mutation.hpp"
#include "srd/engine/rtt.hpp"

namespace weft::srd {

struct RetransmissionTuning {
  Duration base_rtt{};
  Duration ack_delay{};  // how long a peer holds an acknowledgement back
  Duration min_rto{};    // retransmit_wait() is between these two
  Duration max_rto{};
  Duration peer_timeout{};  // silence after which the peer is dead
  // The network reports what its queues lose, so silence is a matter of paths: they are tried one
  // after the other before waits double.
  bool losses_are_reported = false;
};

// Its user says what happens, in the order in which it happens.
class RetransmissionTimer {
 public:
  static constexpr int kWaitsBeforeQuestion = 4;

  explicit RetransmissionTimer(const RetransmissionTuning& tuning) : rtt_(tuning.base_rtt) {
    update_waits(tuning);
  }

  // --- What happens
  // The first request after none: silence before this does not count against the peer.
  void on_exchange_begins() {
    timeouts_ = 0;
    asked_at_ = TimePoint{};
  }
  void on_sent(TimePoint now) { last_progress_ = now; }
  // Bytes of a read.
  void on_response(TimePoint now) { last_progress_ = now; }
  void on_ack(TimePoint now) {
    timeouts_ = 0;
    last_progress_ = now;
    last_ack_ = now;
    tail_probes_ = 0;
  }
  // An acknowledgement that a packet of ours has caused; a grant of credits is none.
  void on_answer(TimePoint now) { last_answer_ = now; }
  void on_round_trip(TimePoint now, Duration rtt, const RetransmissionTuning& tuning) {
    rtt_.add(now, rtt);
    backoff_ = 0;
    update_waits(tuning);
  }
  void on_tail_probe(TimePoint now) {
    tail_probed_at_ = now;
    tail_probes_ = static_cast<std::uint8_t>(std::min(tail_probes_ + 1, 255));
  }
  // A question was asked. Returns when the one before was.
  TimePoint on_question(TimePoint now) { return std::exchange(asked_at_, now); }
  // One more timeout without a sign of life; the first one since `since`.
  void on_timeout(TimePoint now, TimePoint since, const RetransmissionTuning& tuning) {
    if (timeouts_ == 0) {
      silence_ = Duration::zero();
      timed_out_at_ = since;
    }
    // No wait is meant to be longer than max_rto: what is beyond it this process has slept through,
    // stopped or without a core, and heard nothing.
    silence_ += std::min(now - timed_out_at_, tuning.max_rto);
    timed_out_at_ = now;
    ++timeouts_;
    backoff_ = static_cast<std::uint8_t>(std::min(backoff_ + 1, kMaxBackoffShift));
    update_waits(tuning);
  }
  // The peer has restarted or was given up: what it did not say does not count any more.
  void forget_silence(const RetransmissionTuning& tuning) {
    timeouts_ = 0;
    backoff_ = 0;
    update_waits(tuning);
  }

  // --- What follows
  [[nodiscard]] const RttEstimator& rtt() const { return rtt_; }
  [[nodiscard]] Duration retransmit_wait() const { return retransmit_wait_; }
  [[nodiscard]] Duration tail_wait() const { return tail_wait_; }
  // The last timeout has not been followed by a sign of life.
  [[nodiscard]] bool is_silent() const { return timeouts_ != 0; }
  // This timeout was the one that made the connection look impaired.
  [[nodiscard]] bool has_become_impaired() const { return timeouts_ == kTimeoutsToDie; }
  [[nodiscard]] bool has_died(const RetransmissionTuning& tuning) const {
    return timeouts_ >= kTimeoutsToDie &&
           silence_ >= tuning.peer_timeout / (mutated(Mutation::impatient) ? 2 : 1);
  }
  // A packet expires a timeout after it has left or, if that was later, after the peer has answered
  // a packet of ours: in a queue that grows faster than the estimate learns of it every packet is
  // older than the timeout, while answers go on telling what is lost. As in RFC 6298, 5.3.
  [[nodiscard]] TimePoint expiry_of(TimePoint sent_at) const {
    return std::max(sent_at, last_answer_) + expiry_wait_;
  }
  [[nodiscard]] Duration expiry_wait() const { return expiry_wait_; }
  // When a packet that left at `sent_at` is to be asked for, again and again, while no round trip
  // has been measured.
  [[nodiscard]] TimePoint first_question_due(TimePoint sent_at) const {
    return std::max(sent_at, asked_at_) + answer_wait_;
  }
  // When a tail that is in flight is to be asked for: once for each acknowledgement, and where
  // losses are reported again and again if packets have timed out since.
  [[nodiscard]] TimePoint tail_probe_due(const RetransmissionTuning& tuning) const {
    if (tail_probes_ == 0) {
      return last_progress_ + tail_wait_;
    }
    if (!is_silent() || !tuning.losses_are_reported) {
      return kNever;
    }
    const int doublings = std::clamp(tail_probes_ - kTriesBeforeBackoff, 0, kMaxTailDoublings);
    const Duration wait = std::min(tail_wait_ * (1 << doublings), tuning.max_rto);
    return std::max(last_progress_, tail_probed_at_) + wait;
  }
  // When a peer that owes us something is to be asked.
  [[nodiscard]] TimePoint question_due() const {
    return question_open() ? asked_at_ + answer_wait_
                           : last_progress_ + kWaitsBeforeQuestion * answer_wait_;
  }
  // The same where it owes credits, which the bytes of a read do not bring: after so many times the
  // wait for an answer, and not before `turn`, but after max_rto at the latest.
  [[nodiscard]] TimePoint credit_question_due(int waits, TimePoint turn,
                                              const RetransmissionTuning& tuning) const {
    if (asked_at_ > last_ack_) {
      return asked_at_ + answer_wait_;
    }
    const Duration longest = std::max(tuning.max_rto, answer_wait_);
    return std::min(std::max(last_ack_ + waits * answer_wait_, turn), last_ack_ + longest);
  }
  // Nothing has come since the latest question.
  [[nodiscard]] bool question_open() const { return asked_at_ > last_progress_; }
  // Whether the peer will have been silent for so long, at `when`, that it may be dead.
  [[nodiscard]] bool is_out_of_touch(TimePoint when, const RetransmissionTuning& tuning) const {
    return when - last_progress_ >= tuning.peer_timeout;
  }

 private:
  static constexpr int kMaxBackoffShift = 6;
  static constexpr std::uint32_t kTimeoutsToDie = 3;  // at least, whatever the clock says
  static constexpr int kTriesBeforeBackoff = 8;
  // Enough to come from the shortest round trip to max_rto, so that a peer that has died or is
  // stopped is not asked ten thousand times before peer_timeout.
  static constexpr int kMaxTailDoublings = 20;

  void update_waits(const RetransmissionTuning& tuning) {
    const Duration base =
        std::clamp(rtt_.timeout() + tuning.ack_delay, tuning.min_rto, tuning.max_rto);
    // Until then nothing is known of queues, such as many first windows make.
    const int least = rtt_.seasoned() ? 0 : 1;
    const int doublings = std::max<int>(backoff_, least);
    retransmit_wait_ = std::min(base * (1 << doublings), tuning.max_rto);
    const int sooner = tuning.losses_are_reported && doublings > least ? 1 : 0;
    answer_wait_ = std::min(base * (1 << (doublings - sooner)), tuning.max_rto);
    expiry_wait_ = rtt_.measured() ? retransmit_wait_ : tuning.max_rto;
    const Duration tail = rtt_.mean() + rtt_.mean() / 2 + tuning.ack_delay;
    tail_wait_ = rtt_.measured() ? std::min(tail, retransmit_wait_) : retransmit_wait_;
  }

  Duration retransmit_wait_{};
  Duration answer_wait_{};  // to a question, which may well be asked once more before waits double
  Duration expiry_wait_{};
  Duration tail_wait_{};
  TimePoint last_progress_{};     // of the latest departure or acknowledgement
  TimePoint last_ack_{};          // of the latest acknowledgement, whatever caused it
  TimePoint last_answer_{};       // of the latest acknowledgement that a packet of ours has caused
  TimePoint asked_at_{};          // of the latest question
  std::uint32_t timeouts_ = 0;    // in a row, without a sign of life
  std::uint8_t tail_probes_ = 0;  // since the last acknowledgement

  // Looked at when a round trip is measured, or nothing comes.
  std::uint8_t backoff_ = 0;    // timeouts since the last round trip that was measured, or the most
  TimePoint timed_out_at_{};    // of the latest of the timeouts
  Duration silence_{};          // that these have lasted
  TimePoint tail_probed_at_{};  // of the latest probe of a tail
  RttEstimator rtt_;
};
static_assert(sizeof(RetransmissionTimer) == 2 * kCacheLine);

}  // namespace weft::srd
