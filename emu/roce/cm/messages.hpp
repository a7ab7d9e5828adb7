// Owns the arithmetic of connection management's messages: times, and private data.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <span>

#include "emu/roce/cm/types.hpp"

namespace weft::roce::cm {

// What Linux's rdma_cm asks for; times as exponents, 4.096 us * 2^n.
inline constexpr std::uint8_t kResponseTimeout = 20;  // 4.096 us * 2^n
inline constexpr std::uint8_t kMaxRetries = 15;
inline constexpr std::uint8_t kMraTimeout = 24;
inline constexpr std::uint8_t kMaxQpRetries = 7;  // three bits

// 4.096 us * 2^n, in the whole milliseconds that Linux reckons with.
[[nodiscard]] constexpr Duration time_of(std::uint8_t exponent) {
  return std::chrono::milliseconds{std::int64_t{1} << (exponent > 8 ? exponent - 8 : 0)};
}

// Of a queue pair: twice the way, and the time that the other end takes to acknowledge. Both are
// exponents, so their sum is the larger one, or one more where they are close.
[[nodiscard]] constexpr std::uint8_t ack_timeout_of(std::uint8_t ack_delay, std::uint8_t lifetime) {
  const int way = lifetime + 1;
  const int delay = ack_delay;
  const int sum =
      way >= delay ? way + (delay >= way - 1 ? 1 : 0) : delay + (way >= delay - 1 ? 1 : 0);
  return static_cast<std::uint8_t>(std::min(31, sum));
}

// What the program sees of a message's private data, from `offset` on.
[[nodiscard]] inline PrivateData private_data_of(const wire::CmMessage& message,
                                                 std::size_t offset = 0) {
  PrivateData data;
  const std::size_t size = wire::private_data_size(message.kind) - offset;
  std::copy_n(message.private_data.begin() + static_cast<std::ptrdiff_t>(offset), size,
              data.bytes.begin());
  data.size = static_cast<std::uint8_t>(size);
  return data;
}

// False: it does not fit.
[[nodiscard]] inline bool put_private_data(wire::CmMessage& message,
                                           std::span<const std::byte> data,
                                           std::size_t offset = 0) {
  if (offset + data.size() > wire::private_data_size(message.kind)) {
    return false;
  }
  std::ranges::copy(data, message.private_data.begin() + static_cast<std::ptrdiff_t>(offset));
  return true;
}

}  // namespace weft::roce::cm
