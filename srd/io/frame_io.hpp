// Owns the one shape of everything that moves whole Ethernet frames, whatever their destination.
//
// It stands below PacketIo: weftd connects its switch to the outside through a FrameIo, and
// EnvelopeIo makes a carrier of one for a single process.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace weft::srd {

// A frame to be sent, in pieces that are lent for the duration of the call.
struct TxFrame {
  std::array<std::span<const std::byte>, 4> pieces{};

  [[nodiscard]] std::size_t size() const {
    return pieces[0].size() + pieces[1].size() + pieces[2].size() + pieces[3].size();
  }
};
using RxFrame = std::span<const std::byte>;

struct FrameCounters {
  std::uint64_t rx_frames = 0;
  std::uint64_t rx_bytes = 0;
  std::uint64_t tx_frames = 0;
  std::uint64_t tx_bytes = 0;
  std::uint64_t rx_dropped = 0;   // frames cut short on the way in, or no frames at all
  std::uint64_t rx_unproved = 0;  // frames without proof of their sender, or replayed
  std::uint64_t rx_marked = 0;    // frames whose outer IP header had the congestion mark
  std::uint64_t tx_oversize = 0;  // frames that the link cannot carry: taken and dropped
  std::uint64_t tx_lost = 0;      // frames that the system below refused
  std::uint64_t tx_stalled = 0;   // frames for a link that has taken nothing for long
};

struct FrameTraits {
  std::size_t max_frame = 0;     // bytes, from the destination address to the end of the payload
  std::size_t burst = 0;         // frames one receive() may return at the most
  std::uint32_t gigabits = 0;    // the link's rate, where it is known
  bool lossless_memory = false;  // a program on this machine is at the other end
};

// The contract is that of PacketIo (srd/net/packet_io.hpp), and one thread at a time:
// - receive() lends frames until release() or the next call;
// - transmit() takes a prefix of the frames and says how long it is; a frame that it takes may
//   still be lost, and is then counted;
// - transmit_room() is how many it will take;
// - arm() is called before sleeping on wait_fd(): false if there is something to do, so do not
//   sleep. After waking, disarm(). A wait_fd() of -1 means that there is nothing to sleep on.
class FrameIo {
 public:
  virtual ~FrameIo() = default;

  [[nodiscard]] virtual FrameTraits traits() const = 0;
  [[nodiscard]] virtual FrameCounters counters() const = 0;
  // Whether frames pass, as far as this end can tell.
  [[nodiscard]] virtual bool is_up() const { return true; }
  [[nodiscard]] virtual std::span<const RxFrame> receive() = 0;
  virtual void release() = 0;
  [[nodiscard]] virtual std::size_t transmit(std::span<const TxFrame> frames) = 0;
  [[nodiscard]] virtual std::size_t transmit_room() = 0;
  [[nodiscard]] virtual int wait_fd() const = 0;
  [[nodiscard]] virtual bool arm() = 0;
  virtual void disarm() = 0;
};

}  // namespace weft::srd
