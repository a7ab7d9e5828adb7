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
#include "srd/io/reader_stall.hpp"
#include "srd/io/ring_port.hpp"
#include "srd/net/envelope.hpp"
#include "srd/net/packet_io.hpp"

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
    // A full ring holds everything up for so long per ringful that its reader takes (ReaderStall);
    // beyond that what would go there is dropped until there is room. The windows of contexts are
    // smaller than a ring, so what overflows one was mostly sent again to somebody who does not
    // look. weftd is no neighbour, and takes what it wants to: as slowly as a modelled network
    // does. Only if it takes nothing at all for so long it is taken for stopped.
    Duration patience = std::chrono::milliseconds{2};
    Duration uplink_patience = std::chrono::milliseconds{30};
  };
  // Who is at the other end of a direct ring: nothing else may come out of it.
  struct Peer {
    Address address;
    AttachmentId attachment;
    Life life;
  };
  static constexpr std::size_t kBurst = 32;
  static constexpr std::size_t kShare = 8;  // of one port, before it is the next one's turn
  static constexpr std::size_t kMaxDirectPorts = 64;
  static constexpr std::size_t kDefaultRingBytes = std::size_t{1} << 21;

  [[nodiscard]] static Result<std::unique_ptr<RingIo>> create(const Config& config,
                                                              RingPort uplink);
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
  // Edges on this descriptor wake sleepers and call the keeper. It is forgotten when it is closed.
  [[nodiscard]] Result<void> watch(int fd);
  // Packets to that attachment of that NIC take this port from now on.
  [[nodiscard]] bool add_direct(const Peer& peer, RingPort port);
  // What the peer wrote before is received yet: its last acknowledgements, if it has ended.
  void remove_direct(const Address& peer, AttachmentId attachment);
  // The other side of the uplink is gone: what would take it is dropped and counted.
  void close_uplink() { uplink_open_ = false; }
  [[nodiscard]] Result<void> replace_uplink(RingPort uplink);
  void remove_all_direct();
  [[nodiscard]] std::size_t direct_ports() const { return direct_.size(); }

 private:
  struct Direct {
    Peer peer;
    RingPort port;
    ReaderStall stall;
    bool ended = false;  // nothing goes there any more; what has come is still read
  };
  struct Route {
    RingPort* port = nullptr;
    ReaderStall* stall = nullptr;
  };

  RingIo(const Config& config, const net::EnvelopeWriter& envelope, UniqueFd wait)
      : config_(config), envelope_(envelope), wait_(std::move(wait)) {}

  void attend();
  // `peer`: the only one whose packets may come; null: weftd's port, where anybody's may.
  [[nodiscard]] std::size_t take_share(RingPort& port, const Peer* peer, std::size_t most);
  void accept(std::span<const std::byte> frame, const RecordInfo& info, const Peer* peer);
  [[nodiscard]] Route route(const TxPacket& packet);
  [[nodiscard]] bool send_one(RingPort& port, const TxPacket& packet);
  [[nodiscard]] bool given_up(RingPort& port, ReaderStall& stall) const;
  // In that ring, for packets of any allowed size; kBurst if it is not waited for.
  [[nodiscard]] std::size_t room_in(RingPort& port, ReaderStall& stall) const;
  void drop_broken_ports();
  void join_sleep(RingPort& port) const;
  void hear_edges();
  // An edge on that descriptor.
  void hear(int fd);
  void end_direct(int bell);
  template <class F>
  void for_each_port(F&& f);

  Config config_;
  net::EnvelopeWriter envelope_;
  RingPort uplink_;
  ReaderStall uplink_stall_;
  std::size_t promised_ = 0;  // packets that the next transmit() takes
  bool uplink_open_ = true;
  bool armed_ = false;
  std::vector<std::unique_ptr<Direct>> direct_;
  Direct* last_route_ = nullptr;
  UniqueFd wait_;
  std::unique_ptr<PortKeeper> keeper_;
  std::uint32_t until_attend_ = 0;
  std::size_t received_count_ = 0;
  std::size_t next_direct_ = 0;
  std::array<RxPacket, kBurst> received_;
  IoCounters counters_;
};

}  // namespace weft::srd
