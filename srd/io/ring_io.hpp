// Owns packets over shared-memory rings: one uplink that reaches everybody, and direct rings to
// some peers.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "srd/base/result.hpp"
#include "srd/io/packet_io.hpp"
#include "srd/io/ring_port.hpp"
#include "srd/wire/envelope.hpp"

namespace weft::srd {

class RingIo;

// Whoever manages the ports from outside the data path (a client of weftd). It is called on the
// thread that polls, and only between bursts, so that no second thread ever touches a mapping.
class PortKeeper {
 public:
  virtual ~PortKeeper() = default;
  // Something may have happened on the control socket: ports to add or remove, or its end.
  virtual void attend(RingIo& io) = 0;
};

class RingIo final : public PacketIo {
 public:
  struct Config {
    Address own;
    std::size_t mtu = 0;
    NetworkModel network{};  // behind the uplink
    // A full ring holds everything up for so long. If its reader takes nothing in that time it is
    // stopped or stuck, and what would go there is dropped until it reads again: nobody else's
    // packets wait for it. weftd itself may wait for a slow process, so its ring is given longer.
    Duration patience = std::chrono::milliseconds{2};
    Duration uplink_patience = std::chrono::milliseconds{30};
  };
  static constexpr std::size_t kBurst = 32;
  static constexpr std::size_t kShare = 8;  // of one port, before it is the next one's turn
  static constexpr std::size_t kMaxDirectPorts = 64;
  static constexpr std::size_t kDefaultRingBytes = std::size_t{1} << 21;

  // `doorbell` is the one that every producer of rings to us has.
  [[nodiscard]] static Result<std::unique_ptr<RingIo>> create(const Config& config, RingPort uplink,
                                                              UniqueFd doorbell);
  using Pair = std::pair<std::unique_ptr<RingIo>, std::unique_ptr<RingIo>>;
  // Two ends whose uplinks are joined, without any daemon.
  [[nodiscard]] static Result<Pair> create_pair(const Config& first, const Config& second,
                                                std::size_t ring_bytes = kDefaultRingBytes);

  [[nodiscard]] IoCapabilities capabilities() const override;
  [[nodiscard]] IoCounters counters() const override { return counters_; }
  [[nodiscard]] std::span<const RxPacket> receive() override;
  void release() override;
  [[nodiscard]] std::size_t transmit(std::span<const TxPacket> packets) override;
  [[nodiscard]] std::size_t transmit_room() override;
  [[nodiscard]] int wait_fd() const override { return wait_.get(); }
  [[nodiscard]] bool arm() override;
  void disarm() override;

  void set_keeper(std::unique_ptr<PortKeeper> keeper);
  // Events on this descriptor wake sleepers and call the keeper. It is forgotten when it is closed.
  [[nodiscard]] Result<void> watch(int fd);
  // Packets to that attachment of that NIC take this port from now on.
  [[nodiscard]] bool add_direct(const Address& peer, AttachmentId attachment, RingPort port);
  // What the peer wrote before is received yet: its last acknowledgements, if it has ended.
  void remove_direct(const Address& peer, AttachmentId attachment);
  // The other side of the uplink is gone: what would take it is dropped and counted.
  void close_uplink() { uplink_open_ = false; }
  [[nodiscard]] Result<void> replace_uplink(RingPort uplink, UniqueFd doorbell);
  void remove_all_direct();
  [[nodiscard]] std::size_t direct_ports() const { return direct_.size(); }

 private:
  // While a ring is full.
  struct Stall {
    TimePoint since = kNever;
    std::uint64_t position = 0;  // its reader's
    bool given_up = false;
  };
  struct Direct {
    Address peer;
    AttachmentId attachment;
    RingPort port;
    Stall stall;
    bool ended = false;  // nothing goes there any more; what has come is still read
  };
  struct Route {
    RingPort* port = nullptr;
    Stall* stall = nullptr;
  };

  RingIo(const Config& config, const wire::EnvelopeWriter& envelope, RingPort uplink,
         UniqueFd doorbell, UniqueFd wait)
      : config_(config),
        envelope_(envelope),
        uplink_(std::move(uplink)),
        doorbell_(std::move(doorbell)),
        wait_(std::move(wait)) {}

  void attend();
  [[nodiscard]] bool take_share(RingPort& port);
  void accept(std::span<const std::byte> frame, const RecordInfo& info);
  [[nodiscard]] Route route(const TxPacket& packet);
  [[nodiscard]] bool send_one(RingPort& port, const TxPacket& packet);
  [[nodiscard]] bool given_up(RingPort& port, Stall& stall, Duration patience) const;
  [[nodiscard]] bool has_room(RingPort& port, Stall& stall, Duration patience, std::size_t packets);
  void drop_broken_ports();
  template <class F>
  void for_each_port(F&& f);

  Config config_;
  wire::EnvelopeWriter envelope_;
  RingPort uplink_;
  Stall uplink_stall_;
  bool uplink_open_ = true;
  bool armed_ = false;
  std::vector<std::unique_ptr<Direct>> direct_;
  Direct* last_route_ = nullptr;
  UniqueFd doorbell_;
  UniqueFd wait_;
  std::unique_ptr<PortKeeper> keeper_;
  std::uint32_t until_attend_ = 0;
  std::size_t received_count_ = 0;
  std::size_t next_direct_ = 0;
  std::array<RxPacket, kBurst> received_;
  IoCounters counters_;
};

}  // namespace weft::srd
