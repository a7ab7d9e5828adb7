// Owns the smallest network: what is sent comes back. For a process whose NIC is joined to nothing.
#pragma once

#include <cstdint>
#include <vector>

#include "srd/net/packet_io.hpp"

namespace weft::preload {

class LoopbackIo final : public srd::PacketIo {
 public:
  LoopbackIo(const srd::Address& own, std::size_t mtu) : own_(own), mtu_(mtu) {}

  [[nodiscard]] srd::IoCapabilities capabilities() const override {
    return {.mtu = mtu_, .burst = kBurst, .lossless_memory = true};
  }
  [[nodiscard]] srd::IoCounters counters() const override { return counters_; }
  [[nodiscard]] std::span<const srd::RxPacket> receive() override;
  void release() override { lent_.clear(); }
  [[nodiscard]] std::size_t transmit(std::span<const srd::TxPacket> packets) override;
  [[nodiscard]] std::size_t transmit_room() override { return kDepth - waiting_.size(); }
  [[nodiscard]] int wait_fd() const override { return -1; }
  [[nodiscard]] bool arm() override { return waiting_.empty(); }
  void disarm() override {}

 private:
  static constexpr std::size_t kBurst = 32;
  static constexpr std::size_t kDepth = 256;
  struct Parcel {
    srd::PathId path;
    srd::Ecn ecn;
    std::vector<std::byte> bytes;
  };
  srd::Address own_;
  std::size_t mtu_;
  std::vector<Parcel> waiting_;
  std::vector<Parcel> lent_;
  std::vector<srd::RxPacket> received_;
  srd::IoCounters counters_;
};

}  // namespace weft::preload
