// Owns a frame's way through the network: queues, marks, trimming, the next link.
//
// A queue holds no frames. When a frame is queued on a link, the time at which its last bit leaves
// is known at once: after everything queued before it (LinkState::busy). So a hop is one event, at
// the far end of the cable, and the length of a queue is busy minus now.
#include "emu/fabric/fabric.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include "srd/base/check.hpp"

namespace weft::fabric {
namespace {

// The limit of a queue without one; doubled and added to a time it must not overflow.
constexpr Picos kUnlimited = INT64_MAX / 4;

// Salt: the random draw of a copy must differ from that of its original.
constexpr std::uint64_t kCopyDice = 0x636F7079ULL;

// Events per slice when every link is busy. More: less memory for the ring and fuller chunks, but
// longer sorting.
constexpr double kEventsPerSlice = 24;

// In real time: a slice of 2 us, a ring of 2 ms.
constexpr unsigned kLiveSliceBits = 21;
constexpr unsigned kLiveRingBits = 10;

// Times in the log of a queue have 32 bits and wrap, not before kLogSpan times the queue's limit. A
// log is reset when its link was idle for one limit, so no entry is older than half of the span,
// and differences are unambiguous.
constexpr Picos kLogSpan = 32;
// One second.
constexpr Picos kMaxLimit = 1'000'000'000'000;

// Within the delay of a shorter cable than this (50 ns), too few events happen for going node by
// node to pay.
constexpr Picos kMinLookahead = 50'000;
// 1 ms: the offset of an event in its window must fit into 32 bits of picoseconds.
constexpr Picos kMaxLookahead = 1'000'000'000;

Picos drain_time(Rate rate, Bytes bytes) { return static_cast<Picos>(rate.picoseconds_for(bytes)); }

unsigned log2_floor(std::uint64_t x) {
  return x == 0 ? 0 : static_cast<unsigned>(std::bit_width(x)) - 1;
}

// The width of a slice, as a power of 2 in picoseconds: kEventsPerSlice at full load.
unsigned slice_bits(const Topology& topology, std::uint32_t mtu) {
  double frames_per_ps = 0;
  for (const Link& link : topology.links()) {
    frames_per_ps += static_cast<double>(link.properties.rate.bits_per_second()) / (8e12 * mtu);
  }
  const double width = kEventsPerSlice / std::max(frames_per_ps, 1e-9);
  return std::clamp(log2_floor(static_cast<std::uint64_t>(width)), 4U, 20U);
}

// How far ahead a frame may be planned: through the fullest queue and over the longest cable.
Picos horizon(const Topology& topology) {
  Picos longest = 1'000'000;
  for (const Link& link : topology.links()) {
    const LinkProperties& is = link.properties;
    longest = std::max(longest, picos(is.delay) + drain_time(is.rate, is.buffer));
  }
  return longest;
}

// Enough slices for the horizon; what lies beyond waits in the heap.
unsigned ring_bits(const Topology& topology, unsigned slice) {
  const auto slices = static_cast<std::uint64_t>(horizon(topology)) >> slice;
  return std::clamp(log2_floor(slices) + 1, 8U, 19U);
}

}  // namespace

const char* to_string(LossReason reason) {
  switch (reason) {
    case LossReason::queue_full:
      return "queue_full";
    case LossReason::link_down:
      return "link_down";
    case LossReason::loss:
      return "loss";
    case LossReason::burst:
      return "burst";
    case LossReason::grey:
      return "grey";
    case LossReason::no_route:
      return "no_route";
    case LossReason::host_paused:
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
      queue_(options.live ? kLiveSliceBits : slice_bits(topology, options.mtu),
             options.live ? kLiveRingBits : ring_bits(topology, slice_bits(topology, options.mtu))),
      links_(topology.links().size()),
      rng_(mix64(options.seed) ^ 0x6661627269630000ULL),
      dice_seed_(mix64(options.seed ^ 0x64696365ULL)),
      troubles_(1),
      paused_(topology.ports().size(), 0) {
  routes_.seed(options.seed);
  for (LinkId id = 0; id < links_.size(); ++id) {
    const Link& from = topology.links()[id];
    const LinkProperties& is = from.properties;
    LinkState& link = links_[id];
    WEFT_CHECK(is.rate >= kMinRate);
    link.ps_per_kib = static_cast<std::uint32_t>(is.rate.picoseconds_for(1024));
    LinkClass kind;
    kind.limit = is.buffer == 0 ? kUnlimited : drain_time(is.rate, is.buffer);
    kind.delay = picos(is.delay) + picos(topology.nodes()[from.to].latency);
    kind.ecn_low = drain_time(is.rate, is.ecn_low);
    kind.ecn_high = drain_time(is.rate, is.ecn_high);
    const Picos span = kLogSpan * (std::min(kind.limit, kMaxLimit) + kind.delay);
    kind.log_shift = static_cast<unsigned>(
        std::max(static_cast<int>(std::bit_width(static_cast<std::uint64_t>(span))) - 31, 0));
    link.kind = class_of(kind);
    link.flags = static_cast<std::uint8_t>(
        (is.trimming ? kTrims : 0) |
        (topology.nodes()[from.to].kind == Node::Kind::host ? kLeadsToHost : 0));
    link.to = from.to;
  }
  if (options.by_node && lookahead() >= kMinLookahead) {
    calendar_.emplace(static_cast<std::uint32_t>(topology.nodes().size()), lookahead(),
                      horizon(topology));
  }
}

// The shortest delay of any cable: no event at one node affects another node sooner.
Picos Fabric::lookahead() const {
  Picos least = kMaxLookahead;
  for (const LinkState& link : links_) {
    least = std::min(least, classes_[link.kind].delay);
  }
  return least;
}

// The newest class first: the cables of a tier are made one after the other.
std::uint16_t Fabric::class_of(const LinkClass& wanted) {
  for (std::size_t i = classes_.size(); i-- > 0;) {
    if (classes_[i] == wanted) {
      return static_cast<std::uint16_t>(i);
    }
  }
  WEFT_CHECK(classes_.size() < 0xFFFF);
  classes_.push_back(wanted);
  return static_cast<std::uint16_t>(classes_.size() - 1);
}

// Everything that holds a time is set back: planned events (fault schedules, wakes), queues, logs
// and outages.
Picos Fabric::rewind() {
  WEFT_CHECK(options_.live && hops_pending_ == 0 && held_count_ == 0);
  const Picos by = std::exchange(now_, 0);
  EventQueue later(kLiveSliceBits, kLiveRingBits);
  for (const CalendarEvent* next = queue_.front(); next != nullptr; next = queue_.front()) {
    CalendarEvent event = *next;
    queue_.pop();
    event.when -= by;
    later.push(event);
  }
  queue_ = std::move(later);
  for (LinkState& link : links_) {
    link.busy = std::max<Picos>(link.busy - by, 0);
    link.control = std::max<Picos>(link.control - by, 0);
    link.log = {};
  }
  for (Trouble& trouble : troubles_) {
    for (Outage& outage : trouble.outages) {
      outage.from -= by;
      outage.until -= outage.until == kNoTime ? 0 : by;
    }
  }
  return by;
}

Picos Fabric::inject(Picos now, PortId from, const Frame& frame) {
  now_ = std::max(now_, now);
  ++totals_.injected;
  CalendarEvent event{.when = now_,
                      .frame = frame.handle,
                      .destination = frame.destination,
                      .hash = frame.hash,
                      .size = frame.size,
                      .flags = static_cast<std::uint8_t>((frame.control ? kControl : 0) |
                                                         (frame.ecn_capable ? kEcnCapable : 0) |
                                                         (frame.trimmable ? kTrimmable : 0))};
  const LinkId uplink = routes_.uplink(from);
  if (frame.destination >= paused_.size()) {
    drop(event, LossReason::no_route, uplink);
  } else {
    send(uplink, event);
  }
  return links_[uplink].busy;
}

void Fabric::drop(const CalendarEvent& event, LossReason reason, LinkId link) {
  ++totals_.dropped[static_cast<std::size_t>(reason)];
  ++links_[link].counters.drops;
  notices_.push_back({event, reason, link, Notice::Kind::dropped});
}

// Marks between the two thresholds with rising probability, above the high one always (RED without
// averaging). The log gives the queue at the time when the frame left.
void Fabric::mark(CalendarEvent& event, LinkState& via, const LinkClass& kind, Picos left) {
  const auto at = static_cast<std::uint32_t>(left >> kind.log_shift);
  Picos queue = 0;
  for (unsigned back = 1; back <= kLogEntries; ++back) {
    const LogEntry& entry = via.log[(via.head - back) % kLogEntries];
    const auto age = static_cast<std::int32_t>(at - entry.when);
    queue = (static_cast<Picos>(entry.queue) - age) << kind.log_shift;
    if (age >= 0) {
      break;
    }
  }
  if (queue <= kind.ecn_low) {
    return;
  }
  if (queue < kind.ecn_high) {
    const auto share = static_cast<double>(queue - kind.ecn_low) /
                       static_cast<double>(kind.ecn_high - kind.ecn_low);
    if (static_cast<double>(dice(event, event.via) >> 11) * 0x1.0p-53 >= share) {
      return;
    }
  }
  event.flags |= kMarked;
  ++via.counters.marks;
  ++totals_.marked;
}

// Logs the queue after a frame has joined it at `now`. Arrivals within an eighth of the delay share
// an entry.
void Fabric::note_queue(LinkState& link, const LinkClass& kind, Picos now) {
  const auto at = static_cast<std::uint32_t>(now >> kind.log_shift);
  const auto queue = static_cast<std::uint32_t>((link.busy - now) >> kind.log_shift);
  LogEntry& last = link.log[(link.head - 1U) % kLogEntries];
  if (at - last.when < static_cast<std::uint32_t>(kind.delay >> 3 >> kind.log_shift)) {
    last.queue = queue + (at - last.when);
  } else {
    link.log[link.head++ % kLogEntries] = {at, queue};
  }
}

void Fabric::send(LinkId id, CalendarEvent& event) {
  LinkState& link = links_[id];
  if (link.trouble != 0 && !suffer(link, id, event)) [[unlikely]] {
    return;
  }
  enqueue(link, id, event);
}

// Queues the copy right behind its original, as if the frame had been sent twice: the same faults
// apply to it, with random draws of its own.
void Fabric::send_copy(LinkId id, CalendarEvent& event) {
  LinkState& link = links_[id];
  Rng dice_now(mix64(dice(event, id) ^ kCopyDice));
  if (survives(troubles_[link.trouble], id, event, dice_now)) {
    enqueue(link, id, event);
  }
}

// Plans the frame's next hop: the time when it leaves this link, and when and where it arrives.
// Data that finds the queue full is dropped, or cut to its header, which then goes as control. The
// next link is looked up now and not at the far end, so that its memory can be prefetched.
inline void Fabric::enqueue(LinkState& link, LinkId id, CalendarEvent& event) {
  const Picos now = event.when;
  const LinkClass& kind = classes_[link.kind];
  LinkCounters& counters = link.counters;
  if ((event.flags & kControl) == 0) {
    const Picos time = (static_cast<Picos>(event.size) * link.ps_per_kib) >> 10;
    const Picos start = std::max(link.busy, now);
    // An idle link takes any frame: one that has become slow may have less room than for one.
    if (start - now + time > kind.limit && start != now) [[unlikely]] {
      if ((link.flags & kTrims) == 0 || (event.flags & kTrimmable) == 0) {
        drop(event, LossReason::queue_full, id);
        return;
      }
      event.flags |= kTrimmed | kControl;
      event.size = std::min(event.size, options_.trimmed_size);
      ++counters.trims;
      ++totals_.trimmed;
    } else {
      if (kind.ecn_high != 0) {
        // Idle for so long that old entries might be taken for new ones after a wrap.
        if (now - link.busy > kind.limit) [[unlikely]] {
          link.log.fill({static_cast<std::uint32_t>((now - kind.delay) >> kind.log_shift), 0});
        }
        link.busy = start + time;
        note_queue(link, kind, now);
      } else {
        link.busy = start + time;
      }
      event.when = link.busy;
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
  event.when += kind.delay;
  event.via = id;
  if ((link.flags & kLeadsToHost) != 0) {
    if (routes_.host_of(event.destination) != link.to) [[unlikely]] {
      // The cable joins two hosts, and the frame is for a third one.
      drop(event, LossReason::no_route, id);
      return;
    }
    event.flags |= kArrives;
    event.next = id;
  } else {
    event.next = routes_.next(link.to, event.destination, event.hash);
    if (event.next == kNone) [[unlikely]] {
      drop(event, LossReason::no_route, id);
      return;
    }
  }
  if ((link.flags & kWatched) != 0) [[unlikely]] {
    notices_.push_back({event, LossReason::loss, id, Notice::Kind::passed});
    notices_.back().event.when = left;
  }
  push_hop(event);
}

// Control goes before all waiting data, but not before the frame on the wire. Data that is queued
// already keeps its planned departure; the time that control takes is charged to data that is
// queued later. So over a busy period the sums are right, and no departure is ever planned twice.
void Fabric::send_control(LinkState& link, LinkId id, CalendarEvent& event) {
  const Picos now = event.when;
  const Picos time = (static_cast<Picos>(event.size) * link.ps_per_kib) >> 10;
  Picos start = std::max(link.control, now);
  // Control has a bound of its own, twice that of data, so that a flood of headers cannot delay the
  // link without end.
  if (start - now > 2 * classes_[link.kind].limit) [[unlikely]] {
    drop(event, LossReason::queue_full, id);
    event.when = kNoTime;
    return;
  }
  // The rest of the frame on the wire, as if the queue consisted of frames of the usual size. Not
  // when control is being sent: then the wire is its own.
  if (link.busy > now && link.control <= now) {
    const Picos frame = (static_cast<Picos>(options_.mtu) * link.ps_per_kib) >> 10;
    start += (link.busy - now) % std::max<Picos>(frame, 1);
  }
  link.control = start + time;
  link.busy = std::max(link.busy + time, link.control);
  event.when = link.control;
}

// For a paused host: its NIC keeps the frame until the host goes on, or drops it when it is full.
bool Fabric::hold(const CalendarEvent& event) {
  if (held_.size() <= event.destination) {
    held_.resize(paused_.size());
  }
  auto& waiting = held_[event.destination];
  if (waiting.size() >= options_.paused_frames) {
    drop(event, LossReason::host_paused, event.via);
  } else {
    waiting.push_back(event);
    ++held_count_;
  }
  return true;
}

std::size_t Fabric::memory() const {
  return queue_.memory() + (calendar_ ? calendar_->memory() : 0) +
         links_.size() * sizeof(LinkState);
}

}  // namespace weft::fabric
