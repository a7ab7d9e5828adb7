// Owns checking whose turn it was, packet by packet.
#include "emu/swarm/fairness.hpp"

#include <algorithm>
#include <cstring>

#include "emu/swarm/world_names.hpp"

namespace weft::swarm {
namespace {

// The packets that a host may send to one peer in a row while another peer is ready: kPacketsOfTurn
// of the engine's Scheduler, written down again, because a rule must not take its bound from what
// it judges.
constexpr std::uint32_t kTurn = 8;

// The most packets of other size classes that may pass a packet of the longest class. With all
// classes busy that class has one turn in 2^(classes - 1), and its wait may start again once, when
// messages begin or end meanwhile.
constexpr std::uint64_t kMaxOfOtherClasses = 2 * (1U << (srd::wire::kSizeClasses - 1)) - 1;

// With fewer paths than this, a path selector has hardly any choice, and is not judged.
constexpr std::uint16_t kManyPaths = 64;

// The paths of good acknowledgements that REPS keeps for later: RepsPolicy::kRing, written down
// again.
constexpr std::uint64_t kRememberedPaths = 8;

std::string name_of(const std::pair<std::uint32_t, std::uint32_t>& flow) {
  return "host " + std::to_string(flow.first) + " to host " + std::to_string(flow.second);
}

// These carry a DataHeader, and with it a message number and a length.
bool has_data_header(Packet kind) { return matches(Packet::data | Packet::probe, kind); }

}  // namespace

Fairness::Fairness(const Plan& plan) : plan_(plan) {}

// The test hook forced_reorder makes requests change places on purpose.
bool Fairness::keeps_order(std::uint32_t host) const {
  return plan_.hosts[host].engine.forced_reorder == 0;
}

// No credits to wait for, and no pacing: what is posted to an idle peer must leave at once.
bool Fairness::leaves_at_once(std::uint32_t host) const {
  const srd::EngineConfig& engine = plan_.hosts[host].engine;
  const std::string& control = engine.congestion_control;
  return keeps_order(host) && !engine.receiver_credits && control != "swift" && control != "srd";
}

// Only "reps" recycles paths. Requests for credits use paths as well, which this rule does not see.
bool Fairness::recycles_paths(std::uint32_t host) const {
  const srd::EngineConfig& engine = plan_.hosts[host].engine;
  return engine.path_selector == "reps" && engine.paths >= kManyPaths && !engine.receiver_credits;
}

// The flow was idle if the new request is the only open one between the two hosts. Then there is
// nothing in flight and nothing queued, so its first packet has to leave at once.
void Fairness::posted(TimePoint now, std::uint64_t number, const Step& step, std::uint32_t open) {
  FlowState& flow = flows_[{step.host, step.peer}];
  if (step.act == Act::send && step.length >= sizeof number && keeps_order(step.host)) {
    flow.sends[number] = flow.left;
  }
  stretches_.erase(step.host);
  if (open == 1 && leaves_at_once(step.host) && !flow.answered && !flow.must_leave) {
    flow.must_leave = now;
    ++must_leave_;
  }
}

// A packet that left for or came from a stranger counts only as part of a stretch. Loss, trimming
// and corruption disturb the flow in both directions: acknowledgements measure paths as well.
void Fairness::saw(TimePoint when, NetworkEvent event, const VirtualNetwork::InFlight& packet) {
  if (event == NetworkEvent::sent) {
    check_stretch(when, packet);
  } else if (event == NetworkEvent::delivered) {
    stretches_.erase(packet.to);
  }
  if (packet.from >= plan_.hosts.size() || packet.to >= plan_.hosts.size()) {
    return;
  }
  srd::wire::DataHeader header;
  switch (event) {
    case NetworkEvent::sent:
      if (has_data_header(kind_of(packet.bytes)) && srd::wire::load(packet.bytes, header)) {
        sent(packet, header);
      }
      return;
    case NetworkEvent::delivered:
      if (packet.genuine) {
        arrived(packet);
      }
      return;
    default:
      flows_[{packet.from, packet.to}].disturbed = true;
      flows_[{packet.to, packet.from}].disturbed = true;
      return;
  }
}

// First departures only: a probe or a repetition shows that the sender believes something lost, and
// from then on its choice of paths depends on what it believes.
void Fairness::sent(const VirtualNetwork::InFlight& packet, const srd::wire::DataHeader& header) {
  FlowState& flow = flows_[{packet.from, packet.to}];
  if (header.common.type == static_cast<std::uint8_t>(srd::wire::PacketType::probe) ||
      header.common.attempt != 0) {
    flow.disturbed = true;
    return;
  }
  if (flow.must_leave) {
    flow.must_leave.reset();
    --must_leave_;
  }
  sent_data(packet, header, flow);
}

// Finds the request that the packet belongs to, a send by the number in its payload and the answer
// to a read by its message, and compares what has left since it was posted.
void Fairness::sent_data(const VirtualNetwork::InFlight& packet,
                         const srd::wire::DataHeader& header, FlowState& flow) {
  const Flow who{packet.from, packet.to};
  check_path(who, flow, header);
  const Packet kind = kind_of(packet.bytes);
  if (kind == Packet::read_request) {
    return;
  }
  // A long message that was refused for lack of a receive is completed by a single packet, which
  // queues with the singles.
  const bool again = (header.common.flags & srd::wire::kCompletes) != 0;
  const bool single =
      header.message_length.value() <= plan_.hosts[packet.from].engine.mtu_payload || again;
  if (kind == Packet::read_response) {
    if (const auto waits = flow.answers.find(header.message.value()); waits != flow.answers.end()) {
      check_turn(who, flow, waits->second, "the answer to a short read");
      flow.answers.erase(waits);
    }
  } else if (kind == Packet::send && header.payload_length.value() >= sizeof(std::uint64_t)) {
    std::uint64_t number = 0;
    std::memcpy(&number, packet.bytes.data() + packet.header_size, sizeof number);
    if (const auto waits = flow.sends.find(number); waits != flow.sends.end()) {
      check_turn(who, flow, waits->second, "request " + std::to_string(number));
      if (number < flow.latest_send && verdict_.empty()) {
        verdict_ = name_of(who) + ": request " + std::to_string(number) + " leaves after request " +
                   std::to_string(flow.latest_send);
      }
      flow.latest_send = std::max(flow.latest_send, number);
      flow.sends.erase(waits);
    }
  }
  ++(single ? flow.left.singles : flow.left.bulk);
  if (!single && keeps_order(packet.from)) {
    sent_bulk(who, flow, header, kind == Packet::read_response);
  }
}

// Counts what passed a long message between two of its packets. Judged when the second one leaves:
// only then is it certain that the message was waiting, and not cancelled.
void Fairness::sent_bulk(const Flow& who, FlowState& flow, const srd::wire::DataHeader& header,
                         bool answer) {
  const std::uint32_t mtu = plan_.hosts[who.first].engine.mtu_payload;
  const auto [found, is_new] = flow.begun.try_emplace({answer, header.message.value()});
  LongMessage& message = found->second;
  if (is_new) {
    message.packets_left = (header.message_length.value() + mtu - 1) / mtu;
  } else if (verdict_.empty()) {
    const std::uint64_t singles = flow.left.singles - message.since.singles;
    const std::uint64_t others = flow.left.bulk - message.since.bulk - 1;
    if (singles > others + 1 || others > kMaxOfOtherClasses) {
      verdict_ = name_of(who) + ": message " + std::to_string(header.message.value()) +
                 " waited for " + std::to_string(singles) + " single packets and " +
                 std::to_string(others) + " of other long messages";
    }
  }
  message.since = flow.left;
  if (--message.packets_left == 0) {
    flow.begun.erase(found);
  }
}

// Packets that leave at the same virtual time were all ready when the first of them left. So if
// another peer's packet follows a stretch that is too long, it has waited for that stretch.
void Fairness::check_stretch(TimePoint when, const VirtualNetwork::InFlight& packet) {
  const Packet kind = kind_of(packet.bytes);
  if (kind == Packet::ack || kind == Packet::stale_life) {
    return;
  }
  Stretch& stretch = stretches_[packet.from];
  if (stretch.when != when || packet.to == VirtualNetwork::kNobody) {
    stretch = {when, packet.to, 0};
  }
  if (stretch.to != packet.to) {
    if (stretch.packets > kTurn && verdict_.empty()) {
      verdict_ = name_of({packet.from, packet.to}) + ": waits for " +
                 std::to_string(stretch.packets) + " packets to host " + std::to_string(stretch.to);
    }
    stretch = {when, packet.to, 0};
  }
  ++stretch.packets;
}

// Single packets and longer messages take turns. So of a single packet that waits, no more packets
// of longer messages may pass than single ones, but for one that had its turn already.
void Fairness::check_turn(const Flow& flow, const FlowState& state, const Departures& since,
                          const std::string& what) {
  const std::uint64_t equals = state.left.singles - since.singles;
  const std::uint64_t passed = state.left.bulk - since.bulk;
  if (passed > equals + 1 && verdict_.empty()) {
    verdict_ = name_of(flow) + ": " + what + " waited for " + std::to_string(passed) +
               " packets of longer messages and " + std::to_string(equals) + " equals";
  }
}

// Each path is explored once per round, and otherwise used again only after an unmarked packet
// along it. A round is as many departures as there are paths, or more; one more is allowed, because
// a reply explores, too.
void Fairness::check_path(const Flow& who, FlowState& flow, const srd::wire::DataHeader& header) {
  const std::uint16_t path = header.common.path.value();
  if (goes_on_with_run(who, flow, header)) {
    return;
  }
  const std::uint64_t round = ++flow.departures / plan_.hosts[who.first].engine.paths;
  if (!recycles_paths(who.first) || flow.disturbed) {
    return;
  }
  PathUse& use = flow.paths[path];
  allow(who.first, use, round - use.round);
  use.round = round;
  if (use.allowed > 0) {
    --use.allowed;
  } else if (verdict_.empty()) {
    verdict_ = name_of(who) + ": path " + std::to_string(path) + " is taken again although " +
               (plan_.hosts[who.first].engine.path_run == 0 ? "all that came along it was marked"
                                                            : "no run has brought it back");
  }
}

// For a run the selector is asked once.
bool Fairness::goes_on_with_run(const Flow& who, FlowState& flow,
                                const srd::wire::DataHeader& header) const {
  PathRun& run = flow.run;
  const auto bytes = static_cast<std::uint32_t>(sizeof(header) + header.payload_length.value());
  const std::uint32_t longest = plan_.hosts[who.first].engine.path_run;
  const bool like_the_last = run.bytes != 0 && run.sent_at == header.send_time.value() &&
                             run.path == header.common.path.value();
  const bool goes_on = like_the_last && run.bytes + bytes <= longest;
  if (longest != 0) {
    flow.run_begins = like_the_last ? flow.run_begins : header.psn.value();
    flow.begun_by[header.psn.value()] = flow.run_begins;
  }
  run = {header.send_time.value(), header.common.path.value(), bytes + (goes_on ? run.bytes : 0)};
  return goes_on;
}

// The packet `number` has brought its path back. What has left at one time along one path does so
// once, even where it was more than one run: who hears of it cannot tell them apart.
void Fairness::came_back(const Flow& who, FlowState& flow, srd::PathId path,
                         std::uint32_t number) const {
  if (plan_.hosts[who.first].engine.path_run != 0) {
    const auto found = flow.begun_by.find(number);
    if (found == flow.begun_by.end()) {
      return;
    }
    const std::uint32_t first = found->second;
    for (auto at = flow.begun_by.find(first); at != flow.begun_by.end() && at->second == first;) {
      at = flow.begun_by.erase(at);
    }
  }
  allow(who.first, flow.paths[path.value()], 1);
}

// What is not used in time is lost: a sender remembers a few paths, and what is under way has not
// been told to it yet.
void Fairness::allow(std::uint32_t sender, PathUse& use, std::uint64_t departures) const {
  const std::uint64_t most =
      kExplorations + kRememberedPaths + plan_.hosts[sender].engine.window_packets;
  use.allowed = std::min(use.allowed + departures, most);
}

void Fairness::arrived(const VirtualNetwork::InFlight& packet) {
  const Packet kind = kind_of(packet.bytes);
  const bool marked = packet.ecn == srd::Ecn::congested;
  FlowState& flow = flows_[{packet.from, packet.to}];
  FlowState& back = flows_[{packet.to, packet.from}];
  srd::wire::DataHeader header;
  if (matches(Packet::data, kind) && !marked && srd::wire::load(packet.bytes, header)) {
    came_back({packet.from, packet.to}, flow, packet.path, header.psn.value());
  }
  srd::wire::AckHeader ack;
  if (kind == Packet::ack && srd::wire::load(packet.bytes, ack)) {
    // The path of the packet that the ACK echoes was measured as well.
    came_back({packet.to, packet.from}, back, srd::PathId{ack.common.path.value()},
              ack.echo_psn.value());
  }
  if (kind == Packet::read_request && srd::wire::load(packet.bytes, header) &&
      header.message_length.value() <= plan_.hosts[packet.to].engine.mtu_payload &&
      keeps_order(packet.to)) {
    back.answers[header.message.value()] = back.left;
  }
  back.answered |= kind == Packet::read_request;
}

void Fairness::check_departures(TimePoint now) {
  if (must_leave_ == 0 || !verdict_.empty()) {
    return;
  }
  for (const auto& [who, flow] : flows_) {
    if (flow.must_leave && *flow.must_leave < now) {
      verdict_ = name_of(who) + ": a request waits although nothing else is under way between them";
      return;
    }
  }
}

// Some of a host's open requests have been flushed, maybe the one that had to leave.
void Fairness::withdrawn(std::uint32_t host) {
  for (auto& [who, flow] : flows_) {
    if (who.first == host && flow.must_leave) {
      flow.must_leave.reset();
      --must_leave_;
    }
  }
}

// The host stands still or has ended: what it owed counts no more, and what it does next says
// nothing about turns. That it has answered a peer's reads before is kept.
void Fairness::forget(std::uint32_t host) {
  for (auto& [who, flow] : flows_) {
    if (who.first == host || who.second == host) {
      must_leave_ -= flow.must_leave ? 1 : 0;
      const bool answered = flow.answered;
      flow = FlowState{};
      flow.disturbed = true;
      flow.answered = answered;
    }
  }
}

}  // namespace weft::swarm
