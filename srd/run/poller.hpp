// Owns the small loop that joins a Machine and a PacketIo: receive burst, timers, transmit burst.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "srd/base/time.hpp"
#include "srd/net/machine.hpp"
#include "srd/net/packet_io.hpp"

namespace weft::srd {

// With a final Machine type as M its calls are direct; the PacketIo costs a virtual call per burst.
template <class M = Machine>
class Poller {
 public:
  static constexpr std::size_t kTransmitBurst = TxPacket::kMaxBurst;
  static constexpr int kTransmitBurstsPerRound = 4;  // then look at the receive side again
  static constexpr int kMaxPostponed = 64;           // full bursts before timers count all the same

  Poller(M& machine, PacketIo& io)
      : machine_(machine), io_(io), max_received_(io.capabilities().burst) {}

  // One round. Returns how many packets went in or out.
  std::size_t poll(TimePoint now) { return receive(now) + transmit(now); }

  // The receive half, and timers that are due.
  std::size_t receive(TimePoint now) {
    const std::span<const RxPacket> received = io_.receive();
    if (!received.empty()) {
      if constexpr (TakesBursts<M>) {
        machine_.on_packets(now, received);
      } else {
        for (const RxPacket& packet : received) {
          machine_.on_packet(now, packet);
        }
      }
    }
    io_.release();  // a carrier may hold a burst of which nothing was a packet for us
    // After a pause of this thread a timer may be due although its answer has arrived: receive what
    // waits first, but not for ever.
    const bool more = received.size() >= max_received_ && ++postponed_ < kMaxPostponed;
    if (!more && machine_.next_timeout() <= now) {
      machine_.on_timeout(now);
      postponed_ = 0;
    }
    return received.size();
  }

  // The transmit half alone: right after work was posted.
  std::size_t transmit(TimePoint now) {
    std::size_t sent = 0;
    blocked_ = false;
    left_unsent_ = true;
    if constexpr (PreparesTransmit<M>) {
      machine_.prepare_transmit();
    }
    for (int burst = 0; burst < kTransmitBurstsPerRound; ++burst) {
      const std::size_t room = std::min(kTransmitBurst, io_.transmit_room());
      if (room == 0) {
        blocked_ = true;
        break;
      }
      std::size_t count = 0;
      while (count < room && next_transmit(now, burst_[count])) {
        burst_[count++].when = now;
      }
      left_unsent_ = count == room;
      if (count == 0) {
        break;
      }
      // All are taken: no more than there is room for were asked of the machine.
      sent += io_.transmit({burst_.data(), count});
      if (count < room) {
        break;
      }
    }
    return sent;
  }

  // The carrier had no room in the last round: the machine may have more to send.
  [[nodiscard]] bool blocked() const { return blocked_; }
  // The same, or the last round has sent as much as one may.
  [[nodiscard]] bool left_unsent() const { return left_unsent_; }
  [[nodiscard]] TimePoint next_timeout() const { return machine_.next_timeout(); }

 private:
  // A machine with queues of its own to look at does so once a round, not once a packet.
  [[nodiscard]] bool next_transmit(TimePoint now, TxPacket& out) {
    if constexpr (PreparesTransmit<M>) {
      return machine_.next_prepared(now, out);
    } else {
      return machine_.next_transmit(now, out);
    }
  }

  M& machine_;
  PacketIo& io_;
  std::size_t max_received_;
  int postponed_ = 0;
  bool blocked_ = false;
  bool left_unsent_ = false;
  std::array<TxPacket, kTransmitBurst> burst_;
};

}  // namespace weft::srd
