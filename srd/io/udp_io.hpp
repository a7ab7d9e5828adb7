// Owns packets over UDP sockets of the kernel: no privilege, one source port per path, real ECN
// marks.
#pragma once

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "srd/base/result.hpp"
#include "srd/io/posix.hpp"
#include "srd/net/frame_codec.hpp"
#include "srd/net/packet_io.hpp"

namespace weft::srd {

// The address belongs to this object alone: it holds the protocol's port on it. One socket
// receives; one socket per path sends, each bound to the path's source port.
//
// A system call per packet would dominate, so both sides batch. Sending: packets of one burst with
// the same destination, path and class leave as one large datagram that the kernel (or the NIC)
// cuts (UDP_SEGMENT); so a burst keeps its order per path only. Receiving: the kernel joins
// datagrams (UDP_GRO), recvmmsg() takes several of those, and take_next() cuts them again.
class UdpSockets : public PacketIo {
 public:
  static constexpr std::size_t kBurst = 64;
  static constexpr std::size_t kTransmitBurst = 64;

  struct Config {
    Address own;
    std::size_t mtu = 1400;      // of transport packets; what fits into the links' frames
    std::uint16_t paths = 16;    // source ports
    int socket_bytes = 4 << 20;  // buffer of each socket; the kernel may give less
  };
  [[nodiscard]] IoCapabilities capabilities() const override;
  [[nodiscard]] IoCounters counters() const override { return counters_; }
  void release() override;
  [[nodiscard]] std::size_t transmit_room() override { return kTransmitBurst; }
  [[nodiscard]] int wait_fd() const override { return waiter_.get(); }
  [[nodiscard]] bool arm() override;
  void disarm() override;

 protected:
  UdpSockets(const Config& config, const net::UdpPorts& ports);
  // Opens all sockets. The error names the port that is taken.
  [[nodiscard]] Result<void> open();
  // Receives from the kernel once all packets of the last time have been taken. Packets taken
  // before are invalid then.
  void refill();
  // The next packet that was received, its class of service in `dscp`. False: none is left.
  [[nodiscard]] bool take_next(RxPacket& packet, std::uint8_t& dscp);
  // A burst, which is taken whole.
  [[nodiscard]] std::size_t send(std::span<const TxPacket> packets,
                                 std::span<const std::uint8_t> dscp);

  IoCounters counters_;

 private:
  static constexpr std::size_t kDatagrams = 8;  // per system call; each may hold many packets
  static constexpr std::size_t kDatagramBytes = 65536;
  static constexpr std::size_t kControlBytes = 128;
  static constexpr std::size_t kMaxSegments = 64;

  // Where in the received datagrams the next packet lies.
  struct Cursor {
    std::size_t datagram = 0;
    std::size_t count = 0;
    std::size_t offset = 0;
  };

  // A packet of a burst and its class of service.
  struct Waiting {
    const TxPacket* packet;
    std::uint8_t dscp;
  };

  [[nodiscard]] Result<UniqueFd> open_socket(std::uint16_t port, bool receives) const;
  void fill();
  [[nodiscard]] bool watch(bool armed);
  // Sends packets that leave as one datagram; one by one if the kernel refuses to cut it.
  void send_run(std::span<const Waiting> run);
  [[nodiscard]] static bool goes_with(const Waiting& first, const Waiting& other);

  Config config_;
  net::UdpPorts ports_;
  bool ipv6_;
  UniqueFd receiver_;
  // An epoll with the receiver in it, which tells of datagrams only while armed. On the socket
  // itself every datagram would wake the threads that sleep lightly beside one that polls.
  UniqueFd waiter_;
  bool armed_ = false;
  std::vector<UniqueFd> senders_;  // by path
  std::vector<std::byte> buffer_;
  std::array<std::array<char, kControlBytes>, kDatagrams> controls_;
  std::array<sockaddr_storage, kDatagrams> sources_;
  std::array<iovec, kDatagrams> pieces_;
  std::array<mmsghdr, kDatagrams> messages_;
  struct Datagram {
    Address from;
    PathId path;
    Ecn ecn = Ecn::not_capable;
    bool valid = false;
    std::uint8_t dscp = 0;
    TimePoint arrived = kNever;  // when the kernel received it
    std::size_t segment = 0;
    std::size_t size = 0;
  };
  std::array<Datagram, kDatagrams> datagrams_;
  Cursor cursor_;
};

// The protocol is that of the codec.
template <net::FrameCodec Codec>
class UdpIo final : public UdpSockets {
  // The kernel writes the headers that a trailer might have to protect.
  static_assert(!net::WritesTrailer<Codec>);

 public:
  [[nodiscard]] static Result<std::unique_ptr<UdpIo>> create(const Config& config) {
    std::unique_ptr<UdpIo> io(new UdpIo(config));
    if (auto opened = io->open(); !opened) {
      return tl::unexpected(opened.error());
    }
    return io;
  }

  [[nodiscard]] std::span<const RxPacket> receive() override {
    refill();
    std::size_t count = 0;
    for (std::uint8_t dscp = 0; count < kBurst && take_next(received_[count], dscp); ++count) {
      received_[count].trimmed = Codec::is_trimmed(dscp);
    }
    return {received_.data(), count};
  }
  [[nodiscard]] std::size_t transmit(std::span<const TxPacket> packets) override {
    const auto burst = packets.first(std::min(packets.size(), kTransmitBurst));
    std::array<std::uint8_t, kTransmitBurst> dscp;
    std::transform(burst.begin(), burst.end(), dscp.begin(),
                   [](const TxPacket& packet) { return Codec::dscp_of(packet); });
    return send(burst, dscp);
  }

 private:
  explicit UdpIo(const Config& config) : UdpSockets(config, Codec::kPorts) {}

  std::array<RxPacket, kBurst> received_;
};

}  // namespace weft::srd
