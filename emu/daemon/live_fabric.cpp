// Owns the connection of real frames with the modelled network.
//
// Fabric decides in its own time, counted in picoseconds, along which links a frame goes, how long
// it waits in queues, and whether it arrives. Here its bytes are kept meanwhile. submit() takes a
// frame out of a process's ring, mostly by leaving it there and noting the loan; advance() lets the
// network's time catch up with the clock and hands over what has arrived. Faults are decided by
// Fabric, and marks, cuts and damage are applied to the bytes only when the frame arrives.
#include "emu/daemon/live_fabric.hpp"

#include <utility>

#include "emu/daemon/capture.hpp"
#include "emu/daemon/loans.hpp"
#include "emu/daemon/protocols.hpp"
#include "emu/fabric/trimming.hpp"
#include "srd/base/check.hpp"
#include "srd/net/envelope.hpp"
#include "srd/net/flow_key.hpp"

namespace weft::daemon {
namespace {

namespace net = srd::net;

// How far ahead of its link a NIC accepts frames, in picoseconds: 20 us. Beyond that frames wait in
// the rings of the processes, which is their back-pressure.
constexpr fabric::Picos kNicQueue = 20'000'000;
constexpr std::size_t kSmallFrame = 128;  // an acknowledgement

// A NIC neither marks nor drops what its own host sends, since it accepts no more than kNicQueue:
// its uplink has no limit of its own.
fabric::Topology with_patient_nics(fabric::Topology topology) {
  for (const fabric::LinkId uplink : topology.ports()) {
    fabric::LinkProperties& link = topology.links()[uplink].properties;
    link.buffer = link.ecn_low = link.ecn_high = 0;
  }
  return topology;
}

}  // namespace

struct LiveFabric::Sink {
  LiveFabric& live;
  void deliver(fabric::Picos, fabric::PortId, const fabric::CalendarEvent& event) {
    live.deliver(event);
  }
  void passed(fabric::Picos when, const fabric::CalendarEvent& event, fabric::LinkId link) {
    live.record(when, event, link, nullptr);
  }
  void drop(fabric::Picos when, const fabric::CalendarEvent& event, fabric::LossReason reason,
            fabric::LinkId link) {
    ++live.moved_;
    if (live.capture_ != nullptr) [[unlikely]] {
      live.record(when, event, link, to_string(reason));
    }
    live.release(event.frame, live.inside_[event.frame]);
  }
  std::uint32_t duplicate(std::uint32_t handle) { return live.copy(handle); }
  void wake(fabric::Picos, std::uint32_t) {}
  void paused(fabric::Picos, fabric::PortId, bool) {}
};

LiveFabric::LiveFabric(Options options, TimePoint now, Deliver deliver)
    : topology_(
          std::make_unique<const fabric::Topology>(with_patient_nics(std::move(options.topology)))),
      fabric_(*topology_, {.seed = options.seed,
                           .trimmed_size = static_cast<std::uint16_t>(net::kEnvelopeSizeV4 +
                                                                      Protocols::kTrimmedPacket),
                           .live = true}),
      dilation_(options.dilation),
      max_frame_(options.max_frame),
      clock_(now, options.dilation),
      deliver_(std::move(deliver)),
      rng_(options.seed),
      inside_(options.max_frame, options.max_memory, topology_->ports().size()) {
  for (const fabric::Link& link : topology_->links()) {
    trims_ = trims_ || link.properties.trimming;
  }
}

// In steps, since after a long time without frames the count may have to be set back more than
// once, and faults that began or ended meanwhile are still processed.
fabric::Picos LiveFabric::count_anew(TimePoint now) {
  Sink sink{*this};
  while (inside_.size() == 0 && clock_.at(now) >= kLongRun) {
    fabric_.advance(clock_.at(now), sink);
    clock_.rewind(fabric_.rewind());
  }
  return clock_.at(now);
}

fabric::Picos LiveFabric::count_from(TimePoint now) {
  const fabric::Picos count = count_at(now);  // first: this may set fabric_.now() back
  return std::max(count, fabric_.now());
}

TimePoint LiveFabric::next_event() {
  const fabric::Picos next = fabric_.next_event();
  return next == fabric::kNoTime ? kNever : clock_.when(next);
}

std::uint32_t LiveFabric::store(fabric::PortId from, const FrameDelivery& to,
                                std::span<const std::byte> frame, const Lender& lender) {
  const std::uint32_t handle = inside_.add(from, frame.size());
  if (handle == fabric::kNone) {
    return fabric::kNone;
  }
  Stored& stored = inside_[handle];
  stored.to = to;
  if (lender.loans != nullptr) {
    // The sending process does not read its ring, so marks and damage may be written in place.
    stored.bytes = const_cast<std::byte*>(frame.data());
    stored.lender = lender.loans;
    stored.loan = lender.loans->lend(lender.position, handle, lender.now);
  } else if (!inside_.keep(stored, frame)) {
    inside_.remove(handle, stored);
    return fabric::kNone;
  }
  return handle;
}

// Ends a loan early: copies the frame out of its lender's ring, whose owner needs the room.
void LiveFabric::take_home(Stored& stored) {
  if (stored.lender != nullptr) {
    stored.gone = !inside_.keep(stored, {stored.bytes, stored.size});
    std::exchange(stored.lender, nullptr)->give_back(stored.loan);
  }
}

// Ends the oldest loan of that lender, because its ring is filling up behind the frame.
void LiveFabric::call_in(Loans& loans) { take_home(inside_[loans.handle()]); }

std::uint32_t LiveFabric::copy(std::uint32_t handle) {
  const Stored& original = inside_[handle];
  if (original.gone) {
    return fabric::kNone;
  }
  const std::uint32_t twin = store(original.from, original.to, {original.bytes, original.size});
  if (twin != fabric::kNone) {
    inside_[twin].entered = original.entered;
  }
  return twin;
}

void LiveFabric::release(std::uint32_t handle, Stored& stored) {
  if (stored.lender != nullptr) {
    std::exchange(stored.lender, nullptr)->give_back(stored.loan);
  }
  inside_.remove(handle, stored);
}

// False: the NIC is as far behind as it may be, and the frame stays in the sender's ring. That is
// how senders feel a slow link.
bool LiveFabric::submit(TimePoint now, fabric::PortId from, const FrameDelivery& to,
                        std::span<const std::byte> frame, const Lender& lender) {
  return submit(now, from, to, net::FlowKey::parse(frame), frame, lender);
}

bool LiveFabric::submit(TimePoint now, fabric::PortId from, const FrameDelivery& to,
                        const net::FlowKey& flow, std::span<const std::byte> frame,
                        const Lender& lender) {
  const fabric::Picos time = count_from(now);
  if (fabric_.uplink_free(from) > time + kNicQueue) {
    return false;
  }
  const unsigned ip_class = net::traffic_class(flow.frame());
  const auto dscp = static_cast<std::uint8_t>(ip_class >> 2);
  fabric::Frame meta;
  meta.destination = to.port;
  meta.hash = flow.hash();
  meta.handle = store(from, to, frame, lender);
  if (meta.handle == fabric::kNone) [[unlikely]] {
    return true;
  }
  meta.size = static_cast<std::uint16_t>(frame.size());
  meta.control = Protocols::is_control(flow, dscp);
  meta.ecn_capable = (ip_class & 3) != 0;
  meta.trimmable = trims_ && Protocols::may_trim(flow, dscp, frame.size());
  // The time in the network begins when the NIC starts to send: waiting for weftd, or for the NIC,
  // does not count.
  inside_[meta.handle].entered = std::max(time, fabric_.uplink_free(from));
  fabric_.inject(time, from, meta);
  return true;
}

std::size_t LiveFabric::advance(TimePoint now) {
  moved_ = 0;
  Sink sink{*this};
  fabric_.advance(count_at(now), sink);
  return moved_;
}

void LiveFabric::set_capture(Capture* capture) {
  for (fabric::LinkId link = 0; link < topology_->links().size(); ++link) {
    fabric_.watch(link, capture != nullptr && capture->watches(link));
  }
  capture_ = capture;
}

// Captures the frame as it is on that link: a copy, with the mark or cut that it has got so far.
void LiveFabric::record(fabric::Picos when, const fabric::CalendarEvent& event, fabric::LinkId link,
                        const char* dropped) {
  if (capture_ == nullptr) {
    return;
  }
  const Stored& stored = inside_[event.frame];
  if (stored.gone) {
    return;
  }
  scratch_.assign(stored.bytes, stored.bytes + stored.size);
  std::span<std::byte> frame{scratch_};
  if ((event.flags & fabric::kMarked) != 0) {
    net::mark_congested(frame);
  }
  if ((event.flags & fabric::kTrimmed) != 0) {
    frame = frame.first(Protocols::trim(frame));
  }
  capture_->frame(clock_.since_start(when), link, frame, event.flags, dropped);
}

std::span<std::byte> LiveFabric::as_it_arrives(Stored& stored, unsigned flags) {
  std::span<std::byte> frame{stored.bytes, stored.size};
  if ((flags & fabric::kMarked) != 0) {
    net::mark_congested(frame);
  }
  if ((flags & fabric::kTrimmed) != 0) {
    // A full queue had no room for more than the headers. What cannot be cut, because its sender
    // wrote no valid ones or has changed them meanwhile, must not pass it whole.
    const std::size_t size = Protocols::trim(frame);
    if (size == frame.size()) {
      return {};
    }
    frame = frame.first(size);
  }
  if ((flags & fabric::kCorrupted) != 0) {
    // Flip a bit only where the receiver's own checksum can find it: anywhere else, Ethernet's
    // checksum would have made the next switch drop the frame.
    const std::size_t begin = Protocols::checked_from(frame);
    if (begin == 0) {
      return {};
    }
    const std::size_t at = rng_.between(begin, frame.size() - 1);
    frame[at] ^= static_cast<std::byte>(1U << rng_.below(8));
  }
  return frame;
}

void LiveFabric::deliver(const fabric::CalendarEvent& event) {
  ++moved_;
  Stored& stored = inside_[event.frame];
  if ((event.flags & (fabric::kTrimmed | fabric::kCorrupted)) != 0) {
    take_home(stored);
  }
  FrameDelivery& arrival = stored.to;
  arrival.damaged = (event.flags & fabric::kCorrupted) != 0;
  arrival.frame = stored.gone ? std::span<std::byte>{} : as_it_arrives(stored, event.flags);
  if (arrival.record.time != 0) {
    arrival.record.flags |= srd::kRecordArrival;
    arrival.record.time += nanoseconds(clock_.here(event.when - stored.entered));
  }
  deliver_(arrival);
  release(event.frame, stored);
}

// The round trip of a full packet and its acknowledgement, without queues, to the most distant of
// the other hosts.
srd::NetworkModel LiveFabric::seen_from(fabric::PortId port) const {
  const fabric::Routes& routes = fabric_.routes();
  srd::NetworkModel network;
  network.trims = fabric::reports_losses(*topology_);
  fabric::Picos longest = 0;
  const auto passing = [&](const std::vector<fabric::LinkId>& path, std::size_t bytes) {
    fabric::Picos time = 0;
    for (const fabric::LinkId id : path) {
      const fabric::Link& link = topology_->links()[id];
      time += fabric::picos(link.properties.delay) +
              fabric::picos(topology_->nodes()[link.to].latency) +
              static_cast<fabric::Picos>(link.properties.rate.picoseconds_for(bytes));
    }
    return time;
  };
  for (fabric::PortId other = 0; other < fabric_.port_count(); ++other) {
    if (routes.host_of(other) != routes.host_of(port)) {
      longest = std::max(longest, passing(routes.path(port, other, 0), max_frame_) +
                                      passing(routes.path(other, port, 0), kSmallFrame));
    }
  }
  const Rate rate = topology_->links()[routes.uplink(port)].properties.rate;
  network.rate = Rate::bits_per_second(
      static_cast<std::uint64_t>(static_cast<double>(rate.bits_per_second()) / dilation_));
  network.round_trip = clock_.here(longest) + Duration{1};
  return network;
}

Result<std::uint32_t> LiveFabric::apply(TimePoint now, const fabric::Fault& fault) {
  auto applied = fabric_.apply(count_from(now), fault);
  advance(now);  // in effect for the very next frame
  return applied;
}

void LiveFabric::end(TimePoint now, std::uint32_t fault) {
  fabric_.end(count_from(now), fault);
  advance(now);
}

}  // namespace weft::daemon
