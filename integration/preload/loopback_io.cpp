// Owns turning packets round.
#include "integration/preload/loopback_io.hpp"

#include <utility>

#include "srd/base/lent_memory.hpp"

namespace weft::preload {

std::span<const srd::RxPacket> LoopbackIo::receive() {
  received_.clear();
  if (waiting_.empty()) {
    return received_;
  }
  lent_.swap(waiting_);
  for (const Parcel& parcel : lent_) {
    received_.push_back(srd::RxPacket{.from = own_,
                                      .path = parcel.path,
                                      .ecn = parcel.ecn,
                                      .trimmed = false,
                                      .bytes = parcel.bytes,
                                      .more = {}});
    ++counters_.rx_packets;
    counters_.rx_bytes += parcel.bytes.size();
  }
  return received_;
}

std::size_t LoopbackIo::transmit(std::span<const srd::TxPacket> packets) {
  for (const srd::TxPacket& packet : packets) {
    ++counters_.tx_packets;
    counters_.tx_bytes += packet.size();
    if (packet.to != own_) {
      ++counters_.tx_unroutable;
      continue;
    }
    Parcel parcel{packet.path, packet.ecn, {}};
    parcel.bytes.reserve(packet.size());
    const auto header = std::span(packet.header).first(packet.header_size);
    parcel.bytes.assign(header.begin(), header.end());
    bool readable = true;
    for (const auto& piece : packet.payload) {
      const std::size_t before = parcel.bytes.size();
      parcel.bytes.resize(before + piece.size());
      readable = readable && (piece.empty() || copy_from_lent(parcel.bytes.data() + before,
                                                              piece.data(), piece.size()));
    }
    if (!readable) {
      ++counters_.tx_unreadable;
      continue;
    }
    waiting_.push_back(std::move(parcel));
  }
  return packets.size();
}

}  // namespace weft::preload
