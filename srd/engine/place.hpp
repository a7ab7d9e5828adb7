// Owns the copying of an arrived payload to where it belongs.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "srd/base/lent_memory.hpp"
#include "srd/base/units.hpp"
#include "srd/engine/requests.hpp"
#include "srd/net/machine.hpp"
#include "srd/wire/srd_header.hpp"

namespace weft::srd {

// Reads the payload of a data packet from its beginning, wherever the carrier has put the pieces.
class PayloadReader {
 public:
  explicit PayloadReader(const RxPacket& packet)
      : first_(packet.bytes.subspan(sizeof(wire::DataHeader))), second_(packet.more) {}

  // A payload is copied twice on its way. This is the second time: from the carrier's memory to the
  // receiver's. False: part of the memory at `to` is gone.
  [[nodiscard]] bool copy_to(std::byte* to, std::size_t length) {
    return copy_with(to, length, [](std::byte* part, const std::byte* from, std::size_t count) {
      std::memcpy(part, from, count);
    });
  }
  // To memory whose reader waits for flags in it.
  [[nodiscard]] bool copy_lines_to(std::byte* to, std::size_t length);

 private:
  template <class Copy>
  [[nodiscard]] bool copy_with(std::byte* to, std::size_t length, Copy copy) {
    const std::size_t head = std::min(length, first_.size());
    const bool copied = touch_lent(to, length, [=, first = first_.data(), second = second_.data()] {
      if (head != 0) {
        copy(to, first, head);
      }
      if (length > head) {
        copy(to + head, second, length - head);
      }
    });
    first_ = first_.subspan(head);
    second_ = second_.subspan(length - head);
    return copied;
  }

  std::span<const std::byte> first_;
  std::span<const std::byte> second_;
};

template <std::size_t kCount>
[[nodiscard]] inline Bytes total_length(const std::array<Segment, kCount>& segments) {
  Bytes total = 0;
  for (const Segment& segment : segments) {
    total += segment.length;
  }
  return total;
}

// Copies `length` bytes of payload into `segments` at `offset`. The caller has checked that they
// fit. False: part of that memory is gone.
template <std::size_t kCount>
[[nodiscard]] inline bool place(const RxPacket& packet, std::uint32_t length,
                                const std::array<Segment, kCount>& segments, std::uint32_t offset) {
  PayloadReader payload(packet);
  if (Bytes{offset} + length <= segments[0].length) [[likely]] {
    return length == 0 || payload.copy_to(segments[0].data + offset, length);
  }
  for (const Segment& segment : segments) {
    if (offset >= segment.length) {
      offset -= segment.length;
      continue;
    }
    const std::uint32_t count = std::min(segment.length - offset, length);
    if (count != 0 && !payload.copy_to(segment.data + offset, count)) {
      return false;
    }
    length -= count;
    offset = 0;
  }
  return true;
}

// The payload of simulated bulk: bytes whose values do not matter.
inline constexpr std::size_t kPhantomPageSize = 65536;
[[nodiscard]] std::span<const std::byte> phantom_payload(std::size_t length);

}  // namespace weft::srd
