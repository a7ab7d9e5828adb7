// Owns the transports that people compare SRD with: all packets of a flow take one path, in order.
// Go-back-N with or without DCQCN stands for RDMA's RC; selective repeat with Reno or DCTCP for
// TCP.
#pragma once

#include <cstdint>
#include <deque>
#include <unordered_map>
#include <vector>

#include "emu/sim/transport.hpp"
#include "srd/base/deadline_heap.hpp"
#include "srd/base/units.hpp"

namespace weft::sim {

// Which of the transports, and its numbers. What the network decides (payload, rate, round trip)
// comes from the scenario.
struct OnePathConfig {
  enum class Recovery : std::uint8_t { go_back_n, selective };
  enum class Control : std::uint8_t { none, dcqcn, reno, dctcp };
  Recovery recovery = Recovery::go_back_n;
  Control control = Control::none;
  std::uint32_t payload = 4086;      // bytes of a full packet
  Rate line_rate = Rate::gbps(100);  // of the host's uplink
  Duration base_rtt = std::chrono::microseconds{14};
  double window_bdps = 1.5;  // the most that may be in flight, in bandwidth-delay products
  Duration min_rto = std::chrono::microseconds{500};
  std::uint32_t ack_every = 4;        // packets per acknowledgement, if nothing is amiss
  std::uint32_t initial_window = 10;  // packets; Reno and DCTCP
  std::uint64_t seed = 1;
};

// Both ends of the flows of one host. Packets of a flow are numbered from 0; each says how many
// there are, so the receiver needs no set-up. The flows of a host take turns. A flow without
// progress is tried for ever: it never fails.
//
// These are models for comparisons, with the mechanisms that decide how such a transport shares a
// network, not implementations of a standard.
//
// Each flow has one deadline in `deadlines_`, the earliest of its timers, by its index in
// `senders_`; plan() has to follow every change of a sender.
class OnePathTransport final : public HostTransport, private srd::Machine {
 public:
  // The most packets of one flow. Selective repeat keeps a bit for each, and the arithmetic on 32
  // bits looks a few packets ahead.
  static constexpr std::uint32_t kMaxPackets = 1U << 31;

  explicit OnePathTransport(const OnePathConfig& config);
  [[nodiscard]] static std::uint64_t packets_of(Bytes bytes, std::uint32_t payload);

  [[nodiscard]] srd::Machine& machine() override { return *this; }
  void start(TimePoint now, const FlowStart& flow) override;
  [[nodiscard]] std::size_t poll(std::span<FlowEvent> events) override;
  [[nodiscard]] bool is_control(const srd::TxPacket& packet) const override {
    return packet.payload_size() == 0;
  }
  [[nodiscard]] TransportCounters counters() const override { return counters_; }

 private:
  // On the wire as it lies in memory: both ends are this program. Which field means what depends on
  // the type.
  struct Header {
    std::uint8_t type = 0;
    std::uint8_t congested = 0;
    std::uint16_t reserved = 0;
    std::uint32_t flow = 0;
    std::uint32_t psn = 0;      // data: this packet; ack: next expected; nak: what is missing
    std::uint32_t packets = 0;  // data: of the whole flow; ack: the packet that caused it
    std::uint64_t sent_at = 0;  // ns of virtual time; echoed by the acknowledgement
  };
  enum Type : std::uint8_t { data = 1, ack = 2, nak = 3, cnp = 4 };

  // A flow being sent. When it has ended, the entry serves a later flow. Always acked <= next <=
  // highest <= packets; a timeout or a NAK sets `next` back to `acked`, and what lies below
  // `highest` is then sent again.
  struct Sender {
    FlowStart flow;
    std::uint32_t packets = 0;
    std::uint32_t next = 0;     // next new packet
    std::uint32_t acked = 0;    // all before this one
    std::uint32_t highest = 0;  // one past the highest ever sent
    bool active = false;
    // Selective repeat. Bits of `sacked` say which packets have arrived beyond `acked`.
    std::vector<std::uint64_t> sacked;
    std::uint32_t sacked_count = 0;
    std::uint32_t highest_sacked = 0;
    std::uint32_t recover = 0;  // in recovery until this is acknowledged
    std::uint32_t resend = 0;   // next hole to look at
    bool recovering = false;
    // Window (Reno, DCTCP) and rate (DCQCN).
    double window = 0;            // packets
    double threshold = 1e9;       // of slow start, packets
    double alpha = 1;             // estimated share of marked packets
    std::uint32_t marked = 0;     // acknowledged in this round with a mark
    std::uint32_t counted = 0;    // acknowledged in this round
    std::uint32_t round_end = 0;  // the round ends when this is acknowledged
    double rate = 0;              // bytes/ns; DCQCN
    double target_rate = 0;
    std::uint32_t stage = 0;  // increases since the last notice of congestion
    TimePoint next_send{};
    TimePoint increase_at = kNever;
    TimePoint alpha_at = kNever;
    TimePoint rto_at = kNever;
    Duration srtt{};
    std::uint32_t backoff = 0;
  };
  // A flow being received, by its number. Kept when the flow has ended: a late duplicate must still
  // be acknowledged, or its sender would repeat it for ever. `got` has a bit per packet (selective
  // repeat only).
  struct Receiver {
    std::uint32_t expected = 0;
    std::uint32_t unacked = 0;
    bool nak_sent = false;  // for the packet expected now: one is enough
    bool complete = false;
    TimePoint cnp_at{};  // earliest time of the next notice of congestion
    std::vector<std::uint64_t> got;
  };

  void on_packet(TimePoint now, const srd::RxPacket& packet) override;
  void on_timeout(TimePoint now) override;
  [[nodiscard]] bool next_transmit(TimePoint now, srd::TxPacket& out) override;
  [[nodiscard]] TimePoint next_timeout() const override { return deadlines_.earliest(); }

  void on_data(TimePoint now, const srd::RxPacket& packet, const Header& header);
  void on_ack(TimePoint now, Sender& sender, const Header& header);
  void on_nak(TimePoint now, Sender& sender, const Header& header);
  void on_cnp(TimePoint now, Sender& sender);
  // `newly`: packets that this acknowledgement was the first to cover.
  void adjust_window(TimePoint now, Sender& sender, std::uint32_t newly, bool congested);
  void lose(Sender& sender);
  void increase_rate(TimePoint now, Sender& sender);
  void reply(fabric::PortId to, const Header& header);
  // Chooses the packet that the flow sends next; false if its window is full or nothing is left to
  // send. Pacing is the caller's concern.
  [[nodiscard]] bool pick(const Sender& sender, std::uint32_t& psn) const;
  // Packets sent, neither acknowledged nor known to have arrived out of order.
  [[nodiscard]] std::uint32_t in_flight(const Sender& sender) const;
  void fill(TimePoint now, Sender& sender, std::uint32_t psn, srd::TxPacket& out);
  // Recomputes the deadline of the flow in senders_[index]; call it after whatever changes the
  // flow's state.
  void plan(TimePoint now, std::uint32_t index);
  void arm_rto(TimePoint now, Sender& sender);
  [[nodiscard]] std::uint32_t payload_of(const Sender& sender, std::uint32_t psn) const;

  OnePathConfig config_;
  double max_window_ = 1;
  std::vector<Sender> senders_;
  std::unordered_map<std::uint32_t, std::uint32_t> sender_of_;
  std::unordered_map<std::uint32_t, Receiver> receivers_;
  std::vector<std::uint32_t> active_;
  std::size_t turn_ = 0;
  std::deque<std::pair<fabric::PortId, Header>> replies_;
  std::vector<FlowEvent> events_;
  DeadlineHeap deadlines_;
  TransportCounters counters_;
};

}  // namespace weft::sim
