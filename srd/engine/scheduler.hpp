// Owns the order in which an engine serves its peers: which peer replies, which sends data, and
// whose deadline is due.
//
// A peer stands in four lists, each at most once:
// - replies: it is owed an acknowledgement or a notice, at once. First come, first served, and
//   before any data.
// - delayed replies: it is owed one by a certain time. All wait equally long, so the list is in
//   order without a heap. A peer whose reply has left early stays in the list until it comes to the
//   front; that its Turn names no or another time says that the entry means nothing any more.
// - ready: it may have data to send. Its turn is kPacketsOfTurn packets; then it goes to the end.
// - deadlines: one for each peer in a heap, never later than its next one. It may be earlier: then
//   the call finds nothing to do. So the common case, a deadline that moves on, costs nothing.
//
// A peer's part is its Turn, which no other type reads or writes.
#pragma once

#include <algorithm>
#include <cstdint>

#include "srd/base/deadline_heap.hpp"
#include "srd/base/ring_queue.hpp"
#include "srd/base/time.hpp"
#include "srd/engine/mutation.hpp"
#include "srd/engine/peer_table.hpp"

namespace weft::srd {

class Scheduler {
 public:
  // Enough to keep a peer's state in the cache, few enough to be fair.
  static constexpr std::uint32_t kPacketsOfTurn = 8;

  explicit Scheduler(PeerTable& peers) : peers_(peers) {}

  // --- Data
  // False if it was ready before.
  bool make_ready(Peer& peer) {
    if (peer.turn.ready_) {
      return false;
    }
    peer.turn.ready_ = true;
    ready_.push_slot() = peer.id;
    return true;
  }
  // The peer whose turn it is; nullptr if no peer is ready.
  [[nodiscard]] Peer* first_ready() { return ready_.empty() ? nullptr : &peers_[ready_.front()]; }
  [[nodiscard]] const Peer* first_ready() const {
    return ready_.empty() ? nullptr : &peers_[ready_.front()];
  }
  // The first ready peer has sent a packet.
  void count_packet() {
    if (++packets_of_turn_ >= kPacketsOfTurn && !mutated(Mutation::endless_turn)) {
      const PeerId id = ready_.front();
      packets_of_turn_ = 0;
      ready_.pop();
      ready_.push_slot() = id;
    }
  }
  // The first ready peer can send nothing: it is not ready any more.
  void end_turn() {
    peers_[ready_.front()].turn.ready_ = false;
    ready_.pop();
    packets_of_turn_ = 0;
  }

  // --- Replies
  void reply_now(Peer& peer) {
    if (peer.turn.reply_due_ != kNever) {
      cancel_delayed_reply(peer);
      drop_cancelled();
    }
    if (!peer.turn.reply_queued_) {
      peer.turn.reply_queued_ = true;
      replies_.push_slot() = peer.id;
    }
  }
  // No call may name an earlier time than the one before it. If a reply to this peer is due
  // already, that time stays.
  void reply_by(Peer& peer, TimePoint when) {
    if (peer.turn.reply_due_ == kNever) {
      peer.turn.reply_due_ = when;
      delayed_.push_slot() = {when, peer.id};
    }
  }
  void cancel_delayed_reply(Peer& peer) { peer.turn.reply_due_ = kNever; }
  // Delayed replies whose time has come are to leave now.
  void queue_overdue_replies(TimePoint now) {
    while (!delayed_.empty() && delayed_.front().when <= now) {
      Peer& peer = peers_[delayed_.front().peer];
      if (peer.turn.reply_due_ == delayed_.front().when) {
        reply_now(peer);  // removes the entry, too
      } else {
        delayed_.pop();
      }
    }
  }
  [[nodiscard]] static bool awaits_reply(const Peer& peer) { return peer.turn.reply_queued_; }
  // The peer that is to be answered first, which is taken out of the list; nullptr if there is
  // none.
  [[nodiscard]] Peer* take_reply() {
    if (replies_.empty()) {
      return nullptr;
    }
    Peer& peer = peers_[replies_.front()];
    replies_.pop();
    peer.turn.reply_queued_ = false;
    return &peer;
  }

  // --- Deadlines
  void arm(Peer& peer, TimePoint when) {
    if (when < peer.turn.deadline_) {
      peer.turn.deadline_ = when;
      deadlines_.set(peer.id.value(), when);
    }
  }
  // The peer whose deadline passed first, which has none any more; nullptr if none has passed.
  [[nodiscard]] Peer* take_due(TimePoint now) {
    if (deadlines_.earliest() > now) {
      return nullptr;
    }
    Peer& peer = peers_[PeerId{deadlines_.earliest_index()}];
    deadlines_.clear(peer.id.value());
    peer.turn.deadline_ = kNever;
    return &peer;
  }
  // When a deadline or a delayed reply is due at the earliest.
  [[nodiscard]] TimePoint next_due() const {
    const TimePoint reply = delayed_.empty() ? kNever : delayed_.front().when;
    return std::min(deadlines_.earliest(), reply);
  }

  // A hint: next_due(), first_ready() and take_reply() will be called soon.
  void prefetch() const {
    deadlines_.prefetch();
    ready_.prefetch_front();
    replies_.prefetch_front();
  }

 private:
  struct DelayedReply {
    TimePoint when;
    PeerId peer;
  };

  void drop_cancelled() {
    while (!delayed_.empty() &&
           peers_[delayed_.front().peer].turn.reply_due_ != delayed_.front().when) {
      delayed_.pop();
    }
  }

  PeerTable& peers_;
  DeadlineHeap deadlines_;
  RingQueue<DelayedReply> delayed_;
  RingQueue<PeerId> ready_;
  RingQueue<PeerId> replies_;
  std::uint32_t packets_of_turn_ = 0;  // that the first ready peer has sent
};

}  // namespace weft::srd
