// Owns the forwarding of frames to multicast groups.
#include <algorithm>

#include "emu/daemon/switchboard_head.hpp"

namespace weft::daemon {

namespace net = srd::net;

// To a multicast group: through the modelled network, a copy to each NIC that has members; the own
// NIC hands it to those at once, as adapters do. What finds no room is lost.
void Switchboard::send_to_group(TimePoint now, const Slot& from, const Steering& steering,
                                const Head& head, std::span<const std::byte> frame,
                                const srd::RecordInfo& info) {
  if (!steering.packet.group || !net::is_group(steering.destination())) {
    drop(FrameDrop::malformed, frame);
    return;
  }
  if (fabric_ == nullptr) {
    copy_to_members(nullptr, steering.destination(), head, frame, info);
  } else {
    copy_to_members(from.nic, steering.destination(), head, frame, info);
    submit_to_members(now, *from.nic, steering, source_of(from), head, frame, info);
  }
  if (outside_ != nullptr && outside_->size() > 0) {
    (void)send_outside(now, from, steering, head, frame, info);
  }
}

// One copy for each NIC but `from` that has members.
void Switchboard::submit_to_members(TimePoint now, const PlantNic& from, const Steering& steering,
                                    const FrameSource& source, const Head& head,
                                    std::span<const std::byte> frame, const srd::RecordInfo& info) {
  const auto members = plant_.groups().members(steering.destination());
  for (auto member = members.begin(); member != members.end(); ++member) {
    const PlantNic* const nic = (*member)->nic;
    const bool served = std::any_of(members.begin(), member,
                                    [nic](const Slot* earlier) { return earlier->nic == nic; });
    if (nic == &from || served) {
      continue;
    }
    const FrameDelivery to{
        .port = nic->port, .record = info, .group = true, .source = source, .frame = {}};
    if (!fabric_->submit(now, from.port, to, frame)) {
      drop(FrameDrop::not_receiving, head.span());
    }
  }
}

// Null: on all NICs.
void Switchboard::copy_to_members(const PlantNic* nic, const srd::Address& group, const Head& head,
                                  std::span<const std::byte> frame, const srd::RecordInfo& info) {
  for (Slot* const member : plant_.groups().members(group)) {
    if ((nic == nullptr || member->nic == nic) && !member->doomed &&
        !copy_to_ring(kNever, *member, head, frame, info)) {
      drop(FrameDrop::not_receiving, frame);
    }
  }
}

// For members here, and for those behind the other ports.
void Switchboard::take_group_from_port(TimePoint now, std::size_t index, const Steering& steering,
                                       std::span<const std::byte> frame) {
  Outside::Port& port = outside_->port(index);
  const auto fault = Protocols::check(steering.flow, frame);
  if (fault != net::PacketFault::none ||
      !outside_->claim(now, index, Protocols::nic_of(steering.source()))) {
    ++port.dropped;
    drop(fault == net::PacketFault::none ? FrameDrop::wrong_source : FrameDrop::corrupted, frame);
    return;
  }
  const Head head(frame);
  if (fabric_ != nullptr && port.nic != nullptr) {
    copy_to_members(port.nic, steering.destination(), head, frame, {});
    submit_to_members(now, *port.nic, steering, {}, head, frame, {});
  } else {
    copy_to_members(nullptr, steering.destination(), head, frame, {});
  }
  if (outside_->size() > 1) {
    pass_between_ports(now, index, frame);
  }
}

}  // namespace weft::daemon
