// Owns the tests of strong ids.
#include "srd/base/ids.hpp"

#include <gtest/gtest.h>

#include <concepts>
#include <cstdint>
#include <type_traits>
#include <unordered_set>

namespace weft {
namespace {

// Two kinds of ids with the same representation: what must not compile is said below in the only
// form that a test can have.
using Apple = Id<struct AppleTag, std::uint16_t>;
using Pear = Id<struct PearTag, std::uint16_t>;

static_assert(!std::is_convertible_v<Apple, Pear> && !std::is_convertible_v<Pear, Apple>);
static_assert(!std::is_convertible_v<std::uint16_t, Apple>, "must be named");
static_assert(!std::is_convertible_v<Apple, std::uint16_t>);
static_assert(!std::equality_comparable_with<Apple, Pear>);
static_assert(sizeof(Apple) == sizeof(std::uint16_t) && std::is_trivially_copyable_v<Apple>);

TEST(Ids, CompareByValueAndHash) {
  // Comparison with the own kind, and a hash, are all that containers need.
  EXPECT_EQ(Apple{}, Apple{0});
  EXPECT_LT(Apple{3}, Apple{4});
  EXPECT_EQ(Apple{65535}.value(), 65535);
  const std::unordered_set<Apple> basket{Apple{1}, Apple{2}, Apple{1}};
  EXPECT_EQ(basket.size(), 2U);
  EXPECT_TRUE(basket.contains(Apple{2}));
}

}  // namespace
}  // namespace weft
