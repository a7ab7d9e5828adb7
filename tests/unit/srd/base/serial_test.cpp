// Owns the tests of serial numbers, most of all where they wrap.
#include "srd/base/serial.hpp"

#include <gtest/gtest.h>

#include <array>
#include <concepts>
#include <cstdint>

namespace weft {
namespace {

// Of 8 bits, so that a test can go through all pairs.
using Small = Serial<struct SmallTag, std::uint8_t>;

static_assert(!std::totally_ordered<Psn>, "serial order is not transitive: no operator<");

TEST(Serial, OrdersEveryPairOfASmallSpace) {
  for (unsigned start = 0; start < 256; ++start) {
    const Small first{static_cast<std::uint8_t>(start)};
    EXPECT_FALSE(first.before(first));
    for (unsigned ahead = 1; ahead < 128; ++ahead) {
      const Small second = first.plus(static_cast<std::uint8_t>(ahead));
      EXPECT_TRUE(first.before(second)) << start << " + " << ahead;
      EXPECT_FALSE(second.before(first)) << start << " + " << ahead;
      EXPECT_EQ(second.minus(first), ahead);
    }
  }
}

TEST(Serial, PsnWraps) {
  const Psn last{0xFFFFFFFF};
  Psn next = last;
  ++next;
  EXPECT_EQ(next, Psn{0});
  EXPECT_TRUE(last.before(next));
  EXPECT_EQ(next.minus(last), 1U);
  // 2048 after 2^32 - 1 is 2047: as far as a window of packets may reach over the wrap.
  EXPECT_EQ(last.plus(2048).value(), 2047U);
  EXPECT_TRUE(Psn{0xFFFFFF00}.before(Psn{0x100}));
  EXPECT_FALSE(Psn{0x100}.before(Psn{0xFFFFFF00}));
}

// At half of the space "before" has no meaning any more; one less is still right in both
// directions.
TEST(Serial, LargestMeaningfulDistance) {
  for (const std::uint32_t start : std::array{0U, 1U, 0x7FFFFFFFU, 0x80000000U, 0xFFFFFFFFU}) {
    const Psn first{start};
    EXPECT_TRUE(first.before(first.plus(0x7FFFFFFF))) << start;
    EXPECT_FALSE(first.plus(0x7FFFFFFF).before(first)) << start;
  }
}

}  // namespace
}  // namespace weft
