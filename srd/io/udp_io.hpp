// Owns packets over UDP sockets of the kernel: no privilege, one source port per path, real ECN
// marks.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "srd/base/result.hpp"
#include "srd/io/posix.hpp"
#include "srd/net/packet_io.hpp"

namespace weft::srd {

// The address belongs to this object alone: it holds the transport's port on it. Packets of one
// burst that go the same way leave together as one large send that the kernel (or the NIC) cuts, so
// the order within a burst is that of the paths.
class UdpIo final : public PacketIo {
 public:
  static constexpr std::size_t kBurst = 64;
  static constexpr std::size_t kTransmitBurst = 64;

  struct Config {
    Address own;
    std::size_t mtu = 1400;      // of transport packets; what fits into the links' frames
    std::uint16_t paths = 16;    // source ports, from 0xF000 on
    int socket_bytes = 4 << 20;  // buffer of each socket; the kernel may give less
  };
  [[nodiscard]] static Result<std::unique_ptr<UdpIo>> create(const Config& config);

  [[nodiscard]] IoCapabilities capabilities() const override;
  [[nodiscard]] IoCounters counters() const override { return counters_; }
  [[nodiscard]] std::span<const RxPacket> receive() override;
  void release() override;
  [[nodiscard]] std::size_t transmit(std::span<const TxPacket> packets) override;
  [[nodiscard]] std::size_t transmit_room() override { return kTransmitBurst; }
  [[nodiscard]] int wait_fd() const override { return receiver_.get(); }
  [[nodiscard]] bool arm() override;
  void disarm() override {}

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

  explicit UdpIo(const Config& config);
  [[nodiscard]] Result<UniqueFd> open_socket(std::uint16_t port, bool receives) const;
  void fill();
  [[nodiscard]] bool take_next(RxPacket& packet);
  void send_run(std::span<const TxPacket* const> run);
  [[nodiscard]] static bool goes_with(const TxPacket& first, const TxPacket& other);

  Config config_;
  bool ipv6_;
  UniqueFd receiver_;
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
    bool trimmed = false;
    TimePoint arrived = kNever;  // in the kernel's hands
    std::size_t segment = 0;
    std::size_t size = 0;
  };
  std::array<Datagram, kDatagrams> datagrams_;
  Cursor cursor_;
  std::array<RxPacket, kBurst> received_;
  IoCounters counters_;
};

}  // namespace weft::srd
