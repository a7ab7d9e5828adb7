// Owns the proof that copies in a certain order copy every byte and no other.
#include "srd/base/line_copy.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "srd/base/rng.hpp"

namespace weft {
namespace {

// What the target holds before the copy, and around it after.
constexpr std::byte kBlank{0x5A};

template <class Copy>
void expect_exact(Copy copy) {
  Rng rng(1);
  alignas(kLineBytes) std::array<std::byte, 6 * kLineBytes> to;
  std::array<std::byte, to.size()> from;
  std::ranges::generate(from, [&] { return static_cast<std::byte>(rng.next()); });
  // Every offset within a line and every length up to several lines: beginnings and ends that are
  // not whole words or lines have code of their own. The source is anywhere, because only the
  // target's alignment counts.
  for (std::size_t offset = 0; offset < 2 * kLineBytes; ++offset) {
    for (std::size_t length = 1; length <= to.size() - offset; ++length) {
      to.fill(kBlank);
      const std::byte* const source =
          from.data() + rng.below(static_cast<std::uint32_t>(from.size() - length + 1));
      copy(to.data() + offset, source, length);
      std::array<std::byte, to.size()> expected;
      expected.fill(kBlank);
      std::copy_n(source, length, expected.begin() + static_cast<std::ptrdiff_t>(offset));
      ASSERT_EQ(to, expected) << length << " bytes at " << offset;
    }
  }
}

TEST(LineCopy, CopiesEveryByteOfLinesAndNoOther) { expect_exact(copy_lines); }
TEST(LineCopy, CopiesEveryByteWithTheEndLastAndNoOther) { expect_exact(copy_end_last); }

}  // namespace
}  // namespace weft
