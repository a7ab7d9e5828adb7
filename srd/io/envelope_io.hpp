// Owns packets over anything that carries Ethernet frames: puts them into envelopes, and takes them
// out.
//
// It adapts a FrameIo (DPDK, for instance) to the PacketIo that a Poller drives. Nothing is copied
// here: a received packet is a part of the frame that the FrameIo lends until release(), and a sent
// frame is four pieces, the envelope from `envelopes_`, the packet's header, and its payload in
// two.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "srd/base/result.hpp"
#include "srd/io/fill_packet.hpp"
#include "srd/io/frame_io.hpp"
#include "srd/net/frame_codec.hpp"
#include "srd/net/packet_io.hpp"

namespace weft::srd {

template <net::FrameCodec Codec>
class EnvelopeIo final : public PacketIo {
  // Frames leave memory here, so a trailer would have to be computed; TxFrame has no piece for one.
  static_assert(!net::WritesTrailer<Codec>);

 public:
  static constexpr std::size_t kBurst = 64;

  struct Config {
    Address own;
    std::size_t mtu = 4096 + 64;  // of transport packets; less if the link's frames are shorter
  };
  [[nodiscard]] static Result<std::unique_ptr<EnvelopeIo>> create(const Config& config,
                                                                  std::unique_ptr<FrameIo> frames);

  [[nodiscard]] IoCapabilities capabilities() const override;
  [[nodiscard]] IoCounters counters() const override;
  [[nodiscard]] std::span<const RxPacket> receive() override;
  void release() override { frames_->release(); }
  [[nodiscard]] std::size_t transmit(std::span<const TxPacket> packets) override;
  [[nodiscard]] std::size_t transmit_room() override { return frames_->transmit_room(); }
  [[nodiscard]] int wait_fd() const override { return frames_->wait_fd(); }
  [[nodiscard]] bool arm() override { return frames_->arm(); }
  void disarm() override { frames_->disarm(); }

 private:
  // Below this, a header and a useful payload do not fit.
  static constexpr std::size_t kMinMtu = 256;

  EnvelopeIo(const Config& config, const net::EnvelopeWriter& writer,
             std::unique_ptr<FrameIo> frames)
      : config_(config), writer_(writer), frames_(std::move(frames)) {}

  [[nodiscard]] bool wrap(const TxPacket& packet, std::size_t slot);

  Config config_;
  net::EnvelopeWriter writer_;
  std::unique_ptr<FrameIo> frames_;
  std::array<std::array<std::byte, net::kEnvelopeSizeV6>, kBurst> envelopes_;
  std::array<TxFrame, kBurst> outgoing_;
  std::array<RxPacket, kBurst> received_;
  IoCounters counters_;
};

template <net::FrameCodec Codec>
Result<std::unique_ptr<EnvelopeIo<Codec>>> EnvelopeIo<Codec>::create(
    const Config& config, std::unique_ptr<FrameIo> frames) {
  const auto writer = net::EnvelopeWriter::make(config.own, Codec::kPorts);
  if (!writer) {
    return tl::unexpected(writer.error());
  }
  const std::size_t largest = frames->traits().max_frame;
  if (largest < writer->size() + kMinMtu) {
    return fail(ErrorCode::invalid_argument, "the link carries frames of " +
                                                 std::to_string(largest) +
                                                 " bytes: raise its MTU above 300");
  }
  Config fitting = config;
  fitting.mtu = std::min(config.mtu, largest - writer->size());
  return std::unique_ptr<EnvelopeIo>(new EnvelopeIo(fitting, *writer, std::move(frames)));
}

template <net::FrameCodec Codec>
IoCapabilities EnvelopeIo<Codec>::capabilities() const {
  const FrameTraits traits = frames_->traits();
  return {.mtu = config_.mtu,
          .burst = std::min(kBurst, traits.burst),
          .lossless_memory = traits.lossless_memory,
          .reads_ecn = true,
          .writes_ecn = true,
          .paths = Codec::kPorts.paths,
          .gigabits = traits.gigabits};
}

template <net::FrameCodec Codec>
IoCounters EnvelopeIo<Codec>::counters() const {
  const FrameCounters below = frames_->counters();
  IoCounters all = counters_;
  all.rx_malformed += below.rx_dropped + below.rx_unproved;
  all.tx_oversize += below.tx_oversize;
  all.tx_lost += below.tx_lost;
  all.tx_stalled += below.tx_stalled;
  return all;
}

template <net::FrameCodec Codec>
std::span<const RxPacket> EnvelopeIo<Codec>::receive() {
  std::size_t count = 0;
  for (const RxFrame& frame : frames_->receive()) {
    const auto envelope = net::Envelope::parse(frame, Codec::kPorts);
    if (!envelope.ok() || envelope.destination() != config_.own || count == kBurst) {
      ++counters_.rx_malformed;
      continue;
    }
    RxPacket& packet = received_[count++];
    fill_packet<Codec>(frame, envelope, packet);
    counters_.rx_bytes += packet.bytes.size();
  }
  if (count == 0) {
    frames_->release();  // no frame of the burst is lent to the caller
  }
  counters_.rx_packets += count;
  return {received_.data(), count};
}

template <net::FrameCodec Codec>
bool EnvelopeIo<Codec>::wrap(const TxPacket& packet, std::size_t slot) {
  if (packet.size() > config_.mtu) {
    ++counters_.tx_oversize;
    return false;
  }
  if (!writer_.write(envelopes_[slot].data(), packet.to, packet.path, packet.ecn,
                     Codec::dscp_of(packet), packet.size())) {
    ++counters_.tx_unroutable;
    return false;
  }
  outgoing_[slot].pieces = {std::span<const std::byte>(envelopes_[slot].data(), writer_.size()),
                            std::span(packet.header).first(packet.header_size), packet.payload[0],
                            packet.payload[1]};
  return true;
}

// Packets that cannot be wrapped are counted and dropped, so frame i need not be packet i. If the
// FrameIo takes only some frames, the caller is told the index of the first packet not taken, and
// offers that one again.
template <net::FrameCodec Codec>
std::size_t EnvelopeIo<Codec>::transmit(std::span<const TxPacket> packets) {
  std::array<std::size_t, kBurst> origin;  // which packet a frame holds
  std::size_t count = 0;
  const std::size_t offered = std::min(packets.size(), kBurst);
  for (std::size_t i = 0; i < offered; ++i) {
    if (wrap(packets[i], count)) {
      origin[count++] = i;
    }
  }
  const std::size_t taken = frames_->transmit({outgoing_.data(), count});
  for (std::size_t i = 0; i < taken; ++i) {
    counters_.tx_bytes += packets[origin[i]].size();
  }
  counters_.tx_packets += taken;
  return taken < count ? origin[taken] : offered;
}

}  // namespace weft::srd
