// Owns the one queue of the congestion tests, and the engines around it.
#include "tests/sim/congestion_world.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "srd/engine/place.hpp"
#include "srd/net/envelope.hpp"
#include "srd/wire/srd_codec.hpp"
#include "srd/wire/srd_header.hpp"

namespace weft::testing {
namespace {

constexpr srd::Qpn kQpn{1};
constexpr std::uint32_t kReceiver = 0;
constexpr std::uint32_t kMessage = 1U << 30;
constexpr Bytes kControlSize = sizeof(srd::wire::DataHeader);
constexpr int kSamplesPerRtt = 8;

// Host 0 receives; the sender i of the interface is host i + 1.
srd::Address address_of(std::uint32_t host) {
  srd::Address address;
  address.bytes[14] = static_cast<std::byte>(host >> 8);
  address.bytes[15] = static_cast<std::byte>(host);
  return address;
}

std::uint32_t host_of(const srd::Address& address) {
  return std::to_integer<std::uint32_t>(address.bytes[14]) << 8 |
         std::to_integer<std::uint32_t>(address.bytes[15]);
}

}  // namespace

CongestionWorld::CongestionWorld(const CongestionSetup& setup) : setup_(setup), rng_(setup.seed) {
  product_ = static_cast<double>(setup.rate.bytes_in(setup.base_rtt));
  limit_ = static_cast<Bytes>(setup.buffer_products * product_);
  // In a deep buffer marks begin where they would in one of a product: it is depth beyond that
  // which the control must leave empty.
  const double marked = std::min(setup.buffer_products, 1.0) * product_;
  mark_low_ = 0.2 * marked;
  mark_high_ = 0.8 * marked;
  senders_.resize(setup.senders);
  hosts_.resize(setup.senders + 1);
  for (std::uint32_t i = 0; i < hosts_.size(); ++i) {
    srd::EngineConfig config;
    config.seed = mix64(setup.seed * 4096 + i);
    config.congestion_control = setup.control;
    config.path_selector = setup.selector;
    config.paths = setup.paths;
    config.line_rate = setup.rate;
    config.base_rtt = Duration{
        static_cast<std::int64_t>(setup.told_rtt * static_cast<double>(setup.base_rtt.count()))};
    config.mtu_payload = setup.payload;
    config.trimming = setup.trimming;
    config.checksum = false;
    config.max_work_requests = 64;
    config.max_completions = 256;
    hosts_[i].engine = std::make_unique<srd::Engine>(config);
    EXPECT_TRUE(hosts_[i].engine->open_endpoint(kQpn, {.unsolicited_immediate = true}).has_value());
  }
  key_ = hosts_[kReceiver]
             .engine->memory()
             .insert({.length = Bytes{1} << 40,
                      .access = srd::Access::remote_write,
                      .placement = srd::Placement::phantom})
             .value();
  set_base_rtt(setup.base_rtt);
  // The first sample posts the next one, and so on without end.
  post(now_, Kind::sample, 0);
}

// Changes the distances; the tests' measures stay as they were.
void CongestionWorld::set_base_rtt(Duration base_rtt) {
  const Bytes packet = setup_.payload + kControlSize;
  // A packet is on two wires on its way there and its acknowledgement on one on its way back; what
  // is left of the round trip are two flights.
  const Duration on_wires = 2 * setup_.rate.time_for(packet) + setup_.rate.time_for(kControlSize);
  for (std::uint32_t i = 0; i < setup_.senders; ++i) {
    const double place = setup_.senders == 1 ? 1 : static_cast<double>(i) / (setup_.senders - 1);
    const double share = setup_.nearest + (1 - setup_.nearest) * place;
    const auto whole = static_cast<std::int64_t>(share * static_cast<double>(base_rtt.count()));
    hosts_[i + 1].flight = std::max((Duration{whole} - on_wires) / 2, Duration{1});
  }
}

void CongestionWorld::start_all() {
  for (std::uint32_t i = 0; i < setup_.senders; ++i) {
    start(i);
  }
}

void CongestionWorld::start(std::uint32_t sender) {
  senders_[sender].wanted = true;
  refill(sender);
  serve(sender + 1);
}

void CongestionWorld::refill(std::uint32_t sender) {
  srd::Engine& engine = *hosts_[sender + 1].engine;
  std::array<srd::Completion, 16> ended;
  while (engine.poll(ended) > 0) {
  }
  // Two messages are open at a time, so that the end of one leaves no gap.
  if (!senders_[sender].wanted || engine.outstanding() > 1) {
    return;
  }
  srd::WriteRequest request;
  request.peer = engine.peer(address_of(kReceiver), srd::AttachmentId{}).value();
  request.source = kQpn;
  request.destination = kQpn;
  request.segments[0] = {nullptr, kMessage};
  request.remote_key = key_;
  request.phantom = true;
  EXPECT_EQ(engine.post(request), srd::PostResult::accepted);
}

void CongestionWorld::run_for(Duration duration) {
  const TimePoint end = now_ + duration;
  while (!events_.empty() && events_.top().when <= end) {
    const Event event = events_.top();
    events_.pop();
    now_ = event.when;
    take(event);
  }
  now_ = end;
}

void CongestionWorld::take(const Event& event) {
  Host& host = hosts_[event.host];
  switch (event.kind) {
    case Kind::at_port:
      at_port(event.packet);
      break;
    case Kind::delivered:
      deliver(event.packet);
      break;
    case Kind::nic_free:
      host.nic_busy = false;
      serve(event.host);
      break;
    case Kind::deadline:
      if (host.armed == event.when) {
        host.armed = kNever;
        serve(event.host);
      }
      break;
    case Kind::sample: {
      const double queue = static_cast<double>(queued()) / product_;
      queue_sum_ += queue;
      ++samples_;
      most_queue_ = std::max(most_queue_, queue);
      post(now_ + setup_.base_rtt / kSamplesPerRtt, Kind::sample, 0);
      break;
    }
  }
}

void CongestionWorld::serve(std::uint32_t index) {
  Host& host = hosts_[index];
  if (host.engine->next_timeout() <= now_) {
    host.engine->on_timeout(now_);
  }
  if (index != kReceiver) {
    refill(index - 1);
  }
  if (!host.nic_busy) {
    transmit(index);
  }
  const TimePoint deadline = host.engine->next_timeout();
  // A deadline that has passed while the port is busy needs no event: the end of the packet serves
  // the host.
  if (deadline != kNever && deadline < host.armed && !(deadline <= now_ && host.nic_busy)) {
    host.armed = std::max(deadline, now_ + Duration{1});
    post(host.armed, Kind::deadline, index);
  }
}

// The NIC takes one packet at a time, when the one before has left.
void CongestionWorld::transmit(std::uint32_t index) {
  Host& host = hosts_[index];
  if (!host.engine->next_transmit(now_, out_)) {
    return;
  }
  std::uint32_t slot = 0;
  if (free_packets_.empty()) {
    slot = static_cast<std::uint32_t>(packets_.size());
    packets_.emplace_back();
  } else {
    slot = free_packets_.back();
    free_packets_.pop_back();
  }
  Packet& packet = packets_[slot];
  packet.from = index;
  packet.to = host_of(out_.to);
  packet.path = out_.path;
  packet.ecn = out_.ecn;
  packet.trimmed = false;
  packet.header = out_.header_size;
  packet.payload = static_cast<std::uint32_t>(out_.payload_size());
  ASSERT_LE(packet.header, packet.bytes.size());
  std::memcpy(packet.bytes.data(), out_.header.data(), packet.header);
  const Duration on_wire = setup_.rate.time_for(packet.payload + kControlSize);
  host.nic_busy = true;
  post(now_ + on_wire, Kind::nic_free, index);
  if (index == kReceiver) {
    post(now_ + on_wire + hosts_[packet.to].flight, Kind::delivered, packet.to, slot);
  } else {
    // Paths differ in length by some packets, and no clock is exact: else senders would be in step,
    // and one of them would find the queue full each time.
    const std::uint64_t spread = static_cast<std::uint64_t>(2 * on_wire.count()) + 1;
    const Duration detour{
        static_cast<std::int64_t>(mix64(index * 4096ULL + packet.path.value()) % spread)};
    TimePoint arrival = now_ + on_wire + host.flight + detour +
                        Duration{static_cast<std::int64_t>(
                            rng_.below(static_cast<std::uint32_t>(on_wire.count()) + 1))};
    TimePoint& latest = host.latest_on_path[packet.path.value() % host.latest_on_path.size()];
    arrival = latest = std::max(arrival, latest);
    post(arrival, Kind::at_port, kReceiver, slot);
  }
}

// The port is modelled by one time: when it will have sent all that is in front of it. How much
// that is follows from the rate.
void CongestionWorld::at_port(std::uint32_t slot) {
  Packet& packet = packets_[slot];
  if (srd::wire::SrdCodec::dscp_of(packet.bytes, false) == srd::wire::kDscpControl) {  // goes first
    post(now_, Kind::delivered, kReceiver, slot);
    return;
  }
  ++arrived_;
  const Bytes size = packet.payload + kControlSize;
  const Bytes behind = queued();
  // An empty queue takes any packet, also where the buffer is smaller than one.
  if (behind + size > std::max(limit_, size)) {
    ++lost_;
    if (setup_.trimming) {
      packet.trimmed = true;
      packet.payload = 0;
      post(now_, Kind::delivered, kReceiver, slot);
    } else {
      free_packets_.push_back(slot);
    }
    return;
  }
  if (setup_.ecn &&
      rng_.chance((static_cast<double>(behind) - mark_low_) / (mark_high_ - mark_low_))) {
    packet.ecn = srd::Ecn::congested;
  }
  port_free_ = std::max(port_free_, now_) + setup_.rate.time_for(size);
  post(port_free_, Kind::delivered, kReceiver, slot);
}

void CongestionWorld::deliver(std::uint32_t slot) {
  // A copy, because what the engine sends in answer may take the slot and let packets_ grow.
  const Packet packet = packets_[slot];
  free_packets_.push_back(slot);
  if (packet.to == kReceiver && packet.payload != 0) {
    srd::wire::DataHeader header;
    std::memcpy(&header, packet.bytes.data(), sizeof header);
    Sender& sender = senders_[packet.from - 1];
    const std::uint32_t psn = header.psn.value();
    // Sequence numbers begin at 0 and do not come round in the time that a test takes.
    if (sender.seen.size() <= psn) {
      sender.seen.resize(psn * 2 + 1024);
    }
    if (!sender.seen[psn]) {
      sender.seen[psn] = true;
      sender.delivered += packet.payload + kControlSize;
    }
  }
  srd::RxPacket rx;
  rx.from = address_of(packet.from);
  rx.path = packet.path;
  rx.ecn = packet.ecn;
  rx.trimmed = packet.trimmed;
  rx.bytes = std::span(packet.bytes).first(packet.header);
  rx.more = srd::phantom_payload(packet.payload);
  hosts_[packet.to].engine->on_packet(now_, rx);
  serve(packet.to);
}

void CongestionWorld::reset_counts() {
  for (Sender& sender : senders_) {
    sender.delivered = 0;
  }
  counted_since_ = now_;
  lost_before_ = lost_;
  arrived_ = 0;
  queue_sum_ = most_queue_ = samples_ = 0;
}

double CongestionWorld::utilisation() const {
  double sum = 0;
  for (const Sender& sender : senders_) {
    sum += static_cast<double>(sender.delivered);
  }
  return sum / static_cast<double>(setup_.rate.bytes_in(now_ - counted_since_));
}

// Jain's index: 1 if all have the same, 1/n if one has all.
double CongestionWorld::fairness(std::uint32_t n) const {
  n = n == 0 ? setup_.senders : n;
  double sum = 0;
  double squares = 0;
  for (std::uint32_t i = 0; i < n; ++i) {
    sum += delivered(i);
    squares += delivered(i) * delivered(i);
  }
  return squares == 0 ? 0 : sum * sum / squares / n;
}

double CongestionWorld::share_lost() const {
  return arrived_ == 0 ? 0
                       : static_cast<double>(lost_ - lost_before_) / static_cast<double>(arrived_);
}

std::uint64_t CongestionWorld::timeouts() const {
  std::uint64_t sum = 0;
  for (const Host& host : hosts_) {
    sum += host.engine->counters().lost_by_timeout;
  }
  return sum;
}

std::uint64_t CongestionWorld::paths_abandoned() const {
  std::uint64_t sum = 0;
  for (const Host& host : hosts_) {
    sum += host.engine->counters().paths_abandoned;
  }
  return sum;
}

}  // namespace weft::testing
