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
// (another group of cores of an EPYC, another socket, and where a hypervisor moves virtual ones
// there), each line that is written has to be fetched from the reader's cache first, and the copy
// takes eight times as long; stores that go around the caches do not. Which it is may change at any
// moment, so it is measured: whoever finds an ordinary copy slow goes around the caches for a
// while.
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
  // For any size and alignment. Done, for whoever sees a later store, when it returns.
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
  static constexpr std::size_t kWorthIt = 2048;
  static constexpr std::size_t kAWhile = std::size_t{1} << 20;
  // Counters tick 2 to 4 times a nanosecond: 3 to 6 GB/s. Ordinary copies reach 15 and more, or 2.
  static constexpr std::uint64_t kSlowTicksPer8Bytes = 5;

  std::size_t left_ = 0;  // bytes to copy around the caches
};

}  // namespace weft::srd
