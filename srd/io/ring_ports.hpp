// Owns the rings of one process: one uplink that reaches every peer, and direct rings to some
// peers; and sleeping on them. The frames' contents are RingIo's concern.
//
// Everything here runs under the lock of the Host; only waiting on wait_fd() does not. That is an
// epoll set of the ports' bells and of the keeper's control socket.
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

class RingPorts;

// Manages the ports from outside the data path (the client of weftd, emu/attach). It is called on
// the thread that polls, and only between bursts, so that no second thread ever touches a mapping.
class PortKeeper {
 public:
  virtual ~PortKeeper() = default;
  // Something may have happened on the control socket: ports to add or remove, or its end.
  virtual void attend(RingPorts& io) = 0;
};

class RingPorts : public PacketIo {
 public:
  struct Config {
    Address own;
    std::size_t mtu = 0;
    NetworkModel network{};  // behind the uplink
    // How long a full ring may hold all others up, per ringful that its reader takes (ReaderStall);
    // beyond that, packets for it are dropped until it has room. The transport's windows are
    // smaller than a ring, so what overflows one is mostly retransmissions to a process that does
    // not read. weftd is different: it reads as slowly as the network that it models. Only if it
    // takes nothing at all for `uplink_patience` it counts as stopped.
    Duration patience = std::chrono::milliseconds{2};
    Duration uplink_patience = std::chrono::milliseconds{30};
  };
  // The process at the other end of a direct ring. Packets of any other sender that come out of the
  // ring are forged.
  struct Peer {
    Address address;
    AttachmentId attachment;
    Life life;
  };
  static constexpr std::size_t kBurst = 32;
  static constexpr std::size_t kShare = 8;  // of one port, before it is the next one's turn
  static constexpr std::size_t kMaxDirectPorts = 64;
  static constexpr std::size_t kDefaultRingBytes = std::size_t{1} << 21;

  [[nodiscard]] IoCounters counters() const override { return counters_; }
  void release() override;
  [[nodiscard]] std::size_t transmit_room() override;
  [[nodiscard]] int wait_fd() const override { return wait_.get(); }
  [[nodiscard]] bool arm() override;
  void disarm() override;

  void set_keeper(std::unique_ptr<PortKeeper> keeper);
  // Edges on this descriptor wake sleepers and make attend() call the keeper. Closing it ends that.
  [[nodiscard]] Result<void> watch(int fd);
  // Packets to that attachment of that NIC take this port from now on.
  [[nodiscard]] bool add_direct(const Peer& peer, RingPort port);
  // No packet is sent there any more; what the peer wrote before is still received, its last
  // acknowledgements for instance. Then the port is dropped.
  void remove_direct(const Address& peer, AttachmentId attachment);
  // weftd is gone: packets that would take the uplink are dropped and counted.
  void close_uplink() { uplink_open_ = false; }
  [[nodiscard]] Result<void> replace_uplink(RingPort uplink);
  void remove_all_direct();
  [[nodiscard]] std::size_t direct_ports() const { return direct_.size(); }

 protected:
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

  // A poll that found nothing counts for this many on the way to the next attend(): such a poll has
  // the time, and a program that mostly waits may poll rarely.
  static constexpr std::uint32_t kIdlePollCounts = 64;

  RingPorts(const Config& config, UniqueFd wait) : config_(config), wait_(std::move(wait)) {}

  // What create() needs: something to sleep on.
  [[nodiscard]] static Result<UniqueFd> create_wait();
  [[nodiscard]] IoCapabilities capabilities_with(std::uint16_t paths) const;
  // Two ports that are joined, for frames of so many bytes.
  [[nodiscard]] static Result<std::pair<RingPort, RingPort>> joined_ports(std::size_t ring_bytes,
                                                                          std::size_t first_frame,
                                                                          std::size_t second_frame);

  void attend();
  [[nodiscard]] bool given_up(RingPort& port, ReaderStall& stall) const;

  Config config_;
  RingPort uplink_;
  ReaderStall uplink_stall_;
  // Packets that the next transmit() must take, because transmit_room() said so: if a ring turns
  // out to be full after all they are dropped, not given back.
  std::size_t promised_ = 0;
  bool uplink_open_ = true;
  std::vector<std::unique_ptr<Direct>> direct_;
  Direct* last_route_ = nullptr;
  // Polls until attend() is due.
  std::uint32_t until_attend_ = 0;
  // Where the round of direct ports goes on.
  std::size_t next_direct_ = 0;
  IoCounters counters_;

 private:
  // How many packets of any allowed size fit into that ring; kBurst if it is not waited for, so
  // that the others are not held up.
  [[nodiscard]] std::size_t room_in(RingPort& port, ReaderStall& stall) const;
  void drop_broken_ports();
  // Declares a new port asleep if the others are.
  void join_sleep(RingPort& port) const;
  void hear_edges();
  // An edge on that descriptor.
  void hear(int fd);
  // The direct port with that bell takes no more packets.
  void end_direct(int bell);
  template <class F>
  void for_each_port(F&& f);

  // A thread sleeps on wait_, or is about to.
  bool armed_ = false;
  UniqueFd wait_;
  std::unique_ptr<PortKeeper> keeper_;
};

}  // namespace weft::srd
