// Owns the copying of an arrived payload, which may lie in two pieces.
#pragma once

#include <algorithm>
#include <cstddef>

#include "srd/base/lent_memory.hpp"
#include "srd/base/line_copy.hpp"
#include "srd/net/machine.hpp"

namespace weft::roce {

// Copies `length` bytes of the packet from byte `from` on, the last ones last: there are programs
// that wait for the last byte of a message in memory, as hardware lets them. False: the memory at
// `to` is gone.
[[nodiscard]] inline bool copy_packet(const srd::RxPacket& packet, std::size_t from, std::byte* to,
                                      std::size_t length) {
  const auto copy = [](std::byte* part, const std::byte* bytes, std::size_t count) {
    return touch_lent(part, count, [=] { copy_end_last(part, bytes, count); });
  };
  const std::size_t first =
      from < packet.bytes.size() ? std::min(length, packet.bytes.size() - from) : 0;
  if (first != 0 && !copy(to, packet.bytes.data() + from, first)) {
    return false;
  }
  const std::size_t behind = from + first - packet.bytes.size();
  return first == length || copy(to + first, packet.more.data() + behind, length - first);
}

}  // namespace weft::roce
