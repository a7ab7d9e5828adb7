// Owns the proof that a copy around the caches is a copy, and nothing but.
#include "srd/io/ring_copy.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "srd/base/rng.hpp"

namespace weft::srd {
namespace {

// A jumbo frame, the largest that is ever copied.
constexpr std::size_t kMax = 9000;
constexpr std::byte kUntouched{0xA5};

std::vector<std::byte> noise(std::size_t size) {
  Rng rng(7);
  std::vector<std::byte> bytes(size);
  std::ranges::generate(bytes, [&] { return static_cast<std::byte>(rng.next()); });
  return bytes;
}

template <class Copy>
void check(const Copy& copy, std::size_t size, std::size_t from, std::size_t to) {
  static const std::vector<std::byte> source = noise(kMax + 128);
  std::vector<std::byte> target(kMax + 256, kUntouched);
  copy(target.data() + 64 + to, source.data() + from, size);
  const auto begin = target.begin() + static_cast<std::ptrdiff_t>(64 + to);
  const auto end = begin + static_cast<std::ptrdiff_t>(size);
  EXPECT_TRUE(std::equal(begin, end, source.begin() + static_cast<std::ptrdiff_t>(from)));
  EXPECT_EQ(std::count(target.begin(), begin, kUntouched), begin - target.begin());
  EXPECT_EQ(std::count(end, target.end(), kUntouched), target.end() - end);
}

#if defined(__SSE2__)
TEST(RingCopy, GoesAroundCachesForEveryAlignmentAndSize) {
  for (std::size_t size : {0, 1, 63, 64, 65, 127, 128, 129, 200, 2048, 4095, 8192}) {
    for (std::size_t to = 0; to<64; to += size> 200 ? 7 : 1) {
      // Aligned, off by one, behind a frame's headers, and the last byte of a cache line.
      for (const std::size_t from : {0, 1, 22, 63}) {
        SCOPED_TRACE(::testing::Message() << size << " bytes from " << from << " to " << to);
        check(RingCopy::around_caches, size, from, to);
      }
    }
  }
}
#endif

// Whichever way it takes: a slow moment of the machine makes it change.
TEST(RingCopy, CopiesWhateverItMeasures) {
  RingCopy copy;
  for (int round = 0; round < 2000; ++round) {
    check([&](std::byte* to, const std::byte* from, std::size_t size) { copy(to, from, size); },
          round % 3 == 0 ? 8192 : 2048 + static_cast<std::size_t>(round), round % 64, round % 61);
  }
}

}  // namespace
}  // namespace weft::srd
