// Owns access to buffers that an application has lent and may unmap or protect at any moment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace weft {

// Set once, before the first buffer is lent. Null in programs whose buffers stay where they are.
struct LentMemory {
  // Runs work(argument), which accesses no lent memory but [begin, begin + length). False: part of
  // that is no longer accessible; `work` was left in the middle, and no destructor in it has run.
  bool (*touch)(void (*work)(void*), void* argument, const void* begin,
                std::size_t length) = nullptr;
};
inline constinit LentMemory lent_memory;

// `work` must have nothing to destroy and take no lock. Only a copy of it has an address: what it
// holds can stay in registers where no buffer ever goes away.
template <class Work>
[[nodiscard]] inline bool touch_lent(const void* begin, std::size_t length, Work work) {
  if (lent_memory.touch == nullptr) {
    work();
    return true;
  }
  Work copy = work;
  return lent_memory.touch([](void* argument) { (*static_cast<Work*>(argument))(); }, &copy, begin,
                           length);
}

// One of the two buffers is lent, the other is our own.
[[nodiscard]] inline bool copy_to_lent(void* lent, const void* from, std::size_t length) {
  return touch_lent(lent, length, [=] { std::memcpy(lent, from, length); });
}
[[nodiscard]] inline bool copy_from_lent(void* to, const void* lent, std::size_t length) {
  return touch_lent(lent, length, [=] { std::memcpy(to, lent, length); });
}

// Whether all of it can be read. Slow: only for a packet that seems to be lost.
[[nodiscard]] inline bool lent_is_readable(const void* begin, std::size_t length) {
  if (lent_memory.touch == nullptr || length == 0) {
    return true;
  }
  return touch_lent(begin, length, [=] {
    constexpr std::size_t kPage = 4096;
    const auto* const first = static_cast<const volatile std::byte*>(begin);
    const std::size_t to_next = kPage - reinterpret_cast<std::uintptr_t>(begin) % kPage;
    (void)*first;
    for (std::size_t at = to_next; at < length; at += kPage) {
      (void)first[at];
    }
  });
}

}  // namespace weft
