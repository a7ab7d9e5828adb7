// Owns copying into memory that another thread reads before it is told that the copy is complete.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace weft {

// std::memcpy(), which writes words whole: those of 8 bytes at multiples of 8. The thread sanitizer
// does not know that, nor that readers load such words; under it they are stored one by one.
#ifdef __SANITIZE_THREAD__
inline void copy_words(std::byte* to, const std::byte* from, std::size_t length) {
  constexpr std::size_t kWord = sizeof(std::uint64_t);
  while (length != 0) {
    const bool whole = reinterpret_cast<std::uintptr_t>(to) % kWord == 0 && length >= kWord;
    const std::size_t size = whole ? kWord : 1;
    if (whole) {
      std::uint64_t word = 0;
      std::memcpy(&word, from, kWord);
      __atomic_store_n(reinterpret_cast<std::uint64_t*>(to), word, __ATOMIC_RELEASE);
    } else {
      __atomic_store_n(reinterpret_cast<std::uint8_t*>(to), static_cast<std::uint8_t>(*from),
                       __ATOMIC_RELEASE);
    }
    to += size;
    from += size;
    length -= size;
  }
}
#else
inline void copy_words(std::byte* to, const std::byte* from, std::size_t length) {
  std::memcpy(to, from, length);
}
#endif

// The last word of the copy becomes visible after all of it before that: a reader that polls the
// last bytes of a message may then read the message. std::memcpy() keeps no order: glibc's writes
// the end, or the beginning, of some lengths before the middle. Words are those of 8 bytes at
// multiples of 8; none is written in two parts.
inline void copy_end_last(std::byte* to, const std::byte* from, std::size_t length) {
  constexpr std::size_t kWord = sizeof(std::uint64_t);
  const std::size_t end = (reinterpret_cast<std::uintptr_t>(to) + length - 1) % kWord + 1;
  if (length <= end) {
    copy_words(to, from, length);
    return;
  }
  const std::size_t rest = length - end;
  copy_words(to, from, rest);
  std::atomic_thread_fence(std::memory_order_release);
  if (end == kWord) {
    copy_words(to + rest, from + rest, kWord);  // one store
  } else {
    copy_words(to + rest, from + rest, end);
  }
}

inline constexpr std::size_t kLineBytes = 128;

// Of each line (128 bytes at a multiple of 128 at `to`) the last word becomes visible after the
// rest, as NCCL's LL128 protocol needs it, whose readers wait for that word. A line may be copied
// in several parts, the first one first.
inline void copy_lines(std::byte* to, const std::byte* from, std::size_t length) {
  const std::size_t begun = reinterpret_cast<std::uintptr_t>(to) % kLineBytes;
  const std::size_t first = begun == 0 ? 0 : std::min(length, kLineBytes - begun);
  std::size_t at = 0;
  if (first != 0) {
    std::atomic_thread_fence(std::memory_order_release);  // after the parts that came before
    copy_end_last(to, from, first);
    at = first;
  }
  constexpr std::size_t kFlag = kLineBytes - sizeof(std::uint64_t);
  for (; length - at >= kLineBytes; at += kLineBytes) {
    copy_words(to + at, from + at, kFlag);
    std::atomic_thread_fence(std::memory_order_release);
    copy_words(to + at + kFlag, from + at + kFlag, kLineBytes - kFlag);
  }
  if (at != length) {
    copy_end_last(to + at, from + at, length - at);
  }
}

}  // namespace weft
