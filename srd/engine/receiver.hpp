// Owns the receiving half of a reliability context: what has arrived from one peer, and what the
// next acknowledgements have to tell it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "srd/engine/immediate_table.hpp"
#include "srd/engine/owed.hpp"
#include "srd/engine/parting.hpp"
#include "srd/engine/receive_window.hpp"
#include "srd/net/machine.hpp"
#include "srd/wire/srd_header.hpp"

namespace weft::srd {

struct EngineParts;

// A packet that has to be echoed.
struct Echo {
  Echo() = default;
  Echo(TimePoint now, const wire::DataHeader& header, const RxPacket& packet)
      : arrived(arrival_of(now, packet)),
        psn(header.psn.value()),
        send_time(header.send_time.value()),
        path(header.common.path.value()),
        attempt(header.common.attempt),
        valid(true),
        congested(packet.ecn == Ecn::congested),
        probe(header.common.type == static_cast<std::uint8_t>(wire::PacketType::probe)) {}

  TimePoint arrived{};
  Psn psn;
  std::uint32_t send_time = 0;
  std::uint16_t path = 0;
  std::uint8_t attempt = 0;
  bool valid = false;
  bool congested = false;
  bool probe = false;
};

// Whether packets and messages come in the order in which the peer sent them; only for counters.
class ArrivalOrder {
 public:
  // A packet is late if one of the same message that belongs behind it has come.
  [[nodiscard]] bool note_packet(std::uint32_t message, std::uint64_t address) {
    const bool same = message == message_;
    const bool late = same && address < address_;
    message_ = message;
    address_ = same ? std::max(address, address_) : address;
    return late;
  }
  // Messages are numbered in the order in which they are posted, and may come in any. True if one
  // that was posted later has been delivered already.
  [[nodiscard]] bool note_message(std::uint32_t message) {
    const auto ahead = static_cast<std::int32_t>(message - latest_delivered_);
    if (ahead < 0 && latest_delivered_ != 0) {
      return true;
    }
    latest_delivered_ = message;
    return false;
  }

 private:
  std::uint32_t message_ = 0;           // of the latest packet
  std::uint32_t latest_delivered_ = 0;  // the message posted last among those delivered
  std::uint64_t address_ = 0;           // the highest one that this message was placed at
};

// Small, because in an incast there are thousands of them; the fields are in the order of how often
// packets look at them. Between two calls:
// - If it owes something (owes_ack()), the peer awaits a reply in the scheduler, or a delayed one.
// - What is owed once (trimmed and deferred packets, answers to probes) lies in the pools of
//   EngineParts, and forget() gives it back.
class Receiver {
 public:
  [[nodiscard]] ReceiveWindow& window() { return window_; }
  [[nodiscard]] const ReceiveWindow& window() const { return window_; }
  [[nodiscard]] ArrivalOrder& order() { return order_; }
  // What is missing of messages with immediate data; made on first use.
  [[nodiscard]] ImmediateTable& immediates() {
    if (!immediates_) {
      immediates_ = std::make_unique<ImmediateTable>();
    }
    return *immediates_;
  }
  [[nodiscard]] const ImmediateTable* known_immediates() const { return immediates_.get(); }

  // Replies name these endpoints, the peer's and ours: receivers steer packets by them.
  void answer(Qpn to, Qpn from) {
    reply_to_ = to;
    reply_from_ = from;
  }
  // A packet was accepted; `marked`: with a congestion mark.
  void count_mark(bool marked) { marked_ += marked ? 1U : 0U; }

  // --- What is owed to the peer
  // [wire 4.4] A packet with data has arrived that an acknowledgement is to tell of. True: at once.
  // An acknowledgement echoes one packet: the latest, unless an earlier one carried a mark that has
  // not been told yet. How many carried one is counted apart (count_mark()).
  [[nodiscard]] bool note_arrival(TimePoint now, const wire::DataHeader& header,
                                  const RxPacket& packet, std::uint8_t ack_every) {
    const bool congested = packet.ecn == Ecn::congested;
    if (!echo_.valid || !echo_.congested || congested) {
      echo_ = Echo(now, header, packet);
    }
    const bool wanted = wants_ack(header);
    return wanted || congested || unacknowledged_ >= ack_every;
  }
  // Each probe is echoed, because its answer speaks for its path. [wire 4.7]
  void note_probe(EngineParts& parts, TimePoint now, const wire::DataHeader& header,
                  const RxPacket& packet);
  // To be told once, in one of the next acknowledgements: the packet must come again.
  void note_again(EngineParts& parts, const wire::DataHeader& header, std::uint8_t code);
  // The peer is to be told what it may send.
  void note_grant() { grant_ = true; }
  // The peer wants so many credits, cumulative. If it has asked for as many before, it may not have
  // heard the answer.
  void note_demand(TimePoint now, std::uint32_t demand) {
    const bool more = static_cast<std::int32_t>(demand - demand_) > 0;
    asked_at_ = now;
    say_twice_ = say_twice_ || !more;
    demand_ = more ? demand : demand_;
    grant_ = true;
  }
  // When data, or a request for credits, came last.
  [[nodiscard]] TimePoint last_heard() const { return std::max(asked_at_, echo_.arrived); }
  // There is something that the next acknowledgement has to say.
  [[nodiscard]] bool owes_ack() const {
    return echo_.valid || grant_ || say_twice_ || !again_.empty() || !probes_.empty() ||
           (parting_ && parting_->owes_word());
  }
  // Whether there is anything that an acknowledgement could say: after a restart there may not be.
  [[nodiscard]] bool can_ack() const { return owes_ack() || window_.open(); }

  // Writes an acknowledgement of what has arrived. Its common header, and how many credits are
  // granted where they are rationed, are the caller's.
  void write_ack(EngineParts& parts, TimePoint now, const wire::CommonHeader& common,
                 std::uint32_t granted, TxPacket& out);
  void steer(wire::CommonHeader& header) const {
    header.destination_qpn = reply_to_.value();
    header.source_qpn = reply_from_.value();
  }

  // Made on first use: while nobody ends, peers do without.
  [[nodiscard]] Parting& parting() {
    if (!parting_) {
      parting_ = std::make_unique<Parting>();
    }
    return *parting_;
  }
  [[nodiscard]] Parting* known_parting() { return parting_.get(); }
  // The peer may wait for acknowledgements, and this process ends.
  [[nodiscard]] bool is_awaited() const { return parting_ && parting_->is_awaited(window_); }

  // The peer has restarted: nothing of its former life counts any more.
  void forget(EngineParts& parts);

 private:
  // Counts an arrival. True if the sender waits for an acknowledgement of it. The packet that asks
  // for one may overtake others: then the sender waits for the one that fills the last gap, which
  // does not ask.
  [[nodiscard]] bool wants_ack(const wire::DataHeader& header) {
    ++unacknowledged_;
    const bool asked = (header.common.flags & wire::kAckRequested) != 0;
    const bool whole = window_.cumulative() == window_.top();
    const bool closes = gap_at_end_ && whole;
    gap_at_end_ = !whole && (gap_at_end_ || asked);
    return asked || closes;
  }
  [[nodiscard]] std::byte* write_map(std::byte* cursor, wire::AckHeader& header) const;
  [[nodiscard]] std::byte* write_results(EngineParts& parts, std::byte* cursor,
                                         wire::AckHeader& header);

  Echo echo_;
  std::uint8_t unacknowledged_ = 0;  // packets since the last acknowledgement
  bool gap_at_end_ = false;          // an acknowledgement that was asked for had to leave gaps
  bool grant_ = false;               // credits are to be told
  bool say_twice_ = false;           // the next acknowledgement
  std::uint32_t marked_ = 0;         // accepted packets that carried a congestion mark
  ArrivalOrder order_;
  Qpn reply_to_;
  Qpn reply_from_;
  std::unique_ptr<Parting> parting_;
  // The latest acknowledgement has said that every number before this one is settled. Before any, a
  // question may have an answer too many.
  Psn told_;
  OwedList again_;   // trimmed and deferred packets that have not been told
  OwedList probes_;  // echoes of probes that have not been told
  ReceiveWindow window_;
  std::uint32_t demand_ = 0;
  TimePoint asked_at_{};  // when the peer last asked for credits
  std::unique_ptr<ImmediateTable> immediates_;
};

}  // namespace weft::srd
