// Tests that processes may be killed, stopped and started again under load: right completion codes,
// no hang, no crash, nothing lost or doubled among the living, nothing leaks.
#include <ctime>

#include "tests/conformance/run_weft.hpp"

namespace weft::testing {
namespace {

// Another one each day. WEFT_STORM_SEED sets it.
std::string seed_of_the_day() {
  const char* const given = std::getenv("WEFT_STORM_SEED");
  return given != nullptr ? given : std::to_string(std::time(nullptr) / (24 * 3600));
}

// Six peers show all mistakes of the protocol; 72 are more than the target's receives, so that
// receivers are not ready; reordering makes late and doubled packets likely.
struct Storm {
  const char* name;
  const char* arguments;  // of weft run
  const char* peers;
  const char* rounds;
  const char* mode = "";
};
class Storms : public ::testing::TestWithParam<Storm> {};

TEST_P(Storms, DisturbOnlyWhoIsHit) {
  WEFT_NEEDS_BUILT(WEFT_STORM, "libibverbs-dev with EFA")
  const Storm& storm = GetParam();
  const std::string seed = seed_of_the_day();
  std::printf("WEFT_STORM_SEED=%s\n", seed.c_str());
  const Outcome outcome =
      run_weft(std::string(storm.arguments) + " -- " WEFT_STORM " " + storm.peers + " " +
                   storm.rounds + " " + seed + " " + storm.mode,
               110);
  EXPECT_EQ(outcome.code, 0) << "WEFT_STORM_SEED=" << seed << "\n" << outcome.output;
}

INSTANTIATE_TEST_SUITE_P(All, Storms,
                         ::testing::Values(Storm{"HundredRounds", "", "6", "100"},
                                           Storm{"OutOfOrder", "--device efa:reorder", "4", "40"},
                                           Storm{"ManyIntoOne", "", "72", "100"},
                                           Storm{"ReceiversNotReady", "", "16", "40", "impatient"}),
                         [](const auto& test) { return std::string(test.param.name); });

// weftd, through which everything goes, is killed and started again: the processes wait, and go on.
TEST(WeftdStorm, EndsNobody) {
  WEFT_NEEDS_BUILT(WEFT_STORM, "libibverbs-dev with EFA")
  const std::string seed = seed_of_the_day();
  const Outcome outcome = run_shell(
      "export XDG_RUNTIME_DIR=$(mktemp -d); at=$XDG_RUNTIME_DIR/weft-$(id -u); mkdir -m 700 $at; "
      "begin() { " WEFTD
      " --dir $at/one --hosts 1 --no-direct & d=$!; for i in $(seq 500); do " WEFT_PROGRAM
      " status one >/dev/null 2>&1 && break; sleep 0.02; done; }; begin; "
      "timeout 100 " WEFT_PROGRAM " exec one h1 -- " WEFT_STORM " 4 150 " +
      seed +
      " calm & storm=$!; for k in 1 2 3 4; do sleep 0.6; kill -9 $d; wait $d 2>/dev/null; begin; "
      "kill -0 $storm && echo lived through death $k; done; wait $storm; code=$?; kill $d; wait "
      "$d; "
      "rm -r $XDG_RUNTIME_DIR; exit $code");
  EXPECT_EQ(outcome.code, 0) << "WEFT_STORM_SEED=" << seed << "\n" << outcome.output;
  EXPECT_TRUE(outcome.says("lived through death 3")) << outcome.output;
}

}  // namespace
}  // namespace weft::testing
