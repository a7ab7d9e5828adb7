// Owns the proof of what a connection of the NCCL plugin costs in memory: operator new is counted
// in this program.
#include <gtest/gtest.h>

#include <cstdio>
#include <vector>

#include "tests/unit/integration/nccl/core_lab.hpp"

// Counted in counting_new.cpp, which replaces operator new.
extern std::size_t allocated_bytes;

namespace weft::testing {
namespace {

using nccl::CommRegion;
using nccl::Core;
using nccl::Outcome;
using nccl::ReceiveComm;
using nccl::Request;
using nccl::SendComm;

// What malloc adds to a block at the most: its header, and rounding up to 16 bytes.
constexpr std::size_t kRounding = 32;
// A vector or a table that grows has room for twice as many as there are.
constexpr std::size_t kGrowth = 2;

// Both have one region: NCCL registers one buffer for a connection.
constexpr std::size_t kRegion = sizeof(CommRegion) + sizeof(void*) + 2 * kRounding;
constexpr std::size_t kSendEnd = sizeof(SendComm) +
                                 SendComm::kMaxWaiting * sizeof(SendComm::Waiting) + 2 * kRounding +
                                 kGrowth * sizeof(void*) + kRegion;
// The key by which the partner reaches the region is an entry of the engine's table: the region and
// a generation.
constexpr std::size_t kReceiveEnd = sizeof(ReceiveComm) + kRounding + kGrowth * sizeof(void*) +
                                    kRegion +
                                    kGrowth * (sizeof(srd::Region) + sizeof(std::uint64_t));

struct Pair {
  NcclLab::Connection ends;
  CommRegion* out = nullptr;
  CommRegion* in = nullptr;
};

class ConnectionMemory : public ::testing::Test {
 protected:
  ConnectionMemory() : lab_(2), out_(kSize), in_(kSize) {}

  Pair open() {
    Pair made{.ends = lab_.connect(0, 1)};
    made.out = *lab_.core(0).register_memory(*made.ends.sender, out_.data(), kSize);
    made.in = *lab_.core(1).register_memory(*made.ends.receiver, in_.data(), kSize);
    return made;
  }
  // As many messages as an end may have under way.
  void use(const Pair& pair) {
    std::vector<Request*> requests;
    for (std::uint32_t i = 0; i < nccl::Immediate::kSlots; ++i) {
      const nccl::Buffer buffer{in_.data(), 64, 0, pair.in};
      Request* request = nullptr;
      EXPECT_EQ(lab_.core(1).receive(*pair.ends.receiver, {&buffer, 1}, false, request),
                Outcome::ok);
      requests.push_back(request);
      EXPECT_EQ(lab_.core(0).send(*pair.ends.sender, out_.data(), 64, 0, pair.out, request),
                Outcome::ok);
      requests.push_back(request);
    }
    for (Request* const request : requests) {
      ASSERT_NE(request, nullptr);
      EXPECT_TRUE(lab_.run_until([&] { return ended(request) == Outcome::ok; }));
    }
  }
  void close(const Pair& pair) {
    EXPECT_TRUE(lab_.core(0).deregister(*pair.ends.sender, pair.out));
    EXPECT_TRUE(lab_.core(1).deregister(*pair.ends.receiver, pair.in));
    lab_.core(0).close(*pair.ends.sender);
    lab_.core(1).close(*pair.ends.receiver);
    lab_.run_for(100ms);
  }

  static constexpr std::size_t kSize = 4096;
  NcclLab lab_;
  std::vector<std::byte> out_;
  std::vector<std::byte> in_;
};

// What the first connections need once, for a peer and for the most that was ever under way, is
// there before the count.
TEST_F(ConnectionMemory, IsTheTwoEndsAndNothingElse) {
  constexpr std::size_t kConnections = 256;
  std::vector<Pair> pairs;
  pairs.reserve(2 * kConnections);
  for (std::size_t i = 0; i < 16; ++i) {
    pairs.push_back(open());
    use(pairs.back());
  }
  const std::size_t before = allocated_bytes;
  for (std::size_t i = 0; i < kConnections; ++i) {
    pairs.push_back(open());
    use(pairs.back());
  }
  const std::size_t each = (allocated_bytes - before) / kConnections;
  RecordProperty("bytes_of_both_ends", static_cast<int>(each));
  std::printf(
      "a connection: %zu bytes at both ends; its sending end has %zu, its receiving end %zu\n",
      each, sizeof(SendComm), sizeof(ReceiveComm));
  EXPECT_GE(each, sizeof(SendComm) + sizeof(ReceiveComm));  // or nothing was counted
  EXPECT_LE(each, kSendEnd + kReceiveEnd);
}

TEST_F(ConnectionMemory, IsGivenBack) {
  constexpr std::size_t kRounds = 400;
  for (std::size_t i = 0; i < kRounds; ++i) {
    const Pair pair = open();
    use(pair);
    close(pair);
  }
  const std::size_t before = allocated_bytes;
  for (std::size_t i = 0; i < kRounds; ++i) {
    const Pair pair = open();
    use(pair);
    close(pair);
  }
  EXPECT_LT(allocated_bytes, before + sizeof(ReceiveComm));  // not even the memory of one end
}

}  // namespace
}  // namespace weft::testing
