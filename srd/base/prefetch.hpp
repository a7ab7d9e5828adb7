// Owns the hint that memory will be used soon.
#pragma once

#include <cstddef>

namespace weft {

inline constexpr std::size_t kCacheLine = 64;

// Fetches the cache lines of [from, from + size) for writing, without waiting for them.
inline void prefetch(const void* from, std::size_t size) {
  const auto* bytes = static_cast<const std::byte*>(from);
  for (std::size_t offset = 0; offset < size; offset += kCacheLine) {
    __builtin_prefetch(bytes + offset, 1);
  }
}

}  // namespace weft
