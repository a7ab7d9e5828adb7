// Tests that soft-RoCE devices refuse what Linux refuses, and as it does, by a program of ours that
// uses libibverbs as others do.
#include <string>

#include "tests/conformance/run_weft.hpp"

namespace weft::testing {
namespace {

class RxeRefusals : public ::testing::TestWithParam<const char*> {};

TEST_P(RxeRefusals, AreThoseOfTheKernel) {
  WEFT_NEEDS_BUILT(WEFT_VERBS_REFUSALS, "libibverbs-dev");
  const Outcome outcome =
      run_weft("--device rxe -- " WEFT_VERBS_REFUSALS " " + std::string(GetParam()), 250);
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_TRUE(outcome.says(", 0 wrong")) << outcome.output;
}

INSTANTIATE_TEST_SUITE_P(All, RxeRefusals,
                         ::testing::Values("states", "objects", "requests", "keys", "windows",
                                           "events"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace weft::testing
