// Owns the copying of an arrived payload, which may lie in two pieces.
#pragma once

#include <algorithm>
#include <cstddef>

#include "srd/base/lent_memory.hpp"
#include "srd/net/machine.hpp"

namespace weft::roce {

// Copies `length` bytes of the packet from byte `from` on. False: the memory at `to` is gone.
[[nodiscard]] inline bool copy_packet(const srd::RxPacket& packet, std::size_t from, std::byte* to,
                                      std::size_t length) {
  const std::size_t first =
      from < packet.bytes.size() ? std::min(length, packet.bytes.size() - from) : 0;
  if (first != 0 && !copy_to_lent(to, packet.bytes.data() + from, first)) {
    return false;
  }
  const std::size_t behind = from + first - packet.bytes.size();
  return first == length || copy_to_lent(to + first, packet.more.data() + behind, length - first);
}

}  // namespace weft::roce
