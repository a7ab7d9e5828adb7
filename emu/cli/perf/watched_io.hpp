// Owns looking at what arrives: along which paths, and in which order.
#pragma once

#include <bitset>
#include <cstdint>
#include <memory>
#include <utility>

#include "srd/net/packet_io.hpp"

namespace weft::cli {

// Of data packets only. Shared by the carrier, which counts, and the endpoint, which reads: both on
// one thread. Made for a single peer, as numbers of several peers cannot be compared.
struct Watch {
  std::bitset<256> paths;
  std::uint64_t out_of_order = 0;  // first transmissions overtaken by a later number
  std::uint32_t highest_psn = 0;
  bool seen = false;

  void begin() {
    paths.reset();
    out_of_order = 0;
  }
};

// Changes nothing about the packets. Owns the carrier below it.
class WatchedIo final : public srd::PacketIo {
 public:
  WatchedIo(std::unique_ptr<srd::PacketIo> below, std::shared_ptr<Watch> watch)
      : below_(std::move(below)), watch_(std::move(watch)) {}

  [[nodiscard]] srd::IoCapabilities capabilities() const override { return below_->capabilities(); }
  [[nodiscard]] srd::IoCounters counters() const override { return below_->counters(); }
  [[nodiscard]] std::span<const srd::RxPacket> receive() override;
  void release() override { below_->release(); }
  [[nodiscard]] std::size_t transmit(std::span<const srd::TxPacket> packets) override {
    return below_->transmit(packets);
  }
  [[nodiscard]] std::size_t transmit_room() override { return below_->transmit_room(); }
  [[nodiscard]] int wait_fd() const override { return below_->wait_fd(); }
  [[nodiscard]] bool arm() override { return below_->arm(); }
  void disarm() override { below_->disarm(); }

 private:
  std::unique_ptr<srd::PacketIo> below_;
  std::shared_ptr<Watch> watch_;
};

}  // namespace weft::cli
