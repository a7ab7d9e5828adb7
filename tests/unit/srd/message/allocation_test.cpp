// Owns the proof that messages cost no allocation once everything has been used before.
#include <gtest/gtest.h>

#include <array>
#include <cstddef>

#include "srd/base/prefetch.hpp"
#include "tests/support/message_lab.hpp"

// Counted in counting_new.cpp, which replaces operator new.
extern std::size_t allocations;

namespace weft::testing {
namespace {

using srd::PostResult;

// What the messengers are asked to do is counted; the virtual network between them is not.
class Allocation : public ::testing::TestWithParam<std::size_t> {};

TEST_P(Allocation, HappensOnlyBeforeEverythingIsWarm) {
  MessageLabConfig config = message_lab_config();
  config.link.jitter = 10us;  // so that some come too early
  MessageLab lab(2, config);
  const srd::MessageAddress there = lab[0].address(lab[1]);
  Bytes8 out(GetParam());
  Bytes8 in(GetParam());
  std::array<srd::MessageCompletion, 64> done;
  std::size_t received = 0;
  std::size_t counted = 0;
  const auto count = [&](const auto& work) {
    const std::size_t before = allocations;
    work();
    counted += allocations - before;
  };
  const auto post = [&] {
    for (std::uint64_t i = 0; i < 32; ++i) {
      // Half of them are expected.
      if (i % 2 == 0) {
        ASSERT_EQ(lab[1].messenger().post_receive({.data = in, .tag = i}), PostResult::accepted);
      }
      ASSERT_EQ(lab[0].messenger().post_send({.to = there, .data = out, .tag = i}),
                PostResult::accepted);
    }
  };
  const auto progress = [&](int step) {
    lab[0].messenger().progress();
    lab[1].messenger().progress();
    if (step == 30) {
      for (std::uint64_t i = 1; i < 32; i += 2) {
        ASSERT_EQ(lab[1].messenger().post_receive({.data = in, .tag = i}), PostResult::accepted);
      }
    }
    (void)lab[0].messenger().poll(done);
    received += lab[1].messenger().poll(done);
  };
  const auto exchange = [&] {
    for (int batch = 0; batch < 50; ++batch) {
      count(post);
      for (int step = 0; step < 60; ++step) {
        lab.world().run_until(lab.world().now() + 5us);
        count([&] { progress(step); });
      }
    }
  };
  // The first round fills all free lists; the second must do with them.
  exchange();
  EXPECT_GT(counted, 0U) << "or nothing is counted";
  counted = 0;
  exchange();
  EXPECT_EQ(counted, 0U);
  EXPECT_EQ(received, 2U * 50 * 32);
  EXPECT_GT(lab[1].messenger().counters().out_of_order, 0U);
  EXPECT_GT(lab[1].messenger().counters().unexpected, 0U);
}

INSTANTIATE_TEST_SUITE_P(SmallAndLarge, Allocation, ::testing::Values(0, 100, 5000));

// Without this a counter that the linker left out would prove everything.
TEST(AllocationCounter, CountsAtAll) {
  struct alignas(kCacheLine) Line {};
  const std::size_t before = allocations;
  Bytes8 memory(1000);
  EXPECT_EQ(allocations - before, 1U);
  EXPECT_EQ(memory.size(), 1000U);
  const std::vector<Line> lines(3);
  EXPECT_EQ(allocations - before, 2U) << "what fills cache lines has an operator new of its own";
}

}  // namespace
}  // namespace weft::testing
