// Owns the proof that messages cost no allocation once everything has been used before.
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <new>

#include "tests/support/message_lab.hpp"

namespace {
// One thread, so plain variables do.
bool counting = false;
std::size_t allocations = 0;
}  // namespace

// Not inlined, or the compiler sees a malloc() that meets a delete.
[[gnu::noinline]] void* operator new(std::size_t size) {
  allocations += counting;
  void* const memory = std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) {
    throw std::bad_alloc{};
  }
  return memory;
}
// What is aligned more than usual: records that fill cache lines.
[[gnu::noinline]] void* operator new(std::size_t size, std::align_val_t alignment) {
  allocations += counting;
  void* memory = nullptr;
  if (::posix_memalign(&memory, static_cast<std::size_t>(alignment), size) != 0) {
    throw std::bad_alloc{};
  }
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}

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
  const auto exchange = [&](bool count) {
    for (int batch = 0; batch < 50; ++batch) {
      counting = count;
      for (std::uint64_t i = 0; i < 32; ++i) {
        // Half of them are expected.
        if (i % 2 == 0) {
          ASSERT_EQ(lab[1].messenger().post_receive({.data = in, .tag = i}), PostResult::accepted);
        }
        ASSERT_EQ(lab[0].messenger().post_send({.to = there, .data = out, .tag = i}),
                  PostResult::accepted);
      }
      counting = false;
      for (int step = 0; step < 60; ++step) {
        lab.world().run_until(lab.world().now() + 5us);
        counting = count;
        lab[0].messenger().progress();
        lab[1].messenger().progress();
        if (step == 30) {
          for (std::uint64_t i = 1; i < 32; i += 2) {
            ASSERT_EQ(lab[1].messenger().post_receive({.data = in, .tag = i}),
                      PostResult::accepted);
          }
        }
        (void)lab[0].messenger().poll(done);
        received += lab[1].messenger().poll(done);
        counting = false;
      }
    }
  };
  // The first round fills all free lists; the second must do with them.
  exchange(false);
  allocations = 0;
  exchange(true);
  EXPECT_EQ(allocations, 0U);
  EXPECT_EQ(received, 2U * 50 * 32);
  EXPECT_GT(lab[1].messenger().counters().out_of_order, 0U);
  EXPECT_GT(lab[1].messenger().counters().unexpected, 0U);
}

INSTANTIATE_TEST_SUITE_P(SmallAndLarge, Allocation, ::testing::Values(0, 100, 5000));

// Without this a counter that the linker left out would prove everything.
TEST(AllocationCounter, CountsAtAll) {
  allocations = 0;
  counting = true;
  Bytes8 memory(1000);
  counting = false;
  EXPECT_EQ(allocations, 1U);
  EXPECT_EQ(memory.size(), 1000U);
}

}  // namespace
}  // namespace weft::testing
