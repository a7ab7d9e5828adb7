// Owns the hand-over of packets inside one process.
#include "srd/io/memory_io.hpp"

#include <algorithm>

namespace weft::srd {

MemoryIo::Pair MemoryIo::create_pair(const Config& first, const Config& second) {
  auto to_first = std::make_shared<Queue>();
  auto to_second = std::make_shared<Queue>();
  return {std::unique_ptr<MemoryIo>(new MemoryIo(first, to_first, to_second, second.depth)),
          std::unique_ptr<MemoryIo>(new MemoryIo(second, to_second, to_first, first.depth))};
}

IoCapabilities MemoryIo::capabilities() const {
  return {.mtu = config_.mtu,
          .burst = kBurst,
          .lossless_memory = true,
          .reads_ecn = true,
          .writes_ecn = true};
}

std::span<const RxPacket> MemoryIo::receive() {
  release();
  while (!inbox_->empty() && lent_.size() < kBurst) {
    Parcel parcel = std::move(inbox_->front());
    inbox_->pop_front();
    if (parcel.to != config_.own) {
      ++counters_.rx_malformed;
      continue;
    }
    lent_.push_back(std::move(parcel));
  }
  for (const Parcel& parcel : lent_) {
    ++counters_.rx_packets;
    counters_.rx_bytes += parcel.bytes.size();
    received_.push_back({.from = parcel.from,
                         .path = parcel.path,
                         .ecn = parcel.ecn,
                         .trimmed = false,
                         .bytes = parcel.bytes,
                         .more = {}});
  }
  return received_;
}

void MemoryIo::release() {
  received_.clear();
  lent_.clear();
}

std::size_t MemoryIo::transmit(std::span<const TxPacket> packets) {
  std::size_t taken = 0;
  for (const TxPacket& packet : packets) {
    if (packet.size() > config_.mtu) {
      ++counters_.tx_oversize;
    } else if (outbox_->size() >= outbox_depth_) {
      break;
    } else {
      Parcel parcel{config_.own, packet.to, packet.path, packet.ecn, {}};
      parcel.bytes.reserve(packet.size());
      const auto append = [&](std::span<const std::byte> piece) {
        parcel.bytes.insert(parcel.bytes.end(), piece.begin(), piece.end());
      };
      append({packet.header.data(), packet.header_size});
      append(packet.payload[0]);
      append(packet.payload[1]);
      outbox_->push_back(std::move(parcel));
      ++counters_.tx_packets;
      counters_.tx_bytes += packet.size();
    }
    ++taken;
  }
  return taken;
}

std::size_t MemoryIo::transmit_room() {
  return outbox_depth_ - std::min(outbox_depth_, outbox_->size());
}

}  // namespace weft::srd
