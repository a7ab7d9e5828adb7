// Owns faults on any carrier: packets that are sent get lost, doubled, damaged, delayed or
// overtaken.
//
// A decorator for measurements and tests. Only the sending side is faulty; for both directions,
// each end has its own. A packet that is not lost is copied into a parcel, which leaves when its
// delay is over and as many others have passed it as chance wanted.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "srd/base/rng.hpp"
#include "srd/base/time.hpp"
#include "srd/io/pcap_io.hpp"
#include "srd/net/packet_io.hpp"

namespace weft::srd {

class FaultIo final : public PacketIo {
 public:
  struct Config {
    std::uint64_t seed = 1;
    double loss = 0;  // all of these are probabilities, of each packet sent
    double duplication = 0;
    double corruption = 0;  // of one bit anywhere in header or payload
    double reordering = 0;  // to be held back while up to `reorder_span` - 1 others pass
    std::uint32_t reorder_span = 8;
    Duration delay{};
    Duration jitter{};  // uniform, on top of `delay`
  };
  struct Counters {
    std::uint64_t lost = 0;
    std::uint64_t duplicated = 0;
    std::uint64_t corrupted = 0;
    std::uint64_t held_back = 0;
    std::uint64_t overflowed = 0;  // dropped because too much was under way
  };

  // `capture` may be null; it records what is lost here and why.
  FaultIo(const Config& config, std::unique_ptr<PacketIo> below,
          std::shared_ptr<PacketCapture> capture = nullptr)
      : config_(config),
        below_(std::move(below)),
        capture_(std::move(capture)),
        rng_(config.seed) {}

  [[nodiscard]] IoCapabilities capabilities() const override;
  [[nodiscard]] IoCounters counters() const override { return below_->counters(); }
  [[nodiscard]] const Counters& faults() const { return faults_; }
  [[nodiscard]] std::span<const RxPacket> receive() override;
  void release() override { below_->release(); }
  [[nodiscard]] std::size_t transmit(std::span<const TxPacket> packets) override;
  [[nodiscard]] std::size_t transmit_room() override;
  // Delayed packets leave when a thread polls. A thread that slept on a descriptor would not wake
  // for them, so there is none.
  [[nodiscard]] int wait_fd() const override { return has_delay() ? -1 : below_->wait_fd(); }
  [[nodiscard]] bool arm() override;
  void disarm() override { below_->disarm(); }

 private:
  static constexpr std::size_t kBurst = 32;
  static constexpr std::size_t kMaxUnderWay = 4096;

  // A packet with bytes of its own, because transmit() only borrows them.
  struct Parcel {
    TxPacket packet;
    std::vector<std::byte> payload;
    TimePoint due{};
    std::uint32_t after = 0;  // packets that must pass first
  };

  [[nodiscard]] bool has_delay() const {
    return config_.delay + config_.jitter != Duration::zero();
  }
  // Loses the packet, or puts it and perhaps a copy into `under_way_`.
  void trouble(const TxPacket& packet);
  void queue(const TxPacket& packet, bool damage);
  void leave();

  Config config_;
  std::unique_ptr<PacketIo> below_;
  std::shared_ptr<PacketCapture> capture_;
  Rng rng_;
  std::deque<Parcel> under_way_;
  Counters faults_;
};

}  // namespace weft::srd
