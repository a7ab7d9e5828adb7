// Owns what the outside of a packet says: the address of a NIC, the path, the ECN mark.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "srd/base/ids.hpp"

namespace weft::srd {

// A NIC's network address as 16 bytes: IPv6, or IPv4 mapped into it (::ffff:a.b.c.d). It is the
// NIC's GID.
struct Address {
  std::array<std::byte, 16> bytes{};
  friend constexpr bool operator==(const Address&, const Address&) = default;
};

// Entropy of a packet: index of the UDP source port within the sender's port range. 0 .. paths-1.
using PathId = Id<struct PathTag, std::uint16_t>;

// The two ECN bits of the IP header.
enum class Ecn : std::uint8_t { not_capable = 0, capable_1 = 1, capable_0 = 2, congested = 3 };

}  // namespace weft::srd

template <>
struct std::hash<weft::srd::Address> {
  std::size_t operator()(const weft::srd::Address& address) const noexcept;
};
