// Owns the one shape of everything that speaks a protocol: packets and time in, packets and a
// deadline out.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "srd/base/time.hpp"
#include "srd/engine/types.hpp"

namespace weft::srd {

// A packet that arrived, without its Ethernet/IP/UDP envelope. Borrowed for the duration of
// on_packet().
struct RxPacket {
  Address from;
  PathId path;
  Ecn ecn = Ecn::not_capable;
  bool trimmed = false;              // a switch cut the payload off and says so in the envelope
  std::span<const std::byte> bytes;  // the transport header and (the beginning of) the payload
  std::span<const std::byte> more;   // the rest, for carriers that keep header and payload apart
  // When it was here, if the carrier knows better than the caller: it may have waited for a core.
  TimePoint arrived = kNever;
};

// Anything else than the recent past is nobody's word to take.
[[nodiscard]] constexpr TimePoint arrival_of(TimePoint now, const RxPacket& packet) {
  constexpr Duration kOldest = std::chrono::seconds{1};
  return packet.arrived < now - kOldest || packet.arrived > now ? now : packet.arrived;
}

// A packet to be sent. Header bytes are written in place; the payload is lent by whoever posted the
// work and must be copied or sent before the Machine is called again.
struct TxPacket {
  static constexpr std::size_t kHeaderCapacity = 512;

  Address to;
  PathId path;
  Ecn ecn = Ecn::capable_0;
  std::uint16_t header_size = 0;
  TimePoint when{};  // it was asked for; set by the caller, for carriers that tell
  std::array<std::span<const std::byte>, 2> payload{};
  std::array<std::byte, kHeaderCapacity> header;  // deliberately not initialised

  [[nodiscard]] std::size_t payload_size() const { return payload[0].size() + payload[1].size(); }
  [[nodiscard]] std::size_t size() const { return header_size + payload_size(); }
};

// No clock, no thread, no socket, no log inside. All calls come from one thread at a time, and
// `now` never goes backwards.
class Machine {
 public:
  virtual ~Machine() = default;

  virtual void on_packet(TimePoint now, const RxPacket& packet) = 0;
  // Spurious calls are harmless.
  virtual void on_timeout(TimePoint now) = 0;
  // Fills `out` and returns true, or returns false when there is nothing to send now.
  [[nodiscard]] virtual bool next_transmit(TimePoint now, TxPacket& out) = 0;
  // When on_timeout() (and then next_transmit()) must be called again, if nothing arrives before.
  // O(1).
  [[nodiscard]] virtual TimePoint next_timeout() const = 0;
};

}  // namespace weft::srd
