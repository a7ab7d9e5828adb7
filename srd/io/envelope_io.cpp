// Owns the wrapping and unwrapping of packets.
#include "srd/io/envelope_io.hpp"

#include <algorithm>

#include "srd/io/dscp.hpp"
#include "srd/wire/srd_header.hpp"

namespace weft::srd {
namespace {

constexpr std::size_t kSmallestMtu = 256;

}  // namespace

Result<std::unique_ptr<EnvelopeIo>> EnvelopeIo::create(const Config& config,
                                                       std::unique_ptr<FrameIo> frames) {
  const auto writer = net::EnvelopeWriter::make(config.own);
  if (!writer) {
    return tl::unexpected(writer.error());
  }
  const std::size_t largest = frames->traits().max_frame;
  if (largest < writer->size() + kSmallestMtu) {
    return fail(ErrorCode::invalid_argument, "the link carries frames of " +
                                                 std::to_string(largest) +
                                                 " bytes: raise its MTU above 300");
  }
  Config fitting = config;
  fitting.mtu = std::min(config.mtu, largest - writer->size());
  return std::unique_ptr<EnvelopeIo>(new EnvelopeIo(fitting, *writer, std::move(frames)));
}

IoCapabilities EnvelopeIo::capabilities() const {
  const FrameTraits traits = frames_->traits();
  return {.mtu = config_.mtu,
          .burst = std::min(kBurst, traits.burst),
          .lossless_memory = traits.lossless_memory,
          .reads_ecn = true,
          .writes_ecn = true,
          .gigabits = traits.gigabits};
}

IoCounters EnvelopeIo::counters() const {
  const FrameCounters below = frames_->counters();
  IoCounters all = counters_;
  all.rx_malformed += below.rx_dropped + below.rx_unproved;
  all.tx_oversize += below.tx_oversize;
  all.tx_lost += below.tx_lost;
  all.tx_stalled += below.tx_stalled;
  return all;
}

std::span<const RxPacket> EnvelopeIo::receive() {
  std::size_t count = 0;
  for (const RxFrame& frame : frames_->receive()) {
    const auto envelope = net::Envelope::parse(frame);
    if (!envelope.ok() || envelope.destination() != config_.own || count == kBurst) {
      ++counters_.rx_malformed;
      continue;
    }
    RxPacket& packet = received_[count++];
    packet.from = envelope.source();
    packet.path = envelope.path();
    packet.ecn = envelope.ecn();
    packet.trimmed = envelope.trimmed();
    packet.bytes = envelope.packet();
    packet.more = {};
    counters_.rx_bytes += packet.bytes.size();
  }
  if (count == 0) {
    frames_->release();  // nobody holds any of them
  }
  counters_.rx_packets += count;
  return {received_.data(), count};
}

bool EnvelopeIo::wrap(const TxPacket& packet, std::size_t slot) {
  if (packet.size() > config_.mtu) {
    ++counters_.tx_oversize;
    return false;
  }
  if (!writer_.write(envelopes_[slot].data(), packet.to, packet.path, packet.ecn, dscp_of(packet),
                     packet.size())) {
    ++counters_.tx_unroutable;
    return false;
  }
  outgoing_[slot].pieces = {std::span<const std::byte>(envelopes_[slot].data(), writer_.size()),
                            std::span(packet.header).first(packet.header_size), packet.payload[0],
                            packet.payload[1]};
  return true;
}

std::size_t EnvelopeIo::transmit(std::span<const TxPacket> packets) {
  std::array<std::size_t, kBurst> origin;
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
