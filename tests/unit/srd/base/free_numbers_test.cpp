// Owns the tests of numbers that are given out.
#include "srd/base/free_numbers.hpp"

#include <gtest/gtest.h>

#include <set>

#include "srd/base/rng.hpp"

namespace weft {
namespace {

// Against a search for the lowest gap in a set. Programs see these numbers (handles, descriptors),
// and Linux gives the lowest one that is free.
TEST(FreeNumbers, GivesTheLowestThatIsFree) {
  FreeNumbers numbers;
  std::set<std::uint32_t> used;
  Rng rng{1};
  for (int i = 0; i < 20'000; ++i) {
    if (used.empty() || rng.next() % 3 != 0) {
      std::uint32_t lowest = 0;
      for (const std::uint32_t number : used) {
        if (number != lowest) {
          break;
        }
        ++lowest;
      }
      ASSERT_EQ(numbers.take(), lowest);
      used.insert(lowest);
      if (used.size() > 200) {  // the comparison is slow
        while (used.size() > 20) {
          const std::uint32_t some = *used.rbegin();
          used.erase(some);
          numbers.give_back(some);
        }
      }
    } else {
      auto some = used.begin();
      std::advance(some, static_cast<std::ptrdiff_t>(rng.next() % used.size()));
      numbers.give_back(*some);
      used.erase(some);
    }
    ASSERT_EQ(numbers.used(), used.size());
  }
}

}  // namespace
}  // namespace weft
