// Owns the names by which faults and traces speak of packets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace weft::world {

// A set of packet types; `data` are those that carry a sequence number and a request's payload.
enum class Packet : std::uint16_t {
  none = 0,
  send = 1,
  write = 2,
  read_request = 4,
  read_response = 8,
  probe = 16,
  ack = 32,
  stale_life = 64,
  credit_request = 128,
  other = 256,
  data = send | write | read_request | read_response,
  any = 0xFFFF,
};

[[nodiscard]] constexpr bool matches(Packet wanted, Packet kind) {
  return (static_cast<unsigned>(wanted) & static_cast<unsigned>(kind)) != 0;
}
[[nodiscard]] constexpr Packet operator|(Packet a, Packet b) {
  return static_cast<Packet>(static_cast<unsigned>(a) | static_cast<unsigned>(b));
}

// Reads only the type byte: malformed packets have a kind, too.
[[nodiscard]] Packet kind_of(std::span<const std::byte> packet);

// One line for a person: type, numbers, flags, lengths.
[[nodiscard]] std::string describe(std::span<const std::byte> packet);

}  // namespace weft::world
