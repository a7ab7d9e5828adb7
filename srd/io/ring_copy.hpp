// Owns the copying of payload into a ring.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#include <x86intrin.h>
#endif

namespace weft::srd {

// Between cores that share a cache, an ordinary copy is the fastest. Between cores that do not
// (another core complex of an EPYC, another socket), each line that is written has to be fetched
// from the reader's cache first, and the copy takes eight times as long; non-temporal stores avoid
// that. A scheduler or hypervisor may move either thread at any moment, so the choice is measured:
// after an ordinary copy that was slow, the next kAWhile bytes go around the caches.
class RingCopy {
 public:
  void operator()(std::byte* to, const std::byte* from, std::size_t size) {
#if defined(__SSE2__)
    if (size >= kWorthIt) {
      if (left_ >= size) {
        left_ -= size;
        around_caches(to, from, size);
        return;
      }
      const std::uint64_t start = __rdtsc();
      std::memcpy(to, from, size);
      left_ = (__rdtsc() - start) * 8 > size * kSlowTicksPer8Bytes ? kAWhile : 0;
      return;
    }
#endif
    std::memcpy(to, from, size);
  }

#if defined(__SSE2__)
  // For any size and alignment. The fence orders it: a reader that sees a later store of this
  // thread sees these bytes as well.
  static void around_caches(std::byte* to, const std::byte* from, std::size_t size) {
    const std::size_t head = -reinterpret_cast<std::uintptr_t>(to) % kLine;
    if (size < head + kLine) {
      std::memcpy(to, from, size);
      return;
    }
    std::memcpy(to, from, head);
    std::size_t at = head;
    for (; at + kLine <= size; at += kLine) {
      const auto* source = reinterpret_cast<const __m128i*>(from + at);
      auto* target = reinterpret_cast<__m128i*>(to + at);
      const __m128i first = _mm_loadu_si128(source);
      const __m128i second = _mm_loadu_si128(source + 1);
      const __m128i third = _mm_loadu_si128(source + 2);
      const __m128i fourth = _mm_loadu_si128(source + 3);
      _mm_stream_si128(target, first);
      _mm_stream_si128(target + 1, second);
      _mm_stream_si128(target + 2, third);
      _mm_stream_si128(target + 3, fourth);
    }
    _mm_sfence();
    std::memcpy(to + at, from + at, size - at);
  }
#endif

 private:
  static constexpr std::size_t kLine = 64;
  // Below this the measurement costs more than the choice can save.
  static constexpr std::size_t kWorthIt = 2048;
  static constexpr std::size_t kAWhile = std::size_t{1} << 20;
  // The counter ticks 2 to 4 times a nanosecond, so the limit lies at 3 to 6 GB/s. An ordinary copy
  // reaches 15 GB/s and more within a cache, and about 2 GB/s between caches.
  static constexpr std::uint64_t kSlowTicksPer8Bytes = 5;

  std::size_t left_ = 0;  // bytes to copy around the caches
};

}  // namespace weft::srd
