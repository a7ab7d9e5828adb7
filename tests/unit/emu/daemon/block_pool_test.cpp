// Owns the tests of the pool of blocks: no block is given out twice, and memory that is not needed
// any more goes back to the system.
#include "emu/daemon/block_pool.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <vector>

#include "srd/base/rng.hpp"

namespace weft::daemon {
namespace {

// More blocks than five slabs have. Each is filled with its own byte first, and all are compared
// only then.
TEST(BlockPool, BlocksDoNotOverlap) {
  BlockPool pool(100);
  std::vector<std::uint32_t> blocks;
  for (int i = 0; i < 3000; ++i) {
    blocks.push_back(pool.allocate());
    std::memset(pool.at(blocks.back()), i & 0xFF, 100);
  }
  for (int i = 0; i < 3000; ++i) {
    for (int at = 0; at < 100; ++at) {
      ASSERT_EQ(pool.at(blocks[static_cast<std::size_t>(i)])[at], std::byte(i & 0xFF)) << i;
    }
  }
  EXPECT_EQ(std::set(blocks.begin(), blocks.end()).size(), 3000U);
}

// A slab goes back only when all of its blocks are free. Blocks are released in random order, so
// that some of each slab stay until late: memory follows the need only if new blocks are taken from
// low slabs and the later ones become empty.
TEST(BlockPool, WhateverIsReleasedLastMemoryFollowsTheNeed) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    Rng rng(seed);
    BlockPool pool(256);
    std::vector<std::uint32_t> blocks;
    const auto shuffle_to = [&](std::size_t count) {
      while (blocks.size() > count) {
        std::swap(blocks[rng.below(static_cast<std::uint32_t>(blocks.size()))], blocks.back());
        pool.release(blocks.back());
        blocks.pop_back();
      }
      while (blocks.size() < count) {
        blocks.push_back(pool.allocate());
      }
    };
    shuffle_to(100'000);
    const std::size_t full = pool.memory();
    EXPECT_LE(full, 256 * (100'000U + 2 * BlockPool::kSlabBlocks));  // two slabs more at the most
    // The blocks of a flood leave, a tenth at a time, while 50 others come and go.
    for (std::size_t left = 100'000; left > 100; left -= left / 10 + 1) {
      shuffle_to(left);
      shuffle_to(left + 50);
    }
    shuffle_to(0);
    shuffle_to(100);
    EXPECT_LE(pool.memory(), 256 * 2 * std::size_t{BlockPool::kSlabBlocks});
    EXPECT_EQ(pool.used(), 100U);
    shuffle_to(5000);
    EXPECT_EQ(std::set(blocks.begin(), blocks.end()).size(), 5000U);
  }
}

}  // namespace
}  // namespace weft::daemon
