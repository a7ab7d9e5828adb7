// Owns the driving of hosts: which is called when, and what becomes of the frames and flows.
//
// Fabric's calendar is the only clock. It calls back when a frame arrives (deliver()), when a
// host's deadline is due or its NIC is free (wake_port()), and when flows start (wake()). After
// each of these the host's machine may have something to send; its NIC takes one frame at a time,
// so the machine decides about the next one as late as possible.
#include "emu/sim/simulation.hpp"

#include <algorithm>
#include <array>

namespace weft::sim {
namespace {

// Flags that say what became of a frame. The digest leaves out kTrimmable, which only says what
// might have become of it.
constexpr unsigned kHappened = ~unsigned{fabric::kTrimmable};

// What switches choose links by. All packets of a sender, receiver and path take the same links.
std::uint32_t ecmp_hash(fabric::PortId from, fabric::PortId to, std::uint16_t path) {
  return static_cast<std::uint32_t>(mix64((static_cast<std::uint64_t>(from) << 40) ^
                                          (static_cast<std::uint64_t>(to) << 16) ^ path) >>
                                    16);
}

// Whether the end of a flow only ever starts flows of the host where it is noticed. Otherwise hosts
// must not run ahead of each other: a flow would start at a host whose time has gone on.
bool triggers_stay_at_hosts(const fabric::TrafficMatrix& traffic) {
  std::vector<fabric::PortId> starts_at(traffic.triggers.size(), fabric::kNone);
  bool stay = true;
  for (const fabric::FlowSpec& flow : traffic.flows) {
    if (flow.trigger != fabric::kNone) {
      fabric::PortId& port = starts_at[flow.trigger];
      stay = stay && (port == fabric::kNone || port == flow.source);
      port = flow.source;
    }
  }
  const auto stays = [&](std::uint32_t trigger, fabric::PortId port) {
    return trigger == fabric::kNone || starts_at[trigger] == fabric::kNone ||
           starts_at[trigger] == port;
  };
  for (const fabric::FlowSpec& flow : traffic.flows) {
    stay = stay && stays(flow.on_sent, flow.source) && stays(flow.on_received, flow.destination);
  }
  return stay;
}

fabric::FabricOptions fabric_options(const fabric::TrafficMatrix& traffic,
                                     fabric::FabricOptions options) {
  options.by_node = options.by_node && triggers_stay_at_hosts(traffic);
  return options;
}

}  // namespace

Simulation::Simulation(const fabric::Topology& topology, const fabric::TrafficMatrix& traffic,
                       const SimulationOptions& options, const MakeTransport& make_transport)
    : traffic_(traffic),
      options_(options),
      fabric_(topology, fabric_options(traffic, options.fabric)),
      hosts_(fabric_.port_count()),
      records_(traffic.flows.size()),
      triggers_(traffic.triggers.size()) {
  std::vector<bool> used(hosts_.size(), false);
  for (std::uint32_t flow = 0; flow < traffic.flows.size(); ++flow) {
    const fabric::FlowSpec& spec = traffic.flows[flow];
    used[spec.source] = used[spec.destination] = true;
    if (spec.trigger == fabric::kNone) {
      by_start_.push_back(flow);
    } else {
      triggers_[spec.trigger].flows.push_back(flow);
    }
  }
  for (fabric::PortId port = 0; port < hosts_.size(); ++port) {
    if (used[port]) {
      hosts_[port].transport = make_transport(port);
      hosts_[port].machine = &hosts_[port].transport->machine();
      hosts_[port].knows_trimming = hosts_[port].transport->knows_trimming();
    }
  }
  std::stable_sort(by_start_.begin(), by_start_.end(), [&](std::uint32_t a, std::uint32_t b) {
    return traffic_.flows[a].start < traffic_.flows[b].start;
  });
  if (!by_start_.empty()) {
    fabric_.schedule_wake(traffic_.flows[by_start_.front()].start,
                          static_cast<std::uint32_t>(Token::starts));
  }
}

void Simulation::observe(SimulationObserver* observer, fabric::Picos sample_every) {
  observer_ = observer;
  sample_every_ = sample_every;
  if (observer != nullptr && sample_every > 0) {
    fabric_.schedule_wake(fabric_.now(), static_cast<std::uint32_t>(Token::sample));
  }
}

bool Simulation::run_for(fabric::Picos slice) {
  const auto over = [&] {
    return ended_ == records_.size() || fabric_.now() >= options_.time_limit;
  };
  if (over()) {
    return true;
  }
  const fabric::Picos limit = slice == fabric::kNoTime
                                  ? options_.time_limit
                                  : std::min(options_.time_limit, fabric_.now() + slice);
  fabric_.advance(limit, *this);
  return over() || fabric_.next_event() == fabric::kNoTime;
}

void Simulation::deliver(fabric::Picos now, fabric::PortId port,
                         const fabric::CalendarEvent& event) {
  const FrameStore::Head head = frames_.head(event.frame);
  if (observer_ != nullptr) [[unlikely]] {
    observer_->on_delivered(now, port, head, event);
  }
  Host& host = hosts_[port];
  host.mix(static_cast<std::uint64_t>(now) ^ (static_cast<std::uint64_t>(port) << 44) ^
           (event.flags & kHappened));
  const bool corrupted = (event.flags & fabric::kCorrupted) != 0;
  damaged_ += corrupted ? 1U : 0U;
  if (host.machine != nullptr && (!corrupted || host.transport->checks_packets())) {
    std::byte* bytes = frames_.bytes(event.frame);
    srd::RxPacket rx;
    rx.from = address_of(head.from);
    rx.path = srd::PathId{head.path};
    rx.ecn = (event.flags & fabric::kMarked) != 0 ? srd::Ecn::congested
                                                  : static_cast<srd::Ecn>(head.ecn);
    rx.trimmed = (event.flags & fabric::kTrimmed) != 0;
    rx.bytes = {bytes, head.header};
    if (!rx.trimmed && head.payload > 0) {
      rx.more = head.has_payload != 0
                    ? std::span<const std::byte>(bytes + head.header, head.payload)
                    : phantom_payload(head.payload);
    }
    if (corrupted) [[unlikely]] {
      damage(host, {bytes, head.header}, rx.more);
    }
    host.machine->on_packet(fabric::time_point(now), rx);
  }
  frames_.release(event.frame);
  if (host.machine != nullptr) {
    serve(now, port);
  }
}

void Simulation::damage(const Host& host, std::span<std::byte> header,
                        std::span<const std::byte>& payload) {
  const std::size_t bit =
      static_cast<std::size_t>(mix64(host.digest)) % (8 * (header.size() + payload.size()));
  const auto mask = static_cast<std::byte>(1U << (bit % 8));
  if (bit / 8 < header.size()) {
    header[bit / 8] ^= mask;
    return;
  }
  damaged_payload_.assign(payload.begin(), payload.end());  // it may be shared by all frames
  damaged_payload_[bit / 8 - header.size()] ^= mask;
  payload = damaged_payload_;
}

void Simulation::drop(fabric::Picos now, const fabric::CalendarEvent& event,
                      fabric::LossReason reason, fabric::LinkId link) {
  if (observer_ != nullptr) {
    observer_->on_dropped(now, frames_.head(event.frame), event, reason, link);
  }
  frames_.release(event.frame);
}

void Simulation::wake(fabric::Picos now, std::uint32_t token) {
  if (static_cast<Token>(token) == Token::starts) {
    start_due(now);
  } else if (observer_ != nullptr) {
    observer_->on_sample(now);
    fabric_.schedule_wake(now + sample_every_, token);
  }
}

void Simulation::wake_port(fabric::Picos now, fabric::PortId port, std::uint32_t token) {
  Host& host = hosts_[port];
  if (static_cast<Token>(token) == Token::nic) {
    host.nic_planned = false;
  } else if (host.armed == now) {
    host.armed = fabric::kNoTime;
  } else {
    return;  // an old call-back: the deadline was moved forward, and that call has been served
  }
  if (!host.paused) {
    serve(now, port);
  }
}

void Simulation::paused(fabric::Picos now, fabric::PortId port, bool is_paused) {
  Host& host = hosts_[port];
  host.paused = is_paused;
  if (!is_paused && host.machine != nullptr) {
    serve(now, port);
  }
}

// Everything that a host may do at this moment. The order matters: a timeout may end a flow, an
// ended flow may start one, and only then is it decided what to send.
void Simulation::serve(fabric::Picos now, fabric::PortId port) {
  Host& host = hosts_[port];
  if (host.machine->next_timeout() <= fabric::time_point(now)) {
    host.machine->on_timeout(fabric::time_point(now));
  }
  collect(now, host);
  if (!host.nic_planned) {
    transmit(now, port, host);
  }
  arm(now, port, host);
}

// The NIC takes one frame at a time, when the one before has left: the machine decides as late as
// it can.
void Simulation::transmit(fabric::Picos now, fabric::PortId port, Host& host) {
  while (host.machine->next_transmit(fabric::time_point(now), packet_)) {
    const bool control = host.transport->is_control(packet_);
    const std::size_t payload = packet_.payload_size();
    const fabric::PortId to = port_of(packet_.to);
    FrameStore::Head head{.from = port,
                          .payload = static_cast<std::uint32_t>(payload),
                          .header = packet_.header_size,
                          .path = packet_.path.value(),
                          .wire = static_cast<std::uint16_t>(
                              control ? options_.control_size : payload + options_.data_overhead),
                          .ecn = static_cast<std::uint8_t>(packet_.ecn),
                          .has_payload = options_.real_payload};
    ++host.sent;
    const std::uint32_t hash =
        options_.fresh_entropies && !control
            ? static_cast<std::uint32_t>(mix64(std::uint64_t{host.sent} << 32 | port))
            : ecmp_hash(port, to, head.path);
    const fabric::Frame frame{.destination = to,
                              .hash = hash,
                              .handle = frames_.put(head, packet_, options_.real_payload),
                              .size = head.wire,
                              .control = control,
                              .ecn_capable = packet_.ecn != srd::Ecn::not_capable,
                              .trimmable = host.knows_trimming};
    const fabric::Picos free = fabric_.inject(now, port, frame);
    if (free > now) {
      host.nic_planned = true;
      fabric_.schedule_wake(free, port, static_cast<std::uint32_t>(Token::nic));
      return;
    }
  }
}

// Asks the calendar to be called when the machine's next deadline is due, unless an earlier call is
// already planned.
void Simulation::arm(fabric::Picos now, fabric::PortId port, Host& host) {
  const TimePoint deadline = host.machine->next_timeout();
  if (deadline == kNever) {
    return;
  }
  fabric::Picos when = fabric::picos(deadline);
  if (when <= now) {
    if (host.nic_planned) {
      return;  // served when the uplink is free
    }
    when = (now / 1000 + 1) * 1000;  // the next nanosecond: machines know nothing finer
  }
  if (when < host.armed) {
    host.armed = when;
    fabric_.schedule_wake(when, port, static_cast<std::uint32_t>(Token::deadline));
  }
}

// Ends of flows, at senders and at receivers, which may start other flows.
void Simulation::collect(fabric::Picos now, Host& host) {
  std::array<FlowEvent, 16> events;
  while (true) {
    const std::size_t count = host.transport->poll(events);
    for (std::size_t i = 0; i < count; ++i) {
      const FlowEvent& event = events[i];
      FlowRecord& record = records_[event.flow];
      const fabric::FlowSpec& spec = traffic_.flows[event.flow];
      if (event.kind == FlowEvent::Kind::received) {
        if (record.received == fabric::kNoTime) {
          record.received = now;
          activate(now, spec.on_received);
        }
        continue;
      }
      if (record.state != FlowRecord::State::running) {
        continue;
      }
      record.state =
          event.kind == FlowEvent::Kind::sent ? FlowRecord::State::done : FlowRecord::State::failed;
      record.finished = now;
      host.mix(static_cast<std::uint64_t>(now) ^ (static_cast<std::uint64_t>(event.flow) << 40) ^
               0xF1);
      if (observer_ != nullptr) {
        observer_->on_flow(now, event.flow, record.state);
      }
      if (++ended_ == records_.size()) {
        fabric_.stop();
      }
      activate(now, spec.on_sent);
    }
    if (count < events.size()) {
      break;
    }
  }
}

void Simulation::start_due(fabric::Picos now) {
  while (next_start_ < by_start_.size() && traffic_.flows[by_start_[next_start_]].start <= now) {
    start_flow(now, by_start_[next_start_++]);
  }
  if (next_start_ < by_start_.size()) {
    fabric_.schedule_wake(traffic_.flows[by_start_[next_start_]].start,
                          static_cast<std::uint32_t>(Token::starts));
  }
}

// Serving the host of a started flow may find flows ended and trigger more, which call this again:
// they join the list instead of recursing.
void Simulation::start_flow(fabric::Picos now, std::uint32_t flow) {
  starting_.push_back(flow);
  if (in_start_) {
    return;
  }
  in_start_ = true;
  for (std::size_t i = 0; i < starting_.size(); ++i) {
    const std::uint32_t next = starting_[i];
    const fabric::FlowSpec& spec = traffic_.flows[next];
    records_[next].started = now;
    records_[next].state = FlowRecord::State::running;
    Host& host = hosts_[spec.source];
    if (observer_ != nullptr) {
      observer_->on_flow(now, next, FlowRecord::State::running);
    }
    host.transport->start(fabric::time_point(now), {next, spec.destination, spec.bytes});
    if (!host.paused) {
      serve(now, spec.source);
    }
  }
  starting_.clear();
  in_start_ = false;
}

void Simulation::activate(fabric::Picos now, std::uint32_t index) {
  if (index == fabric::kNone) {
    return;
  }
  TriggerState& state = triggers_[index];
  const fabric::TriggerSpec& spec = traffic_.triggers[index];
  ++state.activations;
  if (spec.kind == fabric::TriggerSpec::Kind::multishot) {
    if (state.next < state.flows.size()) {
      start_flow(now, state.flows[state.next++]);
    }
    return;
  }
  const std::uint32_t needed = spec.kind == fabric::TriggerSpec::Kind::barrier ? spec.count : 1;
  // Later activations of a oneshot or of a full barrier start nothing.
  if (state.activations == needed) {
    for (const std::uint32_t flow : state.flows) {
      start_flow(now, flow);
    }
  }
}

TransportCounters Simulation::counters() const {
  TransportCounters sum;
  for (const Host& host : hosts_) {
    if (host.transport != nullptr) {
      const TransportCounters own = host.transport->counters();
      sum.new_packets += own.new_packets;
      sum.retransmitted += own.retransmitted;
      sum.timeouts += own.timeouts;
      sum.paths_abandoned += own.paths_abandoned;
    }
  }
  return sum;
}

std::uint64_t Simulation::digest() const {
  std::uint64_t result = 0;
  for (const Host& host : hosts_) {
    result = mix64(result ^ host.digest);
  }
  const fabric::FabricTotals& totals = fabric_.totals();
  for (const std::uint64_t value :
       {totals.injected, totals.delivered, totals.trimmed, totals.marked, totals.dropped_all()}) {
    result = mix64(result ^ value);
  }
  return result;
}

Result<void> Simulation::check_conservation() const {
  const fabric::FabricTotals& totals = fabric_.totals();
  const auto text = [&](const char* what, std::uint64_t count) {
    return fail(ErrorCode::wrong_state,
                std::string("conservation of frames: ") + what + " holds " + std::to_string(count) +
                    " frames, but " + std::to_string(totals.injected) + " injected + " +
                    std::to_string(totals.duplicated) + " duplicated - " +
                    std::to_string(totals.delivered) + " delivered - " +
                    std::to_string(totals.dropped_all()) + " dropped leaves " +
                    std::to_string(totals.in_flight()));
  };
  if (fabric_.frames_inside() != totals.in_flight()) {
    return text("the network", fabric_.frames_inside());
  }
  if (frames_.used() != totals.in_flight()) {
    return text("the frame store", frames_.used());
  }
  return {};
}

}  // namespace weft::sim
