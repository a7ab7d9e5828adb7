// Owns the forwarding of frames.
#include "emu/daemon/switchboard.hpp"

#include <algorithm>
#include <cstring>

#include "emu/daemon/capture.hpp"
#include "srd/run/clock.hpp"
#include "srd/wire/envelope.hpp"
#include "srd/wire/parse.hpp"
#include "srd/wire/srd_header.hpp"

namespace weft::emu {
namespace {

namespace wire = srd::wire;

constexpr std::size_t kIpv4Header = 20;
constexpr std::size_t kIpv6Header = 40;
constexpr unsigned kTypeIpv4 = 0x0800;
constexpr unsigned kTypeIpv6 = 0x86DD;
constexpr unsigned kUdp = 17;
constexpr unsigned kRocePort = 4791;
constexpr std::size_t kRoceQpnOffset = 5;  // of InfiniBand's base transport header, 24 bits
constexpr std::size_t kSteeringBytes = 8;  // of what UDP carries

// When a process may say that a frame left.
constexpr Duration kOldestStamp = std::chrono::seconds{10};
constexpr Duration kClockSkew = std::chrono::milliseconds{1};

unsigned octet(std::span<const std::byte> bytes, std::size_t at) {
  return std::to_integer<unsigned>(bytes[at]);
}

unsigned pair(std::span<const std::byte> bytes, std::size_t at) {
  return octet(bytes, at) << 8 | octet(bytes, at + 1);
}

srd::Address mapped(const std::byte* ipv4) {
  srd::Address address;
  address.bytes[10] = address.bytes[11] = std::byte{0xFF};
  std::memcpy(address.bytes.data() + 12, ipv4, 4);
  return address;
}

}  // namespace

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
  }
  return "unknown";
}

bool Switchboard::read(std::span<const std::byte> frame, Steering& steering) {
  constexpr std::size_t kIp = wire::kEthernetSize;
  constexpr std::size_t kRest = wire::kUdpSize + kSteeringBytes;
  if (frame.size() < kIp + kIpv4Header + kRest) {
    return false;
  }
  const unsigned type = pair(frame, 12);
  std::size_t udp = kIp;
  if (type == kTypeIpv4 && octet(frame, kIp) == 0x45 && octet(frame, kIp + 9) == kUdp) {
    steering.source = mapped(&frame[kIp + 12]);
    steering.destination = mapped(&frame[kIp + 16]);
    udp += kIpv4Header;
  } else if (type == kTypeIpv6 && octet(frame, kIp + 6) == kUdp &&
             frame.size() >= kIp + kIpv6Header + kRest) {
    std::memcpy(steering.source.bytes.data(), &frame[kIp + 8], 16);
    std::memcpy(steering.destination.bytes.data(), &frame[kIp + 24], 16);
    udp += kIpv6Header;
  } else {
    return false;
  }
  const std::size_t packet = udp + wire::kUdpSize;
  switch (pair(frame, udp + 2)) {
    case wire::kDestinationPort:
      steering.block = pair(frame, packet + wire::kDestinationAttachmentOffset);
      steering.is_transport = true;
      return true;
    case kRocePort:
      steering.block = pair(frame, packet + kRoceQpnOffset);
      steering.management = steering.block == 0 && octet(frame, packet + kRoceQpnOffset + 2) == 1;
      return true;
    default:
      return false;
  }
}

void Switchboard::drop(FrameDrop reason, std::span<const std::byte> frame) {
  ++counters_.dropped[static_cast<std::size_t>(reason)];
  if (fabric_ != nullptr && fabric_->capture() != nullptr) {
    fabric_->capture()->refused(fabric_->network_time(srd::monotonic_now()), frame,
                                to_string(reason));
  }
}

std::size_t Switchboard::pump(TimePoint now, Slot& from) {
  std::size_t count = 0;
  auto& ring = from.port.rx();
  while (count < kBurst) {
    srd::RecordInfo info;
    const auto frame = ring.peek(info);
    if (frame.empty()) {
      break;
    }
    info.flags &= srd::kRecordUnchecked;  // the rest is ours to say
    if (info.time < nanoseconds(now - kOldestStamp) || info.time > nanoseconds(now + kClockSkew)) {
      info.time = 0;  // nobody's word to take
    }
    if (!forward(now, from, frame, info)) {
      waiting_ = true;
      break;
    }
    ring.pop(frame);
    ring.prefetch();
    ++count;
    from.counters.bytes_in += frame.size();
  }
  from.counters.frames_in += count;
  give_room(now, from);
  if (from.port.broken()) [[unlikely]] {
    from.doomed = true;
  }
  return count;
}

// What is still inside of the network keeps its place, but no more than half of the ring, and not
// for long: the process would take us for stopped.
void Switchboard::give_room(TimePoint now, Slot& from) {
  auto& ring = from.port.rx();
  while (!from.loans.empty() && (ring.position() - from.loans.position() > from.ring_bytes / 2 ||
                                 now - from.loans.since() > kLongestLoan)) {
    fabric_->call_in(from.loans);
  }
  ring.release_to(from.loans.empty() ? ring.position() : from.loans.position());
}

bool Switchboard::forward(TimePoint now, Slot& from, std::span<const std::byte> frame,
                          const srd::RecordInfo& info) {
  Steering steering;
  if (!read(frame, steering)) [[unlikely]] {
    drop(FrameDrop::malformed, frame);
    return true;
  }
  if (steering.source != from.nic->address) [[unlikely]] {
    drop(FrameDrop::wrong_source, frame);
    return true;
  }
  if (outside_ != nullptr && nic_of(from, steering.destination) == nullptr) [[unlikely]] {
    return leave(now, from, steering, frame, info);
  }
  if (fabric_ != nullptr) {
    return enter_fabric(now, from, steering, frame, info);
  }
  Slot* to = from.last_target;
  if (to == nullptr || from.last_block != steering.block ||
      from.last_destination != steering.destination) [[unlikely]] {
    if (steering.management) {
      if (const Nic* nic = plant_.find(steering.destination); nic != nullptr) {
        deliver_management(*nic, &from, frame, info);
      } else {
        drop(FrameDrop::no_nic, frame);
      }
      return true;
    }
    to = target_of(from, steering);
    if (to == nullptr) {
      return true;
    }
  }
  return deliver(now, *to, frame, info);
}

const Nic* Switchboard::nic_of(Slot& from, const srd::Address& address) {
  if (from.last_nic == nullptr || from.last_nic->address != address) {
    from.last_nic = plant_.find(address);
  }
  return from.last_nic;
}

bool Switchboard::enter_fabric(TimePoint now, Slot& from, const Steering& steering,
                               std::span<const std::byte> frame, const srd::RecordInfo& info) {
  const Nic* nic = nic_of(from, steering.destination);
  if (nic == nullptr) {
    drop(FrameDrop::no_nic, frame);
    return true;
  }
  return fabric_->submit(now, from.nic->port,
                         {.port = nic->port,
                          .block = steering.block,
                          .record = info,
                          .management = steering.management,
                          .outside = -1,
                          .frame = {}},
                         frame,
                         {.loans = &from.loans, .position = from.port.rx().position(), .now = now});
}

void Switchboard::arrive(const Arrival& arrival) {
  const Nic& nic = *plant_.nics()[arrival.port];
  if (arrival.frame.empty()) {
    drop(FrameDrop::corrupted, arrival.frame);
  } else if (arrival.outside >= 0) {
    outside_->stage(static_cast<std::size_t>(arrival.outside), arrival.frame,
                    (arrival.record.flags & srd::kRecordUnchecked) != 0);
    ++counters_.frames;
    counters_.bytes += arrival.frame.size();
  } else if (arrival.management) {
    deliver_management(nic, nullptr, arrival.frame, arrival.record);
  } else if (arrival.block >= kSlotsPerNic || nic.slots[arrival.block] == nullptr ||
             nic.slots[arrival.block]->doomed) {
    drop(FrameDrop::no_process, arrival.frame);
  } else if (!deliver(kNever, *nic.slots[arrival.block], arrival.frame, arrival.record)) {
    drop(FrameDrop::not_receiving, arrival.frame);  // a NIC's buffer has an end
  }
}

Slot* Switchboard::target_of(Slot& from, const Steering& steering) {
  const Nic* nic = plant_.find(steering.destination);
  if (nic == nullptr) {
    drop(FrameDrop::no_nic, {});
    return nullptr;
  }
  Slot* to = steering.block < kSlotsPerNic ? nic->slots[steering.block].get() : nullptr;
  if (to == nullptr || to->doomed) {
    drop(FrameDrop::no_process, {});
    return nullptr;
  }
  from.last_destination = steering.destination;
  from.last_block = steering.block;
  from.last_target = to;
  on_flow_(from, *to);
  return to;
}

void Switchboard::deliver_management(const Nic& nic, const Slot* from,
                                     std::span<const std::byte> frame,
                                     const srd::RecordInfo& info) {
  bool somebody = false;
  for (const auto& slot : nic.slots) {
    if (slot != nullptr && slot.get() != from && slot->wants_management) {
      somebody = true;
      // As on a wire: what finds no room is lost, and the sender's retries make up for it.
      [[maybe_unused]] const bool delivered = deliver(kNever, *slot, frame, info);
    }
  }
  if (!somebody) {
    drop(FrameDrop::no_process, frame);
  }
}

bool Switchboard::deliver(TimePoint now, Slot& to, std::span<const std::byte> frame,
                          const srd::RecordInfo& info) {
  std::byte* place = to.port.tx().reserve(frame.size());
  if (place == nullptr) [[unlikely]] {
    if (to.port.broken()) {
      to.doomed = true;
    }
    const std::uint64_t position = to.port.tx().consumed();
    if (to.full_since == kNever || to.full_at != position) {
      to.full_since = now;
      to.full_at = position;
    }
    if (!to.doomed && now - to.full_since < kPatience) {
      return false;
    }
    drop(FrameDrop::not_receiving, frame);
    return true;
  }
  to.full_since = kNever;
  to.port.tx().copy(place, frame);
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

// To a NIC that is none of ours. The first frames go everywhere.
bool Switchboard::leave(TimePoint now, const Slot& from, const Steering& steering,
                        std::span<const std::byte> frame, const srd::RecordInfo& info) {
  if (outside_->empty()) {
    drop(FrameDrop::no_nic, frame);
    return true;
  }
  const int known = outside_->find(steering.destination);
  if (known >= 0 && !outside_->has_room(static_cast<std::size_t>(known))) {
    return false;
  }
  for (std::size_t port = 0; port < outside_->size(); ++port) {
    if (known < 0 || port == static_cast<std::size_t>(known)) {
      hand_over(now, from.nic, port, frame, info);
    }
  }
  return true;
}

std::size_t Switchboard::pump_outside(TimePoint now, std::size_t port) {
  srd::FrameIo& io = *outside_->port(port).io;
  const auto frames = io.receive();
  for (const srd::RxFrame& frame : frames) {
    enter(now, port, frame);
  }
  const std::size_t count = frames.size();
  io.release();
  return count;
}

// Anything may come from there.
void Switchboard::enter(TimePoint now, std::size_t index, std::span<const std::byte> frame) {
  Outside::Port& port = outside_->port(index);
  const auto refuse = [&](FrameDrop reason) {
    ++port.dropped;
    drop(reason, frame);
  };
  // A device may take larger frames than it was asked for; neither rings nor the modelled network
  // have room for them.
  if (frame.size() > outside_->max_frame()) {
    refuse(FrameDrop::oversize);
    return;
  }
  if (frame.size() < wire::kEthernetSize) {
    refuse(FrameDrop::malformed);
    return;
  }
  Steering steering;
  if (!read(frame, steering)) {
    relay(now, index, frame);
    return;
  }
  if (plant_.find(steering.source) != nullptr) {
    refuse(FrameDrop::wrong_source);  // our own NICs are not out there
    return;
  }
  const Nic* nic = plant_.find(steering.destination);
  if (nic == nullptr) {
    relay(now, index, frame);
    return;
  }
  // Processes do not look at checksums: for them everything comes out of memory.
  const wire::Envelope envelope = wire::Envelope::parse(frame);
  if (envelope.ok()) {
    const auto packet = wire::parse_packet(envelope.packet(), 0, envelope.trimmed());
    if (packet.reason() != srd::DropReason::none) {
      refuse(FrameDrop::malformed);
      return;
    }
    if (wire::verify_checksum(packet, {}, true) != srd::DropReason::none) {
      refuse(FrameDrop::corrupted);
      return;
    }
  } else if (steering.is_transport) {
    refuse(FrameDrop::malformed);
    return;
  }
  outside_->learn(index, steering.source);
  Arrival arrival{.port = nic->port,
                  .block = steering.block,
                  .record = {},
                  .management = steering.management,
                  .outside = -1,
                  .frame = frame};
  if (fabric_ != nullptr && port.nic != nullptr) {
    if (!fabric_->submit(now, port.nic->port, arrival, frame)) {
      refuse(FrameDrop::not_receiving);
    }
  } else {
    arrive(arrival);
  }
}

// Between ports to the outside weftd is a learning switch.
void Switchboard::relay(TimePoint now, std::size_t index, std::span<const std::byte> frame) {
  outside_->learn(index, frame);
  const int known = outside_->find(frame);
  const Nic* from = outside_->port(index).nic;
  bool anywhere = false;
  for (std::size_t port = 0; port < outside_->size(); ++port) {
    if (port != index && (known < 0 || port == static_cast<std::size_t>(known))) {
      hand_over(now, from, port, frame, {});
      anywhere = true;
    }
  }
  if (!anywhere) {
    ++outside_->port(index).dropped;
    drop(FrameDrop::no_nic, frame);
  }
}

// Through the modelled network where both ends hang on it.
void Switchboard::hand_over(TimePoint now, const Nic* from, std::size_t port,
                            std::span<const std::byte> frame, const srd::RecordInfo& info) {
  const Nic* to = outside_->port(port).nic;
  if (fabric_ == nullptr || from == nullptr || to == nullptr) {
    outside_->stage(port, frame, (info.flags & srd::kRecordUnchecked) != 0);
    ++counters_.frames;
    counters_.bytes += frame.size();
    return;
  }
  const Arrival arrival{.port = to->port,
                        .block = 0,
                        .record = info,
                        .management = false,
                        .outside = static_cast<std::int16_t>(port),
                        .frame = {}};
  if (!fabric_->submit(now, from->port, arrival, frame)) {
    drop(FrameDrop::not_receiving, frame);
  }
}

void Switchboard::notify() {
  if (outside_ != nullptr) {
    outside_->flush();
  }
  for (Slot* slot : to_notify_) {
    slot->port.notify_peer();
  }
  to_notify_.clear();
}

}  // namespace weft::emu
