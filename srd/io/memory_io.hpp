// Owns packets handed over inside one process: the simplest carrier, for tests of machines,
// drivers and decorators.
//
// A pair shares two queues of packets that own their bytes. There is no lock: both ends are used by
// one thread. There is nothing to sleep on either.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "srd/net/packet_io.hpp"

namespace weft::srd {

class MemoryIo final : public PacketIo {
 public:
  static constexpr std::size_t kBurst = 32;

  struct Config {
    Address own;
    std::size_t mtu = 4096;
    std::size_t depth = 256;  // packets on the way to one end
  };
  using Pair = std::pair<std::unique_ptr<MemoryIo>, std::unique_ptr<MemoryIo>>;
  [[nodiscard]] static Pair create_pair(const Config& first, const Config& second);

  [[nodiscard]] IoCapabilities capabilities() const override;
  [[nodiscard]] IoCounters counters() const override { return counters_; }
  [[nodiscard]] std::span<const RxPacket> receive() override;
  void release() override;
  [[nodiscard]] std::size_t transmit(std::span<const TxPacket> packets) override;
  [[nodiscard]] std::size_t transmit_room() override;
  [[nodiscard]] int wait_fd() const override { return -1; }
  [[nodiscard]] bool arm() override { return inbox_->empty(); }
  void disarm() override {}

 private:
  // A packet on its way; it owns its bytes.
  struct Parcel {
    Address from;
    Address to;
    PathId path;
    Ecn ecn = Ecn::not_capable;
    std::vector<std::byte> bytes;
  };
  using Queue = std::deque<Parcel>;

  MemoryIo(const Config& config, std::shared_ptr<Queue> inbox, std::shared_ptr<Queue> outbox,
           std::size_t outbox_depth)
      : config_(config),
        inbox_(std::move(inbox)),
        outbox_(std::move(outbox)),
        outbox_depth_(outbox_depth) {}

  Config config_;
  std::shared_ptr<Queue> inbox_;
  std::shared_ptr<Queue> outbox_;
  std::size_t outbox_depth_;
  std::vector<Parcel> lent_;
  std::vector<RxPacket> received_;
  IoCounters counters_;
};

}  // namespace weft::srd
