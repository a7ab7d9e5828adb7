// Tests that processes may be killed, stopped and started again under load: right completion codes,
// no hang, no crash, nothing lost or doubled among the living, nothing leaks.
#include "tests/conformance/run_weft.hpp"

namespace weft::testing {
namespace {

struct Storm {
  const char* name;
  const char* arguments;
  const char* peers;
  const char* rounds;
};
class Storms : public ::testing::TestWithParam<Storm> {};

TEST_P(Storms, DisturbOnlyWhoIsHit) {
  WEFT_NEEDS_BUILT(WEFT_STORM, "libibverbs-dev with EFA")
  const Storm& storm = GetParam();
  const std::string seed = std::to_string(20250101 + std::string(storm.name).size());
  const Outcome outcome = run_weft(std::string(storm.arguments) + " -- " WEFT_STORM " " +
                                       storm.peers + " " + storm.rounds + " " + seed,
                                   110);
  EXPECT_EQ(outcome.code, 0) << "seed " << seed << "\n" << outcome.output;
}

INSTANTIATE_TEST_SUITE_P(All, Storms,
                         ::testing::Values(Storm{"HundredRounds", "", "6", "100"},
                                           Storm{"OutOfOrder", "--device efa:reorder", "4", "40"},
                                           Storm{"ManyIntoOne", "", "72", "20"}),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace weft::testing
