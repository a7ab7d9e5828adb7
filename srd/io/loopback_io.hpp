// Owns the smallest network: packets come back to their sender. For a process without weftd.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "srd/base/lent_memory.hpp"
#include "srd/io/own_addresses.hpp"
#include "srd/net/frame_codec.hpp"
#include "srd/net/packet_io.hpp"

namespace weft::srd {

// For one thread at a time. Whole frames go round, because a Machine may look at the envelope of
// what it receives. Payloads are copied when they are sent: their memory is only lent until then.
template <net::FrameCodec Codec>
class LoopbackIo final : public PacketIo {
 public:
  LoopbackIo(OwnAddresses<Codec> own, std::size_t mtu) : own_(std::move(own)), mtu_(mtu) {}

  [[nodiscard]] IoCapabilities capabilities() const override {
    return {.mtu = mtu_, .burst = kBurst, .lossless_memory = true};
  }
  [[nodiscard]] IoCounters counters() const override { return counters_; }
  [[nodiscard]] std::span<const RxPacket> receive() override;
  void release() override { lent_.clear(); }
  [[nodiscard]] std::size_t transmit(std::span<const TxPacket> packets) override;
  [[nodiscard]] std::size_t transmit_room() override {
    return kDepth - std::min(kDepth, waiting_.size());
  }
  [[nodiscard]] int wait_fd() const override { return -1; }
  [[nodiscard]] bool arm() override { return waiting_.empty(); }
  void disarm() override {}

 private:
  static constexpr std::size_t kBurst = 32;
  static constexpr std::size_t kDepth = 256;
  using Frame = std::vector<std::byte>;

  // False: the memory of its payload is gone.
  [[nodiscard]] bool write(const TxPacket& packet, std::byte* to) const;

  OwnAddresses<Codec> own_;
  std::size_t mtu_;
  std::vector<Frame> waiting_;
  std::vector<Frame> lent_;
  std::vector<RxPacket> received_;
  IoCounters counters_;
};

template <net::FrameCodec Codec>
std::span<const RxPacket> LoopbackIo<Codec>::receive() {
  received_.clear();
  lent_.clear();
  lent_.swap(waiting_);
  for (const Frame& frame : lent_) {
    const auto envelope = net::Envelope::parse(frame, Codec::kPorts);
    const auto size = static_cast<std::uint8_t>(envelope.packet().data() - frame.data());
    received_.push_back(RxPacket{.from = envelope.source(),
                                 .path = envelope.path(),
                                 .ecn = envelope.ecn(),
                                 .trimmed = false,
                                 .envelope_size = size,
                                 .to = own_.number_of(envelope.destination()).value_or(0),
                                 .bytes = envelope.packet(),
                                 .more = {}});
    ++counters_.rx_packets;
    counters_.rx_bytes += envelope.packet().size();
  }
  return received_;
}

template <net::FrameCodec Codec>
std::size_t LoopbackIo<Codec>::transmit(std::span<const TxPacket> packets) {
  for (const TxPacket& packet : packets) {
    const std::size_t size = packet.size() + net::trailer_size<Codec>(packet);
    ++counters_.tx_packets;
    counters_.tx_bytes += size;
    const net::EnvelopeWriter& writer = own_.writer(packet);
    Frame frame(writer.size() + size);
    if (!own_.number_of(packet.to) ||
        !writer.write(frame.data(), packet.to, packet.path, packet.ecn, Codec::dscp_of(packet),
                      size, net::hop_limit_of<Codec>(packet))) {
      ++counters_.tx_unroutable;
    } else if (!write(packet, frame.data() + writer.size())) {
      ++counters_.tx_unreadable;
    } else {
      waiting_.push_back(std::move(frame));
    }
  }
  return packets.size();
}

template <net::FrameCodec Codec>
bool LoopbackIo<Codec>::write(const TxPacket& packet, std::byte* to) const {
  to = std::copy_n(packet.header.data(), packet.header_size, to);
  for (const auto& piece : packet.payload) {
    if (!piece.empty() && !copy_from_lent(to, piece.data(), piece.size())) {
      return false;
    }
    to += piece.size();
  }
  if constexpr (net::WritesTrailer<Codec>) {
    Codec::write_trailer(to, packet);
  }
  return true;
}

}  // namespace weft::srd
