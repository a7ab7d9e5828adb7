// Owns one engine whose peer is the test: packets are made by hand, and what leaves is looked at.
//
// So a test can be a peer that no engine of ours would be: early, late, silent, wrong. Whether two
// engines understand each other is asked elsewhere (tests/sim/roce_swarm_test.cpp).
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <optional>
#include <vector>

#include "emu/roce/engine/engine.hpp"

namespace weft::roce {

using namespace std::chrono_literals;

// What the peer is called, and the domain that all keys belong to.
constexpr std::uint32_t kPeerQpn = 0x77;
constexpr std::uint32_t kDomain = 5;
constexpr std::uint32_t kRqPsn = 0xFFFFFE;  // wraps in every test
constexpr std::uint32_t kSqPsn = 100;
constexpr std::uint32_t kAllAccess = kLocalWrite | kRemoteWrite | kRemoteRead | kRemoteAtomic;

inline srd::Address host(unsigned last) { return srd::Address::v4(10, 0, 0, last); }

// A packet as the engine gave it out, its headers read and its padding removed.
struct Sent {
  wire::Packet packet;
  std::vector<std::byte> payload;
  srd::Address to;
  srd::Ecn ecn = srd::Ecn::not_capable;
};

// A queue pair with all rights on its memory, whose peer is host(2). Time stands still except in
// wait(). Attributes that a test changes before bring_up() take effect there.
class Bench {
 public:
  explicit Bench(QpType type = QpType::rc, QpSetup request = default_request(),
                 EngineConfig config = default_config())
      : engine(config, sink) {
    request.type = type;
    request.domain = kDomain;
    attributes.access = kAllAccess;
    attributes.qkey = 0x1234;
    attributes.address.destination = host(2);
    // 256 bytes, the smallest: a message of several packets is short.
    attributes.path_mtu = 1;
    // 4.096 us x 2^14: 67 ms, what programs usually ask for. 7 retries, where 7 of receivers that
    // are not ready means for ever; and 12 stands for 0.64 ms between those.
    attributes.timeout = 14;
    attributes.retry_count = 7;
    attributes.rnr_retry = 7;
    attributes.rq_psn = kRqPsn;
    attributes.sq_psn = kSqPsn;
    attributes.destination_qpn = kPeerQpn;
    attributes.max_reads = attributes.max_dest_reads = 4;
    attributes.min_rnr_timer = 12;
    // Made always, used only where the request names one.
    srq = engine.create_srq(4, 2);
    if (request.srq != kNoSrq) {
      request.srq = srq;
    }
    qpn = engine.create_qp(request);
    key = engine.keys().register_region(
        {memory.data(), address(0), memory.size(), kAllAccess | kWindowBind, kDomain});
  }
  static QpSetup default_request() {
    QpSetup request;
    request.max_send = request.max_receive = 8;
    request.max_send_sge = request.max_receive_sge = 4;
    request.max_inline = 64;
    request.signal_all = true;
    return request;
  }
  static EngineConfig default_config() {
    EngineConfig config;
    config.addresses = {host(1)};
    return config;
  }

  // In the memory that all keys lead to.
  [[nodiscard]] std::uint64_t address(std::size_t at) const {
    return reinterpret_cast<std::uint64_t>(memory.data() + at);
  }
  [[nodiscard]] Sge sge(std::size_t at, std::uint32_t length) const {
    return {address(at), length, key};
  }

  // Returns 0 or an errno, as modify_qp() does.
  int to(QpState state, std::uint32_t mask) {
    attributes.state = state;
    return engine.modify_qp(now, qpn, mask | kMaskState, attributes);
  }
  // Through all states up to `state`, for the type of the queue pair.
  void bring_up(QpType type = QpType::rc, QpState state = QpState::rts) {
    const bool datagram = type == QpType::ud;
    const bool reliable = type == QpType::rc;
    const std::uint32_t key_mask = datagram ? kMaskQkey : kMaskAccess;
    ASSERT_EQ(to(QpState::init, kMaskPkeyIndex | kMaskPort | key_mask), 0);
    if (state == QpState::init) {
      return;
    }
    // Which attributes must be given for which step is the specification's table, per type.
    const std::uint32_t connected = kMaskAddress | kMaskPathMtu | kMaskDestQpn | kMaskRqPsn;
    ASSERT_EQ(to(QpState::rtr, (datagram ? 0 : connected) |
                                   (reliable ? kMaskMaxDestReads | kMaskMinRnrTimer : 0)),
              0);
    if (state == QpState::rtr) {
      return;
    }
    ASSERT_EQ(to(QpState::rts, kMaskSqPsn | (reliable ? kMaskTimeout | kMaskRetryCount |
                                                            kMaskRnrRetry | kMaskMaxReads
                                                      : 0)),
              0);
  }

  // A request of the peer, which the test may still change: it asks for an acknowledgement and
  // names the beginning of the memory.
  wire::Packet request(wire::Operation operation, std::uint32_t psn,
                       wire::Transport transport = wire::Transport::rc) const {
    wire::Packet packet;
    packet.opcode = wire::opcode_of(transport, operation);
    packet.destination_qpn = qpn;
    packet.psn = psn & kPsnMask;
    packet.ack_request = true;
    packet.rkey = key;
    packet.address = address(0);
    packet.syndrome = wire::kAckNoCredit;
    return packet;
  }
  // `payload` bytes of 0xA5 follow the headers, and the padding that their number asks for. There
  // is no checksum: carriers check it.
  void arrive(wire::Packet packet, std::size_t payload = 0, srd::Ecn ecn = srd::Ecn::not_capable,
              srd::Address from = host(2)) {
    std::vector<std::byte> bytes(wire::kLargestHeader);
    packet.pad = wire::pad_of(payload);
    bytes.resize(wire::write_headers(packet, bytes.data()));
    bytes.resize(bytes.size() + payload, std::byte{0xA5});
    bytes.resize(bytes.size() + packet.pad);
    srd::RxPacket rx;
    rx.from = from;
    rx.ecn = ecn;
    rx.bytes = bytes;
    engine.on_packet(now, rx);
  }

  // The next packet that may leave now.
  std::optional<Sent> next() {
    srd::TxPacket out;
    return engine.next_transmit(now, out) ? std::optional(look(out)) : std::nullopt;
  }
  // All of them. As a carrier does, it looks at none before it has a burst.
  std::vector<Sent> all() {
    std::vector<Sent> packets;
    std::array<srd::TxPacket, srd::TxPacket::kMaxBurst> burst;
    for (std::size_t count = burst.size(); count == burst.size();) {
      count = 0;
      while (count < burst.size() && engine.next_transmit(now, burst[count])) {
        ++count;
      }
      for (const srd::TxPacket& out : std::span(burst).first(count)) {
        packets.push_back(look(out));
      }
    }
    return packets;
  }
  static Sent look(const srd::TxPacket& out) {
    Sent sent;
    sent.to = out.to;
    sent.ecn = out.ecn;
    const auto headers = std::span(out.header).first(out.header_size);
    EXPECT_EQ(wire::parse_packet(headers, out.payload_size(), sent.packet),
              wire::PacketFault::none);
    for (const auto& piece : out.payload) {
      sent.payload.insert(sent.payload.end(), piece.begin(), piece.end());
    }
    sent.payload.resize(sent.payload.size() - sent.packet.pad);
    return sent;
  }
  // The syndrome of the only answer, or 0xFF for none.
  unsigned answer() {
    const auto packets = all();
    EXPECT_LE(packets.size(), 1U);
    return packets.empty() ? 0xFFU : packets.front().packet.syndrome;
  }
  // Lets time pass up to the engine's next deadline; false if it has none.
  bool wait() {
    if (engine.next_timeout() == kNever) {
      return false;
    }
    now = std::max(now, engine.next_timeout());
    engine.on_timeout(now);
    return true;
  }

  std::optional<Completion> completion() {
    if (sink.completions.empty()) {
      return std::nullopt;
    }
    const Completion front = sink.completions.front();
    sink.completions.pop();
    return front;
  }
  std::optional<EventType> event() {
    if (sink.events.empty()) {
      return std::nullopt;
    }
    const EventType front = sink.events.front().type;
    sink.events.pop();
    return front;
  }
  [[nodiscard]] QpState state() const { return engine.query_qp(qpn)->state; }

  // Posts a request with what every opcode might need; each takes what it knows.
  int send(WrOpcode opcode, std::uint32_t length, std::uint64_t wr_id = 1, std::uint8_t flags = 0) {
    WorkRequest work;
    work.wr_id = wr_id;
    work.opcode = opcode;
    work.flags = flags;
    work.remote_address = 0x10000;
    work.rkey = 0x99;
    work.immediate = 0xABCD;
    work.compare_add = 3;
    work.swap = 4;
    work.remote_qpn = kPeerQpn;
    work.remote_qkey = 0x5678;
    work.address.destination = host(2);
    const Sge segment = sge(0, length);
    return engine.post_send(qpn, work, {&segment, 1});
  }

  Sink sink;
  Engine engine;
  QpAttributes attributes;
  std::uint32_t qpn = 0;
  std::uint32_t srq = kNoSrq;
  std::uint32_t key = 0;
  alignas(8) std::array<std::byte, 8192> memory{};
  TimePoint now = time_at(1ms);
};

}  // namespace weft::roce
