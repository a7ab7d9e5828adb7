// Owns the one shape of everything that speaks a protocol: packets and time in, packets and a
// deadline out.
//
// Eight calls drive a Machine. Four it always has: on_packet(), on_timeout(), next_transmit(),
// next_timeout(). The others it may have (the concepts below): on_packets(), prepare_transmit(),
// next_prepared(), awaits_events(). A driver that knows them prefers them. A round, in this order:
//   1. packets that have arrived: on_packets(), where TakesBursts, or on_packet() for each;
//   2. on_timeout(), if next_timeout() has passed and no more packets wait;
//   3. prepare_transmit() and next_prepared() again and again, where PreparesTransmit, or
//      next_transmit(); until it returns false, or the carrier has no room, or it is enough;
//   4. next_timeout(), to know when the next round is due at the latest.
// A round may end after any step, and 3 may be made alone, after work was posted. Poller makes 1 to
// 3; Host, and the simulator in its own way, the rest. What TellsOfEvents and TellsOfMemory offer,
// Host asks between two steps, never within one. All calls come from one thread at a time, which
// holds the Host's lock, and `now` never goes backwards from one to the next. None blocks, and none
// calls its driver.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

#include "srd/base/prefetch.hpp"
#include "srd/base/time.hpp"
#include "srd/net/address.hpp"

namespace weft::srd {

// A packet that arrived. Borrowed for the duration of on_packet().
struct RxPacket {
  Address from;
  PathId path;
  Ecn ecn = Ecn::not_capable;
  bool trimmed = false;              // a switch cut the payload off and says so in the envelope
  std::uint8_t envelope_size = 0;    // see envelope()
  std::uint8_t to = 0;               // which of the NIC's addresses; see net::HasAliases
  std::span<const std::byte> bytes;  // the transport header and (the beginning of) the payload
  std::span<const std::byte> more;   // the rest, for carriers that keep header and payload apart
  // When it was here, if the carrier knows better than the caller: it may have waited for a core.
  TimePoint arrived = kNever;

  // Ethernet, IP and UDP headers as they came, right before `bytes`. Empty where the carrier does
  // not see them.
  [[nodiscard]] std::span<const std::byte> envelope() const {
    return {bytes.data() - envelope_size, envelope_size};
  }
};

// Arrival stamps in the future, or older than 1 s, are ignored.
[[nodiscard]] constexpr TimePoint arrival_of(TimePoint now, const RxPacket& packet) {
  constexpr Duration kOldest = std::chrono::seconds{1};
  return packet.arrived < now - kOldest || packet.arrived > now ? now : packet.arrived;
}

// A packet to be sent. Header bytes are written in place; the payload is lent, by the program that
// posted the work or by the Machine. It stays as it is while nothing but more packets are asked of
// the Machine, and no more than kMaxBurst together: before any other call, and before the next
// burst, all of them must be copied or sent.
// What a packet with data uses of it fills two cache lines: its fields and its header.
struct alignas(kCacheLine) TxPacket {
  static constexpr std::size_t kHeaderCapacity = 512;
  static constexpr std::size_t kMaxBurst = 16;

  Address to;
  PathId path;
  Ecn ecn = Ecn::capable_0;
  std::uint8_t dscp = 0;  // for protocols whose users choose it; a codec's matter in the others
  std::uint16_t header_size = 0;
  std::uint8_t hop_limit = 64;  // the same
  std::uint8_t source = 0;      // which of the NIC's addresses it is from; see net::HasAliases
  TimePoint when{};             // it was asked for; set by the caller, for carriers that tell
  std::array<std::span<const std::byte>, 2> payload{};
  std::array<std::byte, kHeaderCapacity> header;  // deliberately not initialised

  [[nodiscard]] std::size_t payload_size() const { return payload[0].size() + payload[1].size(); }
  [[nodiscard]] std::size_t size() const { return header_size + payload_size(); }
};

// Of a process that ends: it begins to, it asks those again that have not answered, and in the end
// it tells those anew to which it has sent more. (make_last_rounds())
enum class Leave : std::uint8_t { begin, ask_again, end };

// No clock, no thread, no socket, no log inside.
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

// A machine with queues of its own around the protocol looks at them once for a burst.
template <class M>
concept TakesBursts = requires(M& machine, TimePoint now, std::span<const RxPacket> packets) {
  machine.on_packets(now, packets);
};

// The same for sending: first it looks what there is to send, then packet by packet.
template <class M>
concept PreparesTransmit = requires(M& machine, TimePoint now, TxPacket& out) {
  machine.prepare_transmit();
  { machine.next_prepared(now, out) } -> std::same_as<bool>;
};

// A thread of the program sleeps, or is about to, until the machine wakes it.
template <class M>
concept TellsOfEvents = requires(const M& machine) {
  { machine.awaits_events() } -> std::same_as<bool>;
};

// How much data of peers has come into memory that its owner may be looking at, and whether nothing
// of its owner's is outstanding.
template <class M>
concept TellsOfMemory = requires(const M& machine) {
  { machine.placed_bytes() } -> std::same_as<std::uint64_t>;
  { machine.idle() } -> std::same_as<bool>;
};

}  // namespace weft::srd
