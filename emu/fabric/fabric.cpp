// Owns a frame's way through the network: queues, marks, trimming, the next link.
#include "emu/fabric/fabric.hpp"

#include <algorithm>
#include <bit>

#include "srd/base/check.hpp"

namespace weft::emu {
namespace {

constexpr Picos kUnlimited = INT64_MAX / 4;

Picos drain_time(Rate rate, Bytes bytes) { return static_cast<Picos>(rate.picoseconds_for(bytes)); }

unsigned log2_floor(std::uint64_t x) {
  return x == 0 ? 0 : static_cast<unsigned>(std::bit_width(x)) - 1;
}

// Slices that hold a handful of events when every link is busy.
unsigned slice_bits(const Topology& topology, std::uint32_t mtu) {
  double frames_per_ps = 0;
  for (const Link& link : topology.links()) {
    frames_per_ps += static_cast<double>(link.properties.rate.bits_per_second()) / (8e12 * mtu);
  }
  const double width = 6 / std::max(frames_per_ps, 1e-9);
  return std::clamp(log2_floor(static_cast<std::uint64_t>(width)), 6U, 16U);
}

unsigned ring_bits(const Topology& topology, unsigned slice) {
  Picos horizon = 0;
  for (const Link& link : topology.links()) {
    const LinkProperties& is = link.properties;
    horizon = std::max(horizon, picos(is.delay) + drain_time(is.rate, is.buffer));
  }
  const auto slices = static_cast<std::uint64_t>(std::max<Picos>(horizon, 1'000'000)) >> slice;
  return std::clamp(log2_floor(slices) + 1, 10U, 19U);
}

}  // namespace

const char* to_string(DropReason reason) {
  switch (reason) {
    case DropReason::queue_full:
      return "queue_full";
    case DropReason::link_down:
      return "link_down";
    case DropReason::loss:
      return "loss";
    case DropReason::burst:
      return "burst";
    case DropReason::grey:
      return "grey";
    case DropReason::no_route:
      return "no_route";
    case DropReason::host_paused:
      return "host_paused";
  }
  return "unknown";
}

std::uint64_t FabricTotals::dropped_all() const {
  std::uint64_t sum = 0;
  for (const std::uint64_t count : dropped) {
    sum += count;
  }
  return sum;
}

Fabric::Fabric(const Topology& topology, const FabricOptions& options)
    : topology_(topology),
      options_(options),
      routes_(topology),
      queue_(slice_bits(topology, options.mtu),
             ring_bits(topology, slice_bits(topology, options.mtu))),
      links_(topology.links().size()),
      counters_(topology.links().size()),
      rng_(mix64(options.seed) ^ 0x6661627269630000ULL),
      troubles_(1),
      paused_(topology.ports().size(), 0) {
  routes_.seed(options.seed);
  for (LinkId id = 0; id < links_.size(); ++id) {
    const Link& from = topology.links()[id];
    const LinkProperties& is = from.properties;
    LinkState& link = links_[id];
    link.ps_per_kib = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(is.rate.picoseconds_for(1024), 0xFFFFFFFF));
    link.limit = is.buffer == 0 ? kUnlimited : drain_time(is.rate, is.buffer);
    link.delay = picos(is.delay) + picos(topology.nodes()[from.to].latency);
    link.ecn_low = drain_time(is.rate, is.ecn_low);
    link.ecn_high = drain_time(is.rate, is.ecn_high);
    link.flags = (is.trimming ? kTrims : 0U) |
                 (topology.nodes()[from.to].kind == Node::Kind::host ? kLeadsToHost : 0U);
    link_to_.push_back(from.to);
  }
  log_.resize(links_.size() * kLogEntries);
}

Picos Fabric::inject(Picos now, PortId from, const Frame& frame) {
  now_ = std::max(now_, now);
  ++totals_.injected;
  Event event{.when = now_,
              .frame = frame.handle,
              .destination = frame.destination,
              .hash = frame.hash,
              .size = frame.size,
              .flags = static_cast<std::uint8_t>((frame.control ? kControl : 0) |
                                                 (frame.ecn_capable ? kEcnCapable : 0))};
  const LinkId uplink = routes_.uplink(from);
  if (frame.destination >= paused_.size()) {
    drop(event, DropReason::no_route, uplink);
  } else {
    send(uplink, event);
  }
  return links_[uplink].busy;
}

void Fabric::drop(const Event& event, DropReason reason, LinkId link) {
  ++totals_.dropped[static_cast<std::size_t>(reason)];
  ++counters_[link].drops;
  notices_.push_back({event, reason, link, Notice::Kind::dropped});
}

void Fabric::prefetch_after() {
  if (const Event* soon = queue_.peek_after(2); soon != nullptr) {
    __builtin_prefetch(&links_[soon->via]);
    __builtin_prefetch(&links_[soon->next], 1);
  }
}

bool Fabric::reach(Event& event) {
  LinkState& via = links_[event.via];
  if (via.trouble != 0) [[unlikely]] {
    const Trouble& trouble = troubles_[via.trouble];
    const Picos left = event.when - via.delay - picos(trouble.sum.extra_delay);
    if (trouble.down_from != kNoTime && left > trouble.down_from && left <= trouble.down_until) {
      drop(event, DropReason::link_down, event.via);  // it was still waiting when the cable was cut
      return false;
    }
  }
  if ((event.flags & (kControl | kEcnCapable | kMarked)) == kEcnCapable && via.ecn_high != 0) {
    const Picos left = event.when - via.delay;
    if (via.busy - left > via.ecn_low) {
      mark(event, via, left);
    }
  }
  return true;
}

void Fabric::mark(Event& event, LinkState& via, Picos left) {
  const LogEntry* log = &log_[event.via * kLogEntries];
  Picos queue = 0;
  for (std::size_t back = 1; back <= kLogEntries; ++back) {
    const LogEntry& entry = log[(via.head - back) % kLogEntries];
    queue = entry.busy - left;
    if (entry.when <= left) {
      break;
    }
  }
  if (queue <= via.ecn_low) {
    return;
  }
  if (queue < via.ecn_high) {
    const auto share =
        static_cast<double>(queue - via.ecn_low) / static_cast<double>(via.ecn_high - via.ecn_low);
    if (!rng_.chance(share)) {
      return;
    }
  }
  event.flags |= kMarked;
  ++counters_[event.via].marks;
  ++totals_.marked;
}

void Fabric::send(LinkId id, Event& event) {
  LinkState& link = links_[id];
  Picos extra = 0;
  if (link.trouble != 0 && !suffer(link, id, event, extra)) [[unlikely]] {
    return;
  }
  const Picos now = event.when;
  LinkCounters& counters = counters_[id];
  if ((event.flags & kControl) == 0) {
    const Picos time = (static_cast<Picos>(event.size) * link.ps_per_kib) >> 10;
    const Picos start = std::max(link.busy, now);
    if (start - now + time > link.limit) [[unlikely]] {
      if ((link.flags & kTrims) == 0) {
        drop(event, DropReason::queue_full, id);
        return;
      }
      event.flags |= kTrimmed | kControl;
      event.size = std::min(event.size, options_.trimmed_size);
      ++counters.trims;
      ++totals_.trimmed;
    } else {
      link.busy = start + time;
      event.when = link.busy;
      LogEntry* log = &log_[id * kLogEntries];
      if (LogEntry& last = log[(link.head - 1) % kLogEntries]; now - last.when < link.delay >> 3) {
        last.busy = link.busy;
      } else {
        log[link.head++ % kLogEntries] = {now, link.busy};
      }
      counters.longest_queue = std::max(counters.longest_queue, link.busy - now);
    }
  }
  if ((event.flags & kControl) != 0) {
    send_control(link, id, event);
    if (event.when == kNoTime) {
      return;
    }
  }
  counters.bytes += event.size;
  const Picos left = event.when;
  event.when += link.delay + extra;
  event.via = id;
  if ((link.flags & kLeadsToHost) != 0) {
    if (routes_.host_of(event.destination) != link_to_[id]) [[unlikely]] {
      drop(event, DropReason::no_route,
           id);  // a cable between two hosts, and the frame is for a third
      return;
    }
    event.flags |= kArrives;
    event.next = id;
  } else {
    event.next = routes_.next(link_to_[id], event.destination, event.hash);
    if (event.next == kNone) [[unlikely]] {
      drop(event, DropReason::no_route, id);
      return;
    }
  }
  if ((link.flags & kWatched) != 0) [[unlikely]] {
    notices_.push_back({event, DropReason::loss, id, Notice::Kind::passed});
    notices_.back().event.when = left;
  }
  push_hop(event);
}

// Control goes before all waiting data, but not before the frame on the wire. The data already
// queued keeps its departure times; the time that control took is charged to the data that comes
// after: over a busy period the sums are right, and no departure is ever planned twice.
void Fabric::send_control(LinkState& link, LinkId id, Event& event) {
  const Picos now = event.when;
  const Picos time = (static_cast<Picos>(event.size) * link.ps_per_kib) >> 10;
  Picos start = std::max(link.control, now);
  if (start - now > 2 * link.limit) [[unlikely]] {
    drop(event, DropReason::queue_full, id);
    event.when = kNoTime;
    return;
  }
  if (link.busy > now && link.control <= now) {
    const Picos frame = (static_cast<Picos>(options_.mtu) * link.ps_per_kib) >> 10;
    start += (link.busy - now) % std::max<Picos>(frame, 1);
  }
  link.control = start + time;
  link.busy = std::max(link.busy + time, link.control);
  event.when = link.control;
}

bool Fabric::hold(const Event& event) {
  if (held_.size() <= event.destination) {
    held_.resize(paused_.size());
  }
  auto& waiting = held_[event.destination];
  if (waiting.size() >= options_.paused_frames) {
    drop(event, DropReason::host_paused, event.via);
  } else {
    waiting.push_back(event);
    ++held_count_;
  }
  return true;
}

std::size_t Fabric::memory() const {
  return queue_.memory() +
         links_.size() * (sizeof(LinkState) + sizeof(LinkCounters) + sizeof(NodeId)) +
         log_.size() * sizeof(LogEntry);
}

}  // namespace weft::emu
