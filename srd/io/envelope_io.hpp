// Owns transport packets over anything that carries Ethernet frames: puts them into envelopes, and
// takes them out.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>

#include "srd/base/result.hpp"
#include "srd/io/frame_io.hpp"
#include "srd/net/envelope.hpp"
#include "srd/net/packet_io.hpp"

namespace weft::srd {

class EnvelopeIo final : public PacketIo {
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

}  // namespace weft::srd
