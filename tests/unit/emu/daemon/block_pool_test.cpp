// Owns what the pool of blocks promises: low blocks first, and memory that goes back.
#include "emu/daemon/block_pool.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <vector>

#include "srd/base/rng.hpp"

namespace weft::daemon {
namespace {

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
    EXPECT_LE(full, 256 * (100'000U + 2 * BlockPool::kSlabBlocks));
    // What stays of a flood leaves one by one, while a few others come and go.
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
