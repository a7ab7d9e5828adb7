// Tests that every byte of RDMA operations between soft-RoCE devices arrives where it belongs,
// once, by a program of ours that uses libibverbs as others do.
#include <cstdlib>
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

constexpr const char* kTrouble =
    "--topology " WEFT_LEAF_SPINE
    " --fault 'link: tor0-*, loss: 0.001, duplication: 0.001, corruption: 0.001, reordering: 0.01, "
    "reorder_delay: 50us' ";

Outcome run_big(const std::string& network, const std::string& bytes, int seconds) {
  const std::string words = WEFT_VERBS_BIG " " + own_port() + " " + bytes;
  return run_weft("--device rxe " + network + "-- " + words + " : " + words + " {h1.ip}", seconds);
}

TEST(RxeData, LargeMessagesArriveWhole) {
  WEFT_NEEDS_BUILT(WEFT_VERBS_BIG, "libibverbs-dev");
  const Outcome outcome = run_big("", "67108869", 250);
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_TRUE(outcome.says("read of 67108869 bytes, path MTU 4096: all right")) << outcome.output;
}

TEST(RxeData, LargeMessagesArriveWholeThroughATroubledNetwork) {
  WEFT_NEEDS_BUILT(WEFT_VERBS_BIG, "libibverbs-dev");
  const Outcome outcome = run_big(kTrouble, "4000003", 250);
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_TRUE(outcome.says("read of 4000003 bytes, path MTU 4096: all right")) << outcome.output;
}

// Minutes of processor time and 4 GB of memory.
TEST(RxeData, AGigabyteArrivesWhole) {
  if (std::getenv("WEFT_LONG_TESTS") == nullptr) {
    GTEST_SKIP() << "set WEFT_LONG_TESTS=1 to move messages of 1 GB (4 GB of memory, minutes)";
  }
  WEFT_NEEDS_BUILT(WEFT_VERBS_BIG, "libibverbs-dev");
  const Outcome outcome = run_big("", "1073741824", 1200);
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_TRUE(outcome.says("read of 1073741824 bytes")) << outcome.output;
}

// What datagrams need of rdma-core's older libraries.
TEST(RxeData, TheEthernetAddressFollowsFromTheGid) {
  WEFT_NEEDS_BUILT(WEFT_VERBS_LINKS, "libibverbs-dev");
  const Outcome outcome = run_weft("-n 1 --no-prefix -q --device rxe -- " WEFT_VERBS_LINKS, 20);
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  std::size_t ours = 0;
  for (std::size_t at = 0; (at = outcome.output.find(" is 02:00:7f:", at)) != std::string::npos;
       ++at) {
    ++ours;
  }
  EXPECT_EQ(ours, 3U) << outcome.output;
  EXPECT_TRUE(outcome.says("::ffff:239.129.7.1 is 01:00:5e:01:07:01")) << outcome.output;
  EXPECT_TRUE(outcome.says("ff0e::1:203 is 33:33:00:01:02:03")) << outcome.output;
}

}  // namespace
}  // namespace weft::testing
