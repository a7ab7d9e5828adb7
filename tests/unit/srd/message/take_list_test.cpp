// Owns the test of the list from whose middle things are taken: receives by their tags, in the
// order in which they came. It must do what a vector does, and faster.
#include "srd/message/take_list.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "srd/base/rng.hpp"

namespace weft::srd::message {
namespace {

TEST(TakeList, RefusesBeyondItsLimit) {
  TakeList<int> list(2);
  EXPECT_TRUE(list.push(1));
  EXPECT_TRUE(list.push(2));
  EXPECT_FALSE(list.push(3));
  EXPECT_EQ(list.take_first([](int) { return true; }), 1);
  EXPECT_TRUE(list.push(3));
}

TEST(TakeList, FindsNothingInAnEmptyOne) {
  TakeList<int> list(2);
  EXPECT_EQ(list.take_first([](int) { return true; }), std::nullopt);
}

TEST(TakeList, AgreesWithAVector) {
  Rng rng(5);
  TakeList<std::uint64_t> list(1000);
  std::vector<std::uint64_t> model;
  for (int step = 0; step < 20000; ++step) {
    if (rng.between(0, 100) == 0) {
      const std::uint64_t wanted = rng.between(0, 20);
      const auto is_wanted = [&](std::uint64_t value) { return value % 7 == wanted % 7; };
      std::vector<std::uint64_t> taken;
      list.take_all(is_wanted, [&](std::uint64_t value) { taken.push_back(value); });
      std::vector<std::uint64_t> expected;
      std::ranges::copy_if(model, std::back_inserter(expected), is_wanted);
      ASSERT_EQ(taken, expected);
      std::erase_if(model, is_wanted);
    } else if (rng.between(0, 1) == 0 && model.size() < 1000) {
      const std::uint64_t value = rng.between(0, 20);
      ASSERT_TRUE(list.push(value));
      model.push_back(value);
    } else {
      const std::uint64_t wanted = rng.between(0, 20);
      // Values come in pairs, so that often several are wanted, and the first must be taken.
      const auto is_wanted = [&](std::uint64_t value) { return value / 2 == wanted / 2; };
      const auto taken = list.take_first(is_wanted);
      const auto expected = std::ranges::find_if(model, is_wanted);
      ASSERT_EQ(taken.has_value(), expected != model.end());
      if (taken) {
        ASSERT_EQ(*taken, *expected);
        model.erase(expected);
      }
    }
    ASSERT_EQ(list.size(), model.size());
  }
}

}  // namespace
}  // namespace weft::srd::message
