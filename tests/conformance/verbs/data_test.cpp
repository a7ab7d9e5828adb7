// Tests that every byte of RDMA operations between soft-RoCE devices arrives where it belongs,
// once, by a program of ours that uses libibverbs as others do.
#include <string>

#include "tests/conformance/run_weft.hpp"

namespace weft::testing {
namespace {

Outcome run_data(const std::string& network, const std::string& more = "") {
  const std::string words = WEFT_VERBS_DATA " " + own_port();
  return run_weft(
      "--device rxe " + network + "-- " + words + more + " : " + words + " {h1.ip}" + more, 150);
}

TEST(RxeData, EveryByteArrives) {
  WEFT_NEEDS_BUILT(WEFT_VERBS_DATA, "libibverbs-dev");
  const Outcome outcome = run_data("");
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_TRUE(outcome.says("atomics: all right")) << outcome.output;
}

TEST(RxeData, EveryByteArrivesThroughATroubledNetwork) {
  WEFT_NEEDS_BUILT(WEFT_VERBS_DATA, "libibverbs-dev");
  const Outcome outcome = run_data("--topology " WEFT_LEAF_SPINE
                                   " --fault 'link: tor0-*, loss: 0.01, duplication: 0.01, "
                                   "reordering: 0.01, reorder_delay: 50us' ",
                                   " lossy");
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_TRUE(outcome.says("atomics: all right")) << outcome.output;
  EXPECT_TRUE(outcome.says("(loss ")) << "nothing was lost\n" << outcome.output;
}

}  // namespace
}  // namespace weft::testing
