// Owns the copy in which the switchboard looks at a frame's headers.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <span>

#include "emu/daemon/switchboard.hpp"

namespace weft::daemon {

// A copy of the beginning of a frame. A process can write into its ring at any moment, also between
// a check and the use of what was checked: so headers are checked in this copy, and the copy is
// what gets forwarded.
struct Switchboard::Head {
  // Of a known size, because compilers make of a copy whose size is only known to be small a loop
  // of the processor's, which takes longer to begin than all of this takes. In two parts, because
  // what is read soon after must lie within one of the words of 16 bytes that were written: so the
  // fields of IPv4 and UDP do.
  explicit Head(std::span<const std::byte> frame) : size(std::min(frame.size(), bytes.size())) {
    if (frame.size() >= bytes.size()) [[likely]] {
      constexpr std::size_t kIp = srd::net::kEthernetSize;
      std::memcpy(bytes.data(), frame.data(), kIp);
      std::memcpy(bytes.data() + kIp, frame.data() + kIp, sizeof bytes - kIp);
    } else {
      std::memmove(bytes.data(), frame.data(), size);
    }
  }
  [[nodiscard]] std::span<const std::byte> span() const { return {bytes.data(), size}; }

  std::array<std::byte, 128> bytes;
  static_assert(srd::net::kEnvelopeSizeV6 + Protocols::kSteeringBytes <= sizeof bytes);
  std::size_t size;
};

}  // namespace weft::daemon
