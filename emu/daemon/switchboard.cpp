// Owns the forwarding of frames.
#include "emu/daemon/switchboard.hpp"

#include <algorithm>
#include <cstring>

#include "emu/daemon/capture.hpp"
#include "emu/daemon/management.hpp"
#include "emu/daemon/neighbours.hpp"
#include "emu/daemon/switchboard_head.hpp"
#include "srd/net/envelope.hpp"
#include "srd/net/flow_key.hpp"
#include "srd/run/clock.hpp"

namespace weft::daemon {
namespace {

namespace net = srd::net;

// A sending time is accepted if it is not older than this, and not in the future.
constexpr Duration kOldestStamp = std::chrono::seconds{10};
constexpr Duration kClockSkew = std::chrono::milliseconds{1};

// Dropped for what the sender wrote, and not because a receiver has no room.
bool is_senders_doing(FrameDrop reason) {
  return reason == FrameDrop::malformed || reason == FrameDrop::wrong_source ||
         reason == FrameDrop::no_nic || reason == FrameDrop::no_process;
}

}  // namespace

Switchboard::Switchboard(Plant& plant, OnFlow on_flow)
    : plant_(plant), on_flow_(std::move(on_flow)) {
  for (const auto& nic : plant.nics()) {
    our_macs_.insert(net::mac_of(nic->address));
  }
}

const char* to_string(FrameDrop drop) {
  switch (drop) {
    case FrameDrop::malformed:
      return "malformed";
    case FrameDrop::wrong_source:
      return "wrong_source";
    case FrameDrop::no_nic:
      return "no_nic";
    case FrameDrop::no_process:
      return "no_process";
    case FrameDrop::not_receiving:
      return "not_receiving";
    case FrameDrop::corrupted:
      return "corrupted";
    case FrameDrop::oversize:
      return "oversize";
    case FrameDrop::network_full:
      return "network_full";
  }
  return "unknown";
}

// Always inline: where it is called, the result stays in registers.
[[gnu::always_inline]] inline Switchboard::Steering Switchboard::read(const net::FlowKey& flow) {
  return {flow, Protocols::steer(flow)};
}

SwitchboardCounters Switchboard::counters() const {
  SwitchboardCounters counters = counters_;
  if (fabric_ != nullptr) {
    counters.dropped[static_cast<std::size_t>(FrameDrop::network_full)] = fabric_->refused();
  }
  return counters;
}

void Switchboard::drop(FrameDrop reason, std::span<const std::byte> frame) {
  bad_frames_ += is_senders_doing(reason) ? 1 : 0;
  ++counters_.dropped[static_cast<std::size_t>(reason)];
  if (fabric_ != nullptr && fabric_->capture() != nullptr) {
    fabric_->capture()->refused(fabric_->network_time(srd::monotonic_now()), frame,
                                to_string(reason));
  }
}

// A frame that must wait stays at the front of the ring, and with it all behind it: a process has
// one queue, as a NIC port has. A frame that nobody could receive ends the burst: a process that
// sends only such frames has one of them looked at in a round, where the others have kBurst.
std::size_t Switchboard::pump(TimePoint now, Slot& from) {
  std::size_t count = 0;
  auto& ring = from.port.rx();
  while (count < kBurst) {
    srd::RecordInfo info;
    const auto frame = ring.peek(info);
    if (frame.empty()) {
      break;
    }
    info.flags &= srd::kRecordUnchecked;  // the other flags only weftd may set
    if (info.time < nanoseconds(now - kOldestStamp) || info.time > nanoseconds(now + kClockSkew)) {
      info.time = 0;  // not believable: no time is known
    }
    const std::uint64_t bad_frames = bad_frames_;
    if (!forward(now, from, frame, info)) {
      waiting_ = true;
      break;
    }
    ring.pop(frame);
    ring.prefetch();
    ++count;
    from.counters.bytes_in += frame.size();
    if (bad_frames_ != bad_frames) [[unlikely]] {
      break;
    }
  }
  from.counters.frames_in += count;
  give_room(now, from);
  if (from.port.broken()) [[unlikely]] {
    from.doomed = true;
  }
  return count;
}

// Releases the ring up to the oldest frame that is still on loan to the modelled network. Loans may
// keep half of the ring, and for kMaxLoan: beyond that the frames are copied, or the process
// would find its ring full and take weftd for stopped.
void Switchboard::give_room(TimePoint now, Slot& from) {
  auto& ring = from.port.rx();
  while (!from.loans.empty() && (ring.position() - from.loans.position() > from.ring_bytes / 2 ||
                                 now - from.loans.since() > kMaxLoan)) {
    fabric_->call_in(from.loans);
  }
  ring.release_to(from.loans.empty() ? ring.position() : from.loans.position());
}

// One frame of a process. In this order: read the headers; is the sender the process that it says;
// which NIC has the destination, or the outside; through the modelled network, if there is one;
// else straight into the ring of the receiving process.
bool Switchboard::forward(TimePoint now, Slot& from, std::span<const std::byte> frame,
                          const srd::RecordInfo& info) {
  const Head head(frame);
  const auto flow = net::FlowKey::parse(head.span());
  const auto steering = read(flow);
  if (!steering.packet.known) [[unlikely]] {
    drop(FrameDrop::malformed, frame);
    return true;
  }
  if (!is_from(*from.nic, source_of(from), steering)) [[unlikely]] {
    drop(FrameDrop::wrong_source, frame);
    return true;
  }
  if (steering.packet.group || net::is_group(steering.destination())) [[unlikely]] {
    send_to_group(now, from, steering, head, frame, info);
    return true;
  }
  PlantNic* const nic = nic_of(from, steering.destination());
  if (nic == nullptr) [[unlikely]] {
    if (outside_ != nullptr) {
      return send_outside(now, from, steering, head, frame, info);
    }
    drop(FrameDrop::no_nic, frame);
    return true;
  }
  if (fabric_ != nullptr) {
    return enter_fabric(now, from, *nic, steering, frame, info);
  }
  if (steering.packet.management) [[unlikely]] {
    steer_management(*nic, head, frame, info);
    return true;
  }
  Slot* to = slot_of(*nic, steering.packet.place);
  if (to == nullptr) [[unlikely]] {
    drop(FrameDrop::no_process, frame);
    return true;
  }
  if (to->serial != from.last_target && on_flow_(from, *to)) [[unlikely]] {
    from.last_target = to->serial;
  }
  return copy_to_ring(now, *to, head, frame, info);
}

Slot* Switchboard::slot_of(const PlantNic& nic, std::uint32_t block) {
  Slot* slot = block < kSlotsPerNic ? nic.slots[block].get() : nullptr;
  return slot == nullptr || slot->doomed ? nullptr : slot;
}

// The ring that a frame came from shows its true sender. With forged headers a process could make
// peers believe that another one has restarted. RoCE packets name no sender but the address.
FrameSource Switchboard::source_of(const Slot& from) {
  return {.nic = from.nic->port, .attachment = from.id, .life = from.life};
}

[[gnu::always_inline]] inline bool Switchboard::is_from(const PlantNic& nic,
                                                        const FrameSource& from,
                                                        const Steering& steering) {
  return Protocols::nic_of(steering.source()) == nic.address &&
         (!steering.packet.names_sender ||
          (steering.packet.sender.value() == from.attachment && steering.packet.life == from.life));
}

PlantNic* Switchboard::nic_of(Slot& from, const srd::Address& called) {
  const srd::Address address = Protocols::nic_of(called);
  if (from.last_nic == nullptr || from.last_nic->address != address) {
    from.last_nic = plant_.find(address);
  }
  return from.last_nic;
}

bool Switchboard::enter_fabric(TimePoint now, Slot& from, const PlantNic& nic,
                               const Steering& steering, std::span<const std::byte> frame,
                               const srd::RecordInfo& info) {
  return fabric_->submit(now, from.nic->port,
                         {.port = nic.port,
                          .block = steering.packet.place,
                          .record = info,
                          .management = steering.packet.management,
                          .source = source_of(from),
                          .frame = {}},
                         steering.flow, frame,
                         {.loans = &from.loans, .position = from.port.rx().position(), .now = now});
}

void Switchboard::arrive(const FrameDelivery& arrival) {
  PlantNic& nic = *plant_.nics()[arrival.port];
  if (arrival.frame.empty()) {
    drop(FrameDrop::corrupted, arrival.frame);
    return;
  }
  const Head head(arrival.frame);
  if (!is_still_from(arrival, head)) [[unlikely]] {
    drop(FrameDrop::wrong_source, arrival.frame);
  } else if (arrival.outside >= 0) {
    send_by_port(static_cast<std::size_t>(arrival.outside), arrival, head);
  } else if (arrival.group) {
    const auto flow = net::FlowKey::parse(head.span());
    const auto steering = read(flow);
    copy_to_members(&nic, steering.packet.known ? steering.destination() : srd::Address{}, head,
                    arrival.frame, arrival.record);
  } else if (arrival.management) {
    steer_management(nic, head, arrival.frame, arrival.record);
  } else if (Slot* to = slot_of(nic, arrival.block); to == nullptr) {
    drop(FrameDrop::no_process, arrival.frame);
  } else if (!copy_to_ring(kNever, *to, head, arrival.frame, arrival.record)) {
    drop(FrameDrop::not_receiving, arrival.frame);  // as a NIC drops when its buffer is full
  }
}

// While a frame was inside of the network, in its sender's ring, the sender could write into it: so
// its headers are checked again. A frame that the network itself damaged is left to the receiver's
// checksum.
bool Switchboard::is_still_from(const FrameDelivery& arrival, const Head& head) const {
  if (arrival.source.nic == FrameSource::kNone || arrival.damaged) {
    return true;
  }
  const auto flow = net::FlowKey::parse(head.span());
  const auto steering = read(flow);
  return steering.packet.known &&
         is_from(*plant_.nics()[arrival.source.nic], arrival.source, steering);
}

// Steered by a copy, as the process can write into its ring meanwhile; what goes on is the frame.
// As on a wire: what finds no room is lost, and the sender's retries make up for it.
void Switchboard::steer_management(PlantNic& nic, const Head& head,
                                   std::span<const std::byte> frame, const srd::RecordInfo& info) {
  constexpr std::size_t kMaxManagement = 512;
  std::array<std::byte, kMaxManagement> copy;
  const auto message = std::span(copy).first(std::min(frame.size(), kMaxManagement));
  std::memcpy(message.data(), frame.data(), message.size());
  const auto flow = net::FlowKey::parse(message);
  const ManagementRoute route = route_management(
      nic.services, nic.requests, flow.claimed_source().value_or(srd::Address{}), flow.payload());
  Slot* to = slot_of(nic, route.place);
  if (route.refuse || (route.ends && to == nullptr && route.place < nic.left.size() &&
                       nic.left.test(route.place))) {
    const auto answer = answer_for_nobody(message);
    if (!answer.empty()) {
      send_for(nic, answer);
      return;
    }
  }
  if (to == nullptr || !copy_to_ring(kNever, *to, head, frame, info)) {
    drop(to == nullptr ? FrameDrop::no_process : FrameDrop::not_receiving, frame);
  }
}

// A frame of weftd's own, in the name of that NIC.
void Switchboard::send_for(const PlantNic& nic, std::span<const std::byte> frame) {
  const Head head(frame);
  const auto flow = net::FlowKey::parse(head.span());
  const auto steering = read(flow);
  PlantNic* const to =
      steering.packet.known ? plant_.find(Protocols::nic_of(steering.destination())) : nullptr;
  FrameDelivery arrival{.port = to == nullptr ? 0 : to->port,
                        .record = {.flags = srd::kRecordUnchecked, .time = 0},
                        .management = true,
                        .frame = frame};
  const TimePoint now = srd::monotonic_now();
  if (to == nullptr) {
    const int port = steering.packet.known && outside_ != nullptr
                         ? outside_->find(Protocols::nic_of(steering.destination()))
                         : -1;
    if (port < 0) {
      drop(FrameDrop::no_nic, frame);
      return;
    }
    arrival.outside = static_cast<std::int16_t>(port);
    arrival.outside_serial = outside_->port(static_cast<std::size_t>(port)).serial;
    send_towards_port(now, &nic, arrival, head);
  } else if (fabric_ == nullptr) {
    steer_management(*to, head, frame, arrival.record);
  } else if (!fabric_->submit(now, nic.port, arrival, frame)) {
    drop(FrameDrop::not_receiving, frame);
  }
}

bool Switchboard::copy_to_ring(TimePoint now, Slot& to, const Head& head,
                               std::span<const std::byte> frame, const srd::RecordInfo& info) {
  std::byte* place = to.port.tx().reserve(frame.size());
  if (place == nullptr) [[unlikely]] {
    if (to.port.broken()) {
      to.doomed = true;
    }
    if (now == kNever || (!to.doomed && !to.stall.given_up(now, to.port.tx().consumed(),
                                                           to.ring_bytes, kPatience))) {
      return false;
    }
    drop(FrameDrop::not_receiving, frame);
    return true;
  }
  to.stall.over();
  std::memcpy(place, head.bytes.data(), head.size);
  if (frame.size() > head.size) {
    to.port.tx().copy(place + head.size, frame.subspan(head.size));
  }
  to.port.tx().commit(frame.size(), info);
  ++to.counters.frames_out;
  to.counters.bytes_out += frame.size();
  ++counters_.frames;
  counters_.bytes += frame.size();
  if (to_notify_.empty() || to_notify_.back() != &to) {
    to_notify_.push_back(&to);
  }
  return true;
}

// To a NIC that is none of ours. As long as it is not known behind which port that is, to all
// ports.
bool Switchboard::send_outside(TimePoint now, const Slot& from, const Steering& steering,
                               const Head& head, std::span<const std::byte> frame,
                               const srd::RecordInfo& info) {
  const int known = outside_->find(Protocols::nic_of(steering.destination()));
  if (known >= 0 && !outside_->has_room(static_cast<std::size_t>(known))) {
    return false;
  }
  bool anywhere = false;
  for (std::size_t port = 0; port < outside_->size(); ++port) {
    if (outside_->is_there(port) && (known < 0 || port == static_cast<std::size_t>(known))) {
      anywhere = true;
      send_towards_port(now, from.nic, leaving_by(port, frame, info, source_of(from)), head);
    }
  }
  if (!anywhere) {
    drop(FrameDrop::no_nic, frame);
  }
  return true;
}

std::size_t Switchboard::pump_outside(TimePoint now, std::size_t port) {
  if (!outside_->is_there(port)) {
    return 0;
  }
  srd::FrameIo& io = *outside_->port(port).io;
  const auto frames = io.receive();
  for (const srd::RxFrame& frame : frames) {
    take_from_port(now, port, frame);
  }
  const std::size_t count = frames.size();
  io.release();
  return count;
}

// One frame from the outside, which may be anything. Size and headers are checked first; a frame
// may not claim to be from one of our NICs; frames that are not for our NICs are passed on to other
// ports; the rest must have intact checksums.
void Switchboard::take_from_port(TimePoint now, std::size_t index,
                                 std::span<const std::byte> frame) {
  Outside::Port& port = outside_->port(index);
  const auto refuse = [&](FrameDrop reason) {
    ++port.dropped;
    drop(reason, frame);
  };
  // A device may receive larger frames than it was asked for; rings and the modelled network have
  // no room for them.
  if (frame.size() > outside_->max_frame()) {
    refuse(FrameDrop::oversize);
    return;
  }
  if (frame.size() < net::kEthernetSize) {
    refuse(FrameDrop::malformed);
    return;
  }
  const auto flow = net::FlowKey::parse(frame);
  const auto steering = read(flow);
  if (claims_ours(port, frame, steering.packet.known)) {
    refuse(FrameDrop::wrong_source);
    return;
  }
  if (!steering.packet.known) {
    if (!answer_neighbour(now, index, frame)) {
      pass_between_ports(now, index, frame);
    }
    return;
  }
  const bool group = steering.packet.group && net::is_group(steering.destination());
  if (group) {
    take_group_from_port(now, index, steering, frame);
    return;
  }
  const PlantNic* nic = plant_.find(Protocols::nic_of(steering.destination()));
  if (nic == nullptr) {
    if (outside_->claim(now, index, Protocols::nic_of(steering.source()))) {
      pass_between_ports(now, index, frame);
    } else {
      refuse(FrameDrop::wrong_source);
    }
    return;
  }
  // Processes do not verify checksums, as their carrier is memory: this is the place to do it.
  if (const auto fault = Protocols::check(flow, frame); fault != net::PacketFault::none) {
    refuse(fault == net::PacketFault::corrupted ? FrameDrop::corrupted : FrameDrop::malformed);
    return;
  }
  if (!outside_->claim(now, index, Protocols::nic_of(steering.source()))) {
    refuse(FrameDrop::wrong_source);
    return;
  }
  FrameDelivery arrival{.port = nic->port,
                        .block = steering.packet.place,
                        .record = {},
                        .management = steering.packet.management,
                        .frame = frame};
  if (fabric_ != nullptr && port.nic != nullptr) {
    if (!fabric_->submit(now, port.nic->port, arrival, frame)) {
      refuse(FrameDrop::not_receiving);
    }
  } else {
    arrive(arrival);
  }
}

// No sender outside may have the address of one of our NICs. One exception: the kernel behind a tap
// may have its host's address, for packets of other protocols than ours.
bool Switchboard::claims_ours(const Outside::Port& port, std::span<const std::byte> frame,
                              bool steered) const {
  const auto source = net::FlowKey::parse(frame).claimed_source();
  const PlantNic* owner = source ? plant_.find(Protocols::nic_of(*source)) : nullptr;
  const bool own_kernel = port.is_kernel && owner == port.nic && !steered;
  return (owner != nullptr && !own_kernel) || is_our_mac(frame);
}

bool Switchboard::is_our_mac(std::span<const std::byte> frame) const {
  net::MacAddress mac;
  std::memcpy(mac.data(), &frame[mac.size()], mac.size());
  return our_macs_.contains(mac);
}

// In the name of the NIC, unless a tap stands for the kernel of its host: that answers itself.
bool Switchboard::answer_neighbour(TimePoint now, std::size_t index,
                                   std::span<const std::byte> frame) {
  const auto asked = asked_address(frame);
  const PlantNic* nic = asked ? plant_.find(Protocols::nic_of(*asked)) : nullptr;
  if (nic == nullptr || outside_->has_kernel(*nic)) {
    return false;
  }
  if (!outside_->claim(now, index, frame)) {
    ++outside_->port(index).dropped;
    drop(FrameDrop::wrong_source, frame);
    return true;
  }
  const std::vector<std::byte> answer = neighbour_answer(frame, nic->address);
  send_towards_port(now, nic, leaving_by(index, answer, {}, {}), Head(answer));
  return true;
}

// From one port to the outside to others: there weftd is a learning switch.
void Switchboard::pass_between_ports(TimePoint now, std::size_t index,
                                     std::span<const std::byte> frame) {
  if (!outside_->claim(now, index, frame)) {
    ++outside_->port(index).dropped;
    drop(FrameDrop::wrong_source, frame);
    return;
  }
  const int known = outside_->find(frame);
  const PlantNic* nic = outside_->port(index).nic;
  const Head head(frame);
  bool anywhere = false;
  for (std::size_t port = 0; port < outside_->size(); ++port) {
    if (port != index && outside_->is_there(port) &&
        (known < 0 || port == static_cast<std::size_t>(known))) {
      send_towards_port(now, nic, leaving_by(port, frame, {}, {}), head);
      anywhere = true;
    }
  }
  if (!anywhere) {
    ++outside_->port(index).dropped;
    drop(FrameDrop::no_nic, frame);
  }
}

FrameDelivery Switchboard::leaving_by(std::size_t port, std::span<const std::byte> frame,
                                      const srd::RecordInfo& info,
                                      const FrameSource& source) const {
  return {.record = info,
          .outside = static_cast<std::int16_t>(port),
          .outside_serial = outside_->port(port).serial,
          .source = source,
          .frame = frame};
}

// Towards a port to the outside: through the modelled network if both ends are attached to it, else
// at once.
void Switchboard::send_towards_port(TimePoint now, const PlantNic* from, FrameDelivery leaving,
                                    const Head& head) {
  const auto port = static_cast<std::size_t>(leaving.outside);
  const PlantNic* to = outside_->port(port).nic;
  if (fabric_ == nullptr || from == nullptr || to == nullptr) {
    stage(port, head, leaving.frame, leaving.record);
    return;
  }
  leaving.port = to->port;
  if (!fabric_->submit(now, from->port, leaving, leaving.frame)) {
    drop(FrameDrop::not_receiving, leaving.frame);
  }
}

// Out of the modelled network into its port, unless the port was removed meanwhile.
void Switchboard::send_by_port(std::size_t port, const FrameDelivery& arrival, const Head& head) {
  if (outside_->is_there(port) && outside_->port(port).serial == arrival.outside_serial) {
    stage(port, head, arrival.frame, arrival.record);
  } else {
    drop(FrameDrop::no_nic, arrival.frame);
  }
}

void Switchboard::stage(std::size_t port, const Head& head, std::span<const std::byte> frame,
                        const srd::RecordInfo& info) {
  scratch_.assign(frame.begin(), frame.end());
  std::memcpy(scratch_.data(), head.bytes.data(), head.size);
  outside_->stage(port, scratch_, (info.flags & srd::kRecordUnchecked) != 0);
  ++counters_.frames;
  counters_.bytes += frame.size();
}

// Once per round: a system call for each process that sleeps, and one per burst for each port.
void Switchboard::notify() {
  if (outside_ != nullptr) {
    outside_->flush();
  }
  for (Slot* slot : to_notify_) {
    slot->port.notify_peer();
  }
  to_notify_.clear();
}

}  // namespace weft::daemon
