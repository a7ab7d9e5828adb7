// Owns the names by which the ends of a network know each other, and what a packet's envelope says:
// addresses of NICs, queue pairs, processes and their lives, paths, ECN marks.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "srd/base/ids.hpp"
#include "srd/base/rng.hpp"
#include "srd/base/serial.hpp"

namespace weft::srd {

// A NIC's network address as 16 bytes: IPv6, or IPv4 mapped into it (::ffff:a.b.c.d). It is the
// NIC's GID.
struct Address {
  std::array<std::byte, 16> bytes{};

  // a.b.c.d
  [[nodiscard]] static constexpr Address v4(unsigned a, unsigned b, unsigned c, unsigned d) {
    const std::array<std::byte, 4> four{static_cast<std::byte>(a), static_cast<std::byte>(b),
                                        static_cast<std::byte>(c), static_cast<std::byte>(d)};
    return v4(four.data());
  }
  // As they lie in an IPv4 header. Made of words, so that it never has to be in memory: two words
  // that are read where smaller pieces have just been written make a processor wait.
  [[nodiscard]] static constexpr Address v4(const std::byte* four) {
    std::array<std::byte, 4> bytes{four[0], four[1], four[2], four[3]};
    const auto number = std::bit_cast<std::uint32_t>(bytes);
    const std::uint64_t low = std::endian::native == std::endian::little
                                  ? std::uint64_t{number} << 32 | kV4Mark
                                  : std::uint64_t{kV4Mark} << 32 | number;
    return {std::bit_cast<std::array<std::byte, 16>>(std::array{std::uint64_t{0}, low})};
  }
  [[nodiscard]] constexpr bool is_v4() const {
    const auto [high, low] = words();
    const auto middle =
        static_cast<std::uint32_t>(std::endian::native == std::endian::little ? low : low >> 32);
    return (high | (middle ^ kV4Mark)) == 0;
  }
  // Where is_v4(): the four bytes of the IPv4 address.
  [[nodiscard]] constexpr std::span<const std::byte, 4> v4_bytes() const {
    return std::span(bytes).last<4>();
  }

  // Two words compare faster than sixteen bytes, and this happens for each packet.
  [[nodiscard]] constexpr std::array<std::uint64_t, 2> words() const {
    return std::bit_cast<std::array<std::uint64_t, 2>>(bytes);
  }
  friend constexpr bool operator==(const Address& a, const Address& b) {
    const auto x = a.words();
    const auto y = b.words();
    return ((x[0] ^ y[0]) | (x[1] ^ y[1])) == 0;
  }

 private:
  // Bytes 8 to 11 of ::ffff:0:0/96.
  static constexpr auto kV4Mark = std::bit_cast<std::uint32_t>(
      std::array{std::byte{0}, std::byte{0}, std::byte{0xFF}, std::byte{0xFF}});
};

// Number of a queue pair on its NIC; 24 bits on the wire.
using Qpn = Id<struct QpnTag, std::uint32_t>;

// Which process on a NIC. With the address it names one end of a reliability context.
using AttachmentId = Id<struct AttachmentTag, std::uint16_t>;

// One incarnation of an attachment: a restarted process has a later one. Compared as a serial
// number.
using Life = Serial<struct LifeTag, std::uint32_t>;

// The entropy of a packet: the index of its UDP source port within the sender's range, 0 ..
// paths-1.
using PathId = Id<struct PathTag, std::uint16_t>;

// The two ECN bits of the IP header.
enum class Ecn : std::uint8_t { not_capable = 0, capable_1 = 1, capable_0 = 2, congested = 3 };

}  // namespace weft::srd

template <>
struct std::hash<weft::srd::Address> {
  std::size_t operator()(const weft::srd::Address& address) const noexcept {
    const auto words = address.words();
    return static_cast<std::size_t>(weft::mix64(words[0] ^ std::rotl(words[1], 29)));
  }
};
