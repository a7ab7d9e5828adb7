// Owns the tests of the always-on check and of Result.
#include "srd/base/check.hpp"

#include <gtest/gtest.h>

#include "srd/base/result.hpp"

namespace weft {
namespace {

// A user who reports a crash has only this line: it must lead to the place without a debugger.
TEST(CheckDeathTest, FailedCheckNamesExpressionAndPlace) {
  const int value = 3;
  EXPECT_DEATH(WEFT_CHECK(value == 4), "weft: check failed: value == 4 at .*check_test.cpp:[0-9]+");
}

// The expression may have side effects, so the macro must not name it a second time for its
// message.
TEST(Check, HoldingCheckEvaluatesOnce) {
  int evaluated = 0;
  WEFT_CHECK(++evaluated == 1);
  EXPECT_EQ(evaluated, 1);
}

// A macro that ended in a statement of its own would take the `else` away from this `if`.
TEST(Check, IsOneStatement) {
  bool reached = false;
  if (reached)
    WEFT_CHECK(false);
  else
    reached = true;
  EXPECT_TRUE(reached);
}

TEST(Result, CarriesValueOrError) {
  const auto half = [](int value) -> Result<int> {
    if (value % 2 != 0) {
      return fail(ErrorCode::invalid_argument, "odd: " + std::to_string(value));
    }
    return value / 2;
  };
  ASSERT_TRUE(half(8).has_value());
  EXPECT_EQ(*half(8), 4);
  ASSERT_FALSE(half(7).has_value());
  EXPECT_EQ(half(7).error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(half(7).error().message, "odd: 7");
}

}  // namespace
}  // namespace weft
