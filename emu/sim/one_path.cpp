// Owns the one-path transports' sending, receiving and recovery.
//
// A stand-in for transports that send along one path: window or rate as Reno, DCTCP or DCQCN set
// it, and losses repaired by going back to the first missing packet or by repeating only what is
// missing. It exists to be compared with, and carries no data.
#include "emu/sim/one_path.hpp"

#include <algorithm>
#include <cstring>

#include "srd/base/check.hpp"
#include "srd/base/rng.hpp"

namespace weft::sim {
namespace {

constexpr std::uint32_t kDupThreshold = 3;  // packets beyond a hole that make it a loss
// DCQCN's times and gain, as its authors give them.
constexpr auto kCnpGap = std::chrono::microseconds{50};
constexpr auto kAlphaPeriod = std::chrono::microseconds{55};
constexpr auto kIncreasePeriod = std::chrono::microseconds{55};
constexpr double kDcqcnGain = 1.0 / 16;  // of the alpha estimate
constexpr double kDctcpGain = 1.0 / 16;

bool bit(const std::vector<std::uint64_t>& bits, std::uint32_t i) {
  return (bits[i / 64] >> (i % 64) & 1) != 0;
}
void set_bit(std::vector<std::uint64_t>& bits, std::uint32_t i) {
  bits[i / 64] |= 1ULL << (i % 64);
}

}  // namespace

OnePathTransport::OnePathTransport(const OnePathConfig& config) : config_(config) {
  max_window_ = std::max(1.0, static_cast<double>(config.line_rate.bytes_in(config.base_rtt)) *
                                  config.window_bdps / (config.payload + 64));
}

std::uint64_t OnePathTransport::packets_of(Bytes bytes, std::uint32_t payload) {
  const auto all = static_cast<std::uint64_t>(bytes);
  return all / payload + (all % payload != 0 ? 1 : 0);
}

// A flow takes the first free entry of senders_. On the wire it goes by its number in the
// simulation, never by the index: a late answer to the entry's former flow finds nothing.
void OnePathTransport::start(TimePoint now, const FlowStart& flow) {
  std::uint32_t index = 0;
  while (index < senders_.size() && senders_[index].active) {
    ++index;
  }
  if (index == senders_.size()) {
    senders_.emplace_back();
  }
  Sender& sender = senders_[index] = Sender{};
  sender.flow = flow;
  const std::uint64_t packets = packets_of(flow.bytes, config_.payload);
  WEFT_CHECK(packets <= kMaxPackets);
  sender.packets = static_cast<std::uint32_t>(packets);
  sender.active = true;
  const bool tcp = config_.control == OnePathConfig::Control::reno ||
                   config_.control == OnePathConfig::Control::dctcp;
  sender.window = tcp ? std::min<double>(config_.initial_window, max_window_) : max_window_;
  sender.rate = sender.target_rate = static_cast<double>(config_.line_rate.bits_per_second()) / 8e9;
  if (config_.recovery == OnePathConfig::Recovery::selective) {
    sender.sacked.assign(sender.packets / 64 + 1, 0);
  }
  sender_of_[flow.flow] = index;
  active_.push_back(index);
  plan(now, index);
}

std::size_t OnePathTransport::poll(std::span<FlowEvent> events) {
  const std::size_t count = std::min(events.size(), events_.size());
  std::copy_n(events_.begin(), count, events.begin());
  events_.erase(events_.begin(), events_.begin() + static_cast<std::ptrdiff_t>(count));
  return count;
}

// The last packet of a flow is shorter.
std::uint32_t OnePathTransport::payload_of(const Sender& sender, std::uint32_t psn) const {
  return psn + 1 < sender.packets
             ? config_.payload
             : static_cast<std::uint32_t>(sender.flow.bytes - static_cast<Bytes>(config_.payload) *
                                                                  (sender.packets - 1));
}

std::uint32_t OnePathTransport::in_flight(const Sender& sender) const {
  const std::uint32_t out = sender.next - sender.acked;
  return out - std::min(out, sender.sacked_count);
}

bool OnePathTransport::pick(const Sender& sender, std::uint32_t& psn) const {
  // Holes go first, and do not count against the window: what they replace is no longer under way.
  if (sender.recovering && sender.resend < sender.highest_sacked && sender.resend < sender.next) {
    psn = sender.resend;  // a hole below what has arrived
    return true;
  }
  psn = sender.next;
  return sender.next < sender.packets &&
         in_flight(sender) < static_cast<std::uint32_t>(sender.window);
}

bool OnePathTransport::next_transmit(TimePoint now, srd::TxPacket& out) {
  // Acknowledgements go first: they are small, and senders wait for them.
  if (!replies_.empty()) {
    const auto& [to, header] = replies_.front();
    out.to = address_of(to);
    out.path = srd::PathId{static_cast<std::uint16_t>(mix64(header.flow) & 0x3FFF)};
    out.ecn = srd::Ecn::not_capable;
    out.header_size = sizeof(Header);
    std::memcpy(out.header.data(), &header, sizeof(Header));
    out.payload = {};
    replies_.pop_front();
    return true;
  }
  for (std::size_t tried = 0; tried < active_.size(); ++tried) {
    // Round robin, from the flow after the one that sent last.
    turn_ = turn_ + 1 >= active_.size() ? 0 : turn_ + 1;
    Sender& sender = senders_[active_[turn_]];
    std::uint32_t psn = 0;
    if (sender.next_send <= now && pick(sender, psn)) {
      fill(now, sender, psn, out);
      plan(now, active_[turn_]);
      return true;
    }
  }
  return false;
}

// Writes the header of packet `psn`, starts its timer, and paces the next one where a rate is set.
void OnePathTransport::fill(TimePoint now, Sender& sender, std::uint32_t psn, srd::TxPacket& out) {
  if (psn < sender.highest) {
    ++counters_.retransmitted;
  } else {
    ++counters_.new_packets;
    sender.highest = psn + 1;
  }
  if (psn == sender.next) {
    ++sender.next;
  }
  // A hole has been repeated: on to the next one below what has arrived.
  if (sender.recovering && psn == sender.resend) {
    do {
      ++sender.resend;
    } while (sender.resend < sender.highest_sacked && bit(sender.sacked, sender.resend));
  }
  const std::uint32_t payload = payload_of(sender, psn);
  const Header header{.type = Type::data,
                      .flow = sender.flow.flow,
                      .psn = psn,
                      .packets = sender.packets,
                      .sent_at = static_cast<std::uint64_t>(nanoseconds(now))};
  out.to = address_of(sender.flow.destination);
  out.path =
      srd::PathId{static_cast<std::uint16_t>(mix64(sender.flow.flow ^ config_.seed) & 0x3FFF)};
  out.ecn = srd::Ecn::capable_0;
  out.header_size = sizeof(Header);
  std::memcpy(out.header.data(), &header, sizeof header);
  out.payload = {phantom_payload(payload), {}};
  if (config_.control == OnePathConfig::Control::dcqcn) {
    const auto gap = Duration{static_cast<std::int64_t>((payload + 64) / sender.rate)};
    // A sender that was kept waiting may make up for two microseconds, not for all of it.
    sender.next_send = std::max(sender.next_send, now - Duration{2000}) + gap;
  }
  if (sender.rto_at == kNever) {
    arm_rto(now, sender);
  }
}

void OnePathTransport::arm_rto(TimePoint now, Sender& sender) {
  sender.rto_at =
      sender.acked == sender.packets || sender.next == sender.acked
          ? kNever
          : now + std::max(config_.min_rto, sender.srtt * 2) * (1 << std::min(sender.backoff, 6U));
}

void OnePathTransport::plan(TimePoint now, std::uint32_t index) {
  const Sender& sender = senders_[index];
  TimePoint when = kNever;
  if (sender.active) {
    when = std::min({sender.rto_at, sender.increase_at, sender.alpha_at});
    std::uint32_t psn = 0;
    if (sender.next_send > now && pick(sender, psn)) {
      when = std::min(when, sender.next_send);
    }
  }
  deadlines_.set(index, when);
}

void OnePathTransport::on_timeout(TimePoint now) {
  while (!deadlines_.empty() && deadlines_.earliest() <= now) {
    const std::uint32_t index = deadlines_.earliest_index();
    Sender& sender = senders_[index];
    if (sender.rto_at <= now) {
      ++counters_.timeouts;
      ++sender.backoff;
      // Whatever the recovery is, a timeout starts over from the first hole.
      sender.next = sender.acked;
      sender.sacked_count = 0;
      sender.recovering = false;
      std::fill(sender.sacked.begin(), sender.sacked.end(), 0);
      sender.highest_sacked = sender.acked;
      if (config_.control == OnePathConfig::Control::reno ||
          config_.control == OnePathConfig::Control::dctcp) {
        sender.threshold = std::max(sender.window / 2, 2.0);
        sender.window = 1;
      }
      sender.rto_at =
          now + std::max(config_.min_rto, sender.srtt * 2) * (1 << std::min(sender.backoff, 6U));
    }
    if (sender.alpha_at <= now) {
      sender.alpha *= 1 - kDcqcnGain;
      sender.alpha_at = sender.alpha > 0.001 ? now + kAlphaPeriod : kNever;
    }
    if (sender.increase_at <= now) {
      increase_rate(now, sender);
    }
    plan(now, index);
    if (deadlines_.deadline_of(index) <= now) {
      break;  // due again at once (a timeout of 0): left to the next call, or this would never end
    }
  }
}

void OnePathTransport::on_packet(TimePoint now, const srd::RxPacket& packet) {
  Header header;
  if (packet.trimmed || packet.bytes.size() < sizeof header) {
    return;  // these transports know no trimming: the frame is simply lost
  }
  std::memcpy(&header, packet.bytes.data(), sizeof header);
  if (header.type == Type::data) {
    on_data(now, packet, header);
    return;
  }
  const auto found = sender_of_.find(header.flow);
  if (found == sender_of_.end()) {
    return;
  }
  const std::uint32_t index = found->second;
  Sender& sender = senders_[index];
  if (header.type == Type::ack) {
    on_ack(now, sender, header);
  } else if (header.type == Type::nak) {
    on_nak(now, sender, header);
  } else {
    on_cnp(now, sender);
  }
  if (sender.active && sender.acked == sender.packets) {
    events_.push_back({sender.flow.flow, FlowEvent::Kind::sent});
    sender.active = false;
    sender_of_.erase(found);
    active_.erase(std::find(active_.begin(), active_.end(), index));
  }
  plan(now, index);
}

void OnePathTransport::reply(fabric::PortId to, const Header& header) {
  replies_.emplace_back(to, header);
}

// Whatever is out of order is answered at once: selective repeat with an acknowledgement that names
// the packet, go-back-N with one nak per hole, after which everything up to the missing packet is
// thrown away.
void OnePathTransport::on_data(TimePoint now, const srd::RxPacket& packet, const Header& header) {
  Receiver& receiver = receivers_[header.flow];
  const fabric::PortId from = port_of(packet.from);
  const bool congested = packet.ecn == srd::Ecn::congested;
  if (congested && config_.control == OnePathConfig::Control::dcqcn && receiver.cnp_at <= now) {
    receiver.cnp_at = now + kCnpGap;
    reply(from, {.type = Type::cnp, .flow = header.flow});
  }
  bool answer = congested && config_.recovery == OnePathConfig::Recovery::selective;
  if (config_.recovery == OnePathConfig::Recovery::selective) {
    if (receiver.got.size() * 64 < header.packets) {
      receiver.got.resize(header.packets / 64 + 1);
    }
    answer = answer || header.psn != receiver.expected;
    set_bit(receiver.got, header.psn);
    while (receiver.expected < header.packets && bit(receiver.got, receiver.expected)) {
      ++receiver.expected;
    }
  } else if (header.psn == receiver.expected) {
    ++receiver.expected;
    receiver.nak_sent = false;
  } else if (header.psn > receiver.expected) {
    if (!receiver.nak_sent) {
      receiver.nak_sent = true;
      reply(from, {.type = Type::nak, .flow = header.flow, .psn = receiver.expected});
    }
    return;
  } else {
    answer = true;  // a duplicate: the acknowledgement may have been lost
  }
  if (receiver.expected == header.packets && !receiver.complete) {
    receiver.complete = true;
    receiver.got = {};
    events_.push_back({header.flow, FlowEvent::Kind::received});
  }
  if (++receiver.unacked >= config_.ack_every || answer || receiver.expected == header.packets) {
    receiver.unacked = 0;
    reply(from, {.type = Type::ack,
                 .congested = congested,
                 .flow = header.flow,
                 .psn = receiver.expected,
                 .packets = header.psn,
                 .sent_at = header.sent_at});
  }
}

void OnePathTransport::on_ack(TimePoint now, Sender& sender, const Header& header) {
  const Duration rtt = now - time_at(Duration{static_cast<std::int64_t>(header.sent_at)});
  sender.srtt = sender.srtt == Duration{} ? rtt : (sender.srtt * 7 + rtt) / 8;
  const std::uint32_t before = sender.acked;
  const std::uint32_t cumulative = std::min(header.psn, sender.packets);
  for (; sender.acked < cumulative; ++sender.acked) {
    if (!sender.sacked.empty() && bit(sender.sacked, sender.acked)) {
      --sender.sacked_count;
    }
  }
  // After a timeout has set `next` back, packets sent before it may still be acknowledged.
  sender.next = std::max(sender.next, sender.acked);
  // The acknowledgement names the packet that caused it: selective repeat learns one arrival beyond
  // the hole from each.
  if (!sender.sacked.empty() && header.packets >= sender.acked && header.packets < sender.next &&
      !bit(sender.sacked, header.packets)) {
    set_bit(sender.sacked, header.packets);
    ++sender.sacked_count;
    sender.highest_sacked = std::max(sender.highest_sacked, header.packets);
    if (!sender.recovering && sender.highest_sacked >= sender.acked + kDupThreshold) {
      sender.recovering = true;
      sender.recover = sender.next;
      sender.resend = sender.acked;
      lose(sender);
    }
  }
  if (sender.recovering) {
    sender.resend = std::max(sender.resend, sender.acked);
    // One recovery per window: losses among packets sent before it began do not halve the window
    // again.
    sender.recovering = sender.acked < sender.recover;
  }
  if (sender.acked != before) {
    sender.backoff = 0;
    arm_rto(now, sender);
    adjust_window(now, sender, sender.acked - before, header.congested != 0);
  }
}

// Go-back-N: everything before the missing packet has arrived, everything from it on is sent again.
// The rate and the window stay as they are.
void OnePathTransport::on_nak(TimePoint now, Sender& sender, const Header& header) {
  if (header.psn >= sender.acked && header.psn < sender.next) {
    sender.acked = header.psn;
    sender.next = header.psn;
    arm_rto(now, sender);
  }
}

// A loss was found: what controls a window halves it. A rate (DCQCN) does not react to losses.
void OnePathTransport::lose(Sender& sender) {
  if (config_.control == OnePathConfig::Control::reno ||
      config_.control == OnePathConfig::Control::dctcp) {
    sender.threshold = std::max(sender.window / 2, 2.0);
    sender.window = sender.threshold;
  }
}

// Once per round trip the share of marked packets decides: DCTCP shrinks its window in proportion
// to the smoothed share, Reno by half. In between the window grows as TCP's does, by one packet per
// acknowledged packet below the threshold and by one per window above it, unless this
// acknowledgement carries a mark.
void OnePathTransport::adjust_window(TimePoint /*now*/, Sender& sender, std::uint32_t newly,
                                     bool congested) {
  const bool dctcp = config_.control == OnePathConfig::Control::dctcp;
  if (!dctcp && config_.control != OnePathConfig::Control::reno) {
    return;
  }
  sender.counted += newly;
  sender.marked += congested ? newly : 0;
  if (sender.acked >= sender.round_end) {
    const double share =
        sender.counted == 0 ? 0 : static_cast<double>(sender.marked) / sender.counted;
    sender.alpha = (1 - kDctcpGain) * sender.alpha + kDctcpGain * share;
    if (sender.marked > 0 && !sender.recovering) {
      sender.window = std::max(1.0, sender.window * (1 - (dctcp ? sender.alpha / 2 : 0.5)));
      sender.threshold = sender.window;
    }
    sender.counted = sender.marked = 0;
    sender.round_end = sender.next;
  }
  if (!sender.recovering && !congested) {
    sender.window += sender.window < sender.threshold ? newly : newly / sender.window;
    sender.window = std::min(sender.window, max_window_);
  }
}

// DCQCN: a congestion notification (CNP) cuts the rate by half of the estimate alpha, raises the
// estimate, and restarts both timers and the stages of the increase. Below 0.01 bytes/ns a flow
// would hardly ever send again.
void OnePathTransport::on_cnp(TimePoint now, Sender& sender) {
  sender.target_rate = sender.rate;
  sender.rate = std::max(sender.rate * (1 - sender.alpha / 2), 0.01);
  sender.alpha = (1 - kDcqcnGain) * sender.alpha + kDcqcnGain;
  sender.stage = 0;
  sender.alpha_at = now + kAlphaPeriod;
  sender.increase_at = now + kIncreasePeriod;
}

// The increase after a cut. In the first five steps the rate goes half way to the target, the rate
// before the cut; from then on the target itself grows, additively by 0.5 % of the line rate, after
// ten steps by 5 % (hyper increase).
void OnePathTransport::increase_rate(TimePoint now, Sender& sender) {
  const double line = static_cast<double>(config_.line_rate.bits_per_second()) / 8e9;
  ++sender.stage;
  if (sender.stage > 5) {
    sender.target_rate += line * (sender.stage > 10 ? 0.05 : 0.005);
  }
  sender.target_rate = std::min(sender.target_rate, line);
  sender.rate = (sender.rate + sender.target_rate) / 2;
  sender.increase_at = sender.rate < line * 0.999 ? now + kIncreasePeriod : kNever;
}

}  // namespace weft::sim
