// Owns the proof of what a short message gains that does not wait for a credit, and of what many
// of them to one receiver cost: him, their senders, and those beside him.
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "tests/sim/run_scenario.hpp"

namespace weft::sim {
namespace {

RunResult incast(const std::string& senders, const std::string& bytes,
                 const std::string& mtu = "4096") {
  return run(R"(
topology: {generator: fat-tree, hosts: 1024, ecn_last_hop: false}
traffic: {kind: incast, receiver: 0}
)",
             {{"traffic.senders", senders}, {"traffic.bytes", bytes}, {"mtu", mtu}});
}

double again(const RunResult& result) {
  return static_cast<double>(result.transport.retransmitted) /
         static_cast<double>(result.transport.new_packets);
}

// To a receiver of which nothing is known: as soon as without credits, which take a round trip.
TEST(ShortMessage, LeavesForAStrangerWithoutACredit) {
  constexpr const char* kPermutation = R"(
topology: {generator: fat-tree, hosts: 16}
traffic: {kind: permutation}
transport: {paths: 16}
)";
  for (const char* bytes : {"4000", "16000", "32000"}) {
    const std::pair<std::string, std::string> size{"traffic.bytes", bytes};
    const RunResult without = run(kPermutation, {size, {"transport.receiver_credits", "false"}});
    EXPECT_LT(run(kPermutation, {size}).makespan_us, 1.05 * without.makespan_us) << bytes;
  }
}

// Many begin at once, and most of what they send is cut on the last link: that costs headers.
TEST(ShortMessage, CostsHardlyMoreThanItsBytesIfManyLeave) {
  for (const char* senders : {"15", "127", "1023"}) {
    const RunResult result = incast(senders, "32000");
    EXPECT_LT(result.ratio, 1.15) << senders;
    EXPECT_LT(again(result), 1.1) << senders;
    EXPECT_EQ(result.transport.timeouts, 0U) << senders;
  }
}

// The longest ones, of eight packets, also where headers are a large part of a packet, so that they
// fill the queue of headers: nearly all is cut, once.
TEST(ShortMessage, IsReportedIfItIsCutAndLeavesAgainOnce) {
  for (const auto& [mtu, bytes] : {std::pair{"512", "3584"}, {"1024", "7680"}, {"4096", "32256"}}) {
    const RunResult result = incast("1023", bytes, mtu);
    EXPECT_LT(result.ratio, 1.25) << mtu;
    EXPECT_LT(again(result), 1.1) << mtu;
    EXPECT_EQ(result.transport.timeouts, 0U) << mtu;
    EXPECT_LT(result.transport.paths_abandoned, 1023U * 16 / 50) << "they are alive, " << mtu;
  }
}

// Two packets leave of each at once, and the rest as it is granted.
TEST(LongerMessage, IsHardlyEverSentAgain) {
  for (const char* mtu : {"512", "1024", "4096"}) {
    for (const char* bytes : {"40000", "80000", "90000"}) {
      const RunResult result = incast("1023", bytes, mtu);
      EXPECT_LT(result.ratio, 1.05) << mtu << " " << bytes;
      EXPECT_LT(again(result), 0.25) << mtu << " " << bytes;
      EXPECT_EQ(result.transport.timeouts, 0U) << mtu << " " << bytes;
      EXPECT_LE(result.transport.paths_abandoned, 10U) << mtu << " " << bytes;
    }
  }
}

}  // namespace
}  // namespace weft::sim
