// Owns the one shape of everything that moves packets. A virtual call costs once per burst, never
// per packet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "srd/base/units.hpp"
#include "srd/net/machine.hpp"

namespace weft::srd {

// A network that is modelled between us and the others.
struct NetworkModel {
  Rate rate;              // of our link to it
  Duration round_trip{};  // without queues, to the most distant host; zero: nothing is modelled
  bool trims = false;     // what finds no room is cut, not lost
};

struct IoCapabilities {
  std::size_t mtu = 0;    // largest transport packet (header and payload) that fits into one frame
  std::size_t burst = 0;  // packets one receive() may return at the most
  bool lossless_memory =
      false;  // bytes cannot be damaged on the way: the packet checksum may be left out
  bool reads_ecn = false;
  bool writes_ecn = false;
  // It tells so many apart; packets of others are unroutable. As a rule the protocol's own number.
  std::uint16_t paths = std::numeric_limits<std::uint16_t>::max();
  std::uint32_t path_run =
      0;  // bytes of one burst and one path that leave by one call; 0: no matter
  std::uint32_t gigabits = 0;  // the link's rate, where it is known
  NetworkModel network{};      // if the carrier leads through one
};

struct IoCounters {
  std::uint64_t rx_packets = 0;
  std::uint64_t rx_bytes = 0;  // of transport packets, without envelopes
  std::uint64_t tx_packets = 0;
  std::uint64_t tx_bytes = 0;
  std::uint64_t rx_malformed = 0;   // frames that are no packet for us
  std::uint64_t rx_forged = 0;      // frames that claim another sender than they can have
  std::uint64_t tx_oversize = 0;    // packets above the MTU: taken and dropped
  std::uint64_t tx_unroutable = 0;  // no way to that address: taken and dropped
  std::uint64_t tx_unreadable = 0;  // whose payload's memory is gone: taken and dropped
  std::uint64_t tx_lost = 0;        // packets that the system below refused or had no room for
  std::uint64_t tx_stalled = 0;     // packets to a reader that is slow or stopped: dropped
  std::uint64_t ports_broken = 0;   // peers that wrote nonsense into shared memory and were cut off
};

class PacketIo {
 public:
  virtual ~PacketIo() = default;

  [[nodiscard]] virtual IoCapabilities capabilities() const = 0;
  [[nodiscard]] virtual IoCounters counters() const = 0;

  // A burst of packets, valid until release() or the next call. release() belongs after an empty
  // one, too: what was filtered out may occupy a device's buffers.
  [[nodiscard]] virtual std::span<const RxPacket> receive() = 0;
  virtual void release() = 0;

  // Sends a prefix of `packets` and returns how many. Fewer than asked means back-pressure: call
  // again later. A carrier may keep what it took for a moment; any later call lets it go on.
  [[nodiscard]] virtual std::size_t transmit(std::span<const TxPacket> packets) = 0;
  // How many packets, of any allowed size, the next transmit() is sure to take. A Machine is asked
  // for no more than that: a packet that could not be sent would keep pointing at memory whose
  // owner may get it back.
  [[nodiscard]] virtual std::size_t transmit_room() = 0;

  // To sleep without losing a wake-up: arm(); if it returns true poll wait_fd(), then disarm().
  // arm() returns false when something has arrived meanwhile. wait_fd() is -1 where there is
  // nothing to wait on. While a carrier that a Host drives is not armed, packets do not
  // make it readable: they would wake threads that sleep while another one polls.
  [[nodiscard]] virtual int wait_fd() const = 0;
  [[nodiscard]] virtual bool arm() = 0;
  virtual void disarm() = 0;
};

}  // namespace weft::srd
