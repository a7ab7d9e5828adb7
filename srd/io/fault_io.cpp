// Owns what happens to each packet on a faulty carrier.
#include "srd/io/fault_io.hpp"

#include <algorithm>

#include "srd/io/posix.hpp"

namespace weft::srd {

IoCapabilities FaultIo::capabilities() const {
  IoCapabilities capabilities = below_->capabilities();
  capabilities.lossless_memory = false;  // it is a wire now: checksums, and losses to expect
  return capabilities;
}

std::span<const RxPacket> FaultIo::receive() {
  leave();
  return below_->receive();
}

// Half of the limit, because a duplicated packet takes two places.
std::size_t FaultIo::transmit_room() {
  leave();
  const std::size_t limit = kMaxUnderWay / 2;
  return under_way_.size() < limit ? std::min<std::size_t>(kBurst, limit - under_way_.size()) : 0;
}

std::size_t FaultIo::transmit(std::span<const TxPacket> packets) {
  std::size_t taken = 0;
  for (const TxPacket& packet : packets) {
    if (under_way_.size() >= kMaxUnderWay / 2) {
      break;
    }
    if (packet.size() > below_->capabilities().mtu) {
      // Too large: the carrier below counts and drops it.
      if (below_->transmit({&packet, 1}) == 0) {
        break;
      }
    } else {
      trouble(packet);
    }
    ++taken;
    // One packet more has passed those that are held back.
    for (Parcel& parcel : under_way_) {
      parcel.after -= parcel.after > 0 ? 1 : 0;
    }
  }
  leave();
  return taken;
}

void FaultIo::trouble(const TxPacket& packet) {
  if (rng_.chance(config_.loss)) {
    ++faults_.lost;
    if (capture_ != nullptr) {
      capture_->sent(packet, "dropped: loss");
    }
    return;
  }
  const bool damage = rng_.chance(config_.corruption);
  queue(packet, damage);
  if (rng_.chance(config_.duplication)) {
    ++faults_.duplicated;
    queue(packet, false);
  }
}

void FaultIo::queue(const TxPacket& packet, bool damage) {
  if (under_way_.size() >= kMaxUnderWay) {
    ++faults_.overflowed;
    if (capture_ != nullptr) {
      capture_->sent(packet, "dropped: too much under way");
    }
    return;
  }
  Parcel& parcel = under_way_.emplace_back();
  parcel.packet = packet;
  for (const auto& piece : packet.payload) {
    parcel.payload.insert(parcel.payload.end(), piece.begin(), piece.end());
  }
  parcel.packet.payload = {std::span<const std::byte>(parcel.payload), {}};
  if (damage && packet.size() != 0) {
    ++faults_.corrupted;
    const std::size_t at = rng_.between(0, packet.size() - 1);
    std::byte& victim = at < packet.header_size ? parcel.packet.header[at]
                                                : parcel.payload[at - packet.header_size];
    victim ^= static_cast<std::byte>(1U << rng_.below(8));
  }
  if (rng_.chance(config_.reordering)) {
    ++faults_.held_back;
    parcel.after = 1 + rng_.below(std::max(config_.reorder_span, 1U));
  }
  if (has_delay()) {
    parcel.due = clock_now() + config_.delay +
                 Duration{static_cast<std::int64_t>(
                     rng_.unit() * static_cast<double>(nanoseconds(config_.jitter)))};
  }
}

// Sends the parcels that are due. A parcel that was held back for others goes on waiting, unless
// all parcels are held back: then none of them could ever be overtaken.
void FaultIo::leave() {
  if (under_way_.empty()) {
    return;
  }
  const TimePoint now = has_delay() ? clock_now() : TimePoint{};
  const bool alone = std::all_of(under_way_.begin(), under_way_.end(),
                                 [](const Parcel& parcel) { return parcel.after != 0; });
  for (auto parcel = under_way_.begin(); parcel != under_way_.end();) {
    if (parcel->due > now || (parcel->after != 0 && !alone)) {
      ++parcel;
      continue;
    }
    if (below_->transmit_room() == 0 || below_->transmit({&parcel->packet, 1}) == 0) {
      return;
    }
    parcel = under_way_.erase(parcel);
  }
}

bool FaultIo::arm() {
  leave();
  return under_way_.empty() && below_->arm();
}

}  // namespace weft::srd
