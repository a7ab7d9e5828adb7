// Owns the invariant CRC of a RoCEv2 packet: over all that no router may change.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace weft::roce::wire {

// Continues a CRC-32 of Ethernet. Start with 0, then pass the result of each piece on to the next.
[[nodiscard]] std::uint32_t crc32(std::uint32_t crc, std::span<const std::byte> bytes);

// `ip_udp`: an IPv4 header without options, or an IPv6 header, and the UDP header behind it. The
// packet, from BTH to the last byte of pad, lies in up to three pieces; the first holds at least
// BTH. The result is appended to the packet with its least significant byte first.
[[nodiscard]] std::uint32_t icrc(std::span<const std::byte> ip_udp,
                                 std::span<const std::byte> packet,
                                 std::span<const std::byte> payload = {},
                                 std::span<const std::byte> more_payload = {});

}  // namespace weft::roce::wire
