// Owns the tests of the memory table: nothing outside of a region, nothing with a key that is gone.
#include "srd/engine/memory_table.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "srd/base/rng.hpp"

namespace weft::srd {
namespace {

constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();
constexpr std::uint32_t kDomain = 7;
constexpr Access kRead = Access::remote_read;
constexpr Access kWrite = Access::remote_write;

// All regions have the same memory behind them: what is tested is which place a key and an address
// lead to, not what lies there.
class MemoryTableTest : public testing::Test {
 protected:
  RegionKey insert(std::uint64_t address, std::uint64_t length, Access access = kRead | kWrite,
                   std::uint32_t domain = kDomain) {
    const auto key = table_.insert({memory_.data(), address, length, access, domain});
    EXPECT_TRUE(key.has_value()) << key.error().message;
    return *key;
  }
  [[nodiscard]] MemoryTable::Lookup resolve(RegionKey key, std::uint64_t address,
                                            std::uint64_t length, Access wanted = kRead,
                                            std::uint32_t domain = kDomain) const {
    return table_.resolve(key, address, length, wanted, domain);
  }
  [[nodiscard]] Status status(RegionKey key, std::uint64_t address, std::uint64_t length,
                              Access wanted = kRead, std::uint32_t domain = kDomain) const {
    return resolve(key, address, length, wanted, domain).status;
  }

  std::array<std::byte, 4096> memory_{};
  MemoryTable table_;
};

TEST_F(MemoryTableTest, ResolvesEachByteToItsPlace) {
  const RegionKey key = insert(0x1000, 100);
  for (std::uint64_t offset = 0; offset < 100; ++offset) {
    const auto found = resolve(key, 0x1000 + offset, 100 - offset);
    ASSERT_EQ(found.status, Status::ok);
    EXPECT_EQ(found.data, memory_.data() + offset);
    EXPECT_EQ(found.placement, Placement::plain);
  }
}

TEST_F(MemoryTableTest, BoundsAreExact) {
  const RegionKey key = insert(0x1000, 100);
  EXPECT_EQ(status(key, 0x1000, 100), Status::ok);
  EXPECT_EQ(status(key, 0x1000, 101), Status::out_of_bounds);
  EXPECT_EQ(status(key, 0x1001, 100), Status::out_of_bounds);
  EXPECT_EQ(status(key, 0x0FFF, 1), Status::out_of_bounds);
  EXPECT_EQ(status(key, 0x0FFF, 2), Status::out_of_bounds);
  EXPECT_EQ(status(key, 0x1063, 1), Status::ok);
  EXPECT_EQ(status(key, 0x1064, 1), Status::out_of_bounds);
  EXPECT_EQ(status(key, 0, 1), Status::out_of_bounds);
}

// A check that adds address and length would wrap, and find an end that lies inside.
TEST_F(MemoryTableTest, WrapAroundFindsNothing) {
  const RegionKey key = insert(0x1000, 100);
  EXPECT_EQ(status(key, kMax, 1), Status::out_of_bounds);
  EXPECT_EQ(status(key, kMax, 0x1002), Status::out_of_bounds) << "would end inside";
  EXPECT_EQ(status(key, 0x1000, kMax), Status::out_of_bounds);
  EXPECT_EQ(status(key, 0x1001, kMax), Status::out_of_bounds) << "would end at its own beginning";
  EXPECT_EQ(status(key, kMax - 10, kMax), Status::out_of_bounds);
}

TEST_F(MemoryTableTest, RegionMayEndWithTheAddressSpace) {
  const RegionKey key = insert(kMax - 99, 100);
  EXPECT_EQ(resolve(key, kMax, 1).data, memory_.data() + 99);
  EXPECT_EQ(status(key, kMax, 2), Status::out_of_bounds);
  EXPECT_EQ(status(key, 0, 1), Status::out_of_bounds) << "what comes after the last address";
  EXPECT_FALSE(table_.insert({memory_.data(), kMax - 98, 100, kRead, kDomain}).has_value());
  EXPECT_EQ(status(insert(0, 100), 0, 100), Status::ok) << "from the first address";
}

// No byte is touched, so no address is wrong.
TEST_F(MemoryTableTest, LengthZeroNeedsKeyAndRightsOnly) {
  const RegionKey key = insert(0x1000, 100, kRead);
  EXPECT_EQ(status(key, 0x1000, 0), Status::ok);
  EXPECT_EQ(status(key, 0, 0), Status::ok);
  EXPECT_EQ(status(key, kMax, 0), Status::ok);
  EXPECT_EQ(status(key, 0x1000, 0, kWrite), Status::access_denied);
  EXPECT_EQ(status(key, 0x1000, 0, kRead, kDomain + 1), Status::bad_key);
  EXPECT_EQ(status(RegionKey{0}, 0x1000, 0), Status::bad_key);
}

// A program may register nothing, and gets a key for it.
TEST_F(MemoryTableTest, RegionWithoutBytes) {
  const auto key = table_.insert({nullptr, 0x1000, 0, kRead, kDomain});
  ASSERT_TRUE(key.has_value());
  EXPECT_EQ(status(*key, 0x1000, 0), Status::ok);
  EXPECT_EQ(status(*key, 0x1000, 1), Status::out_of_bounds);
}

TEST_F(MemoryTableTest, EachRightIsItsOwn) {
  // Three rights, in every combination, against every combination.
  for (unsigned granted = 0; granted < 8; ++granted) {
    const RegionKey key = insert(0, 10, static_cast<Access>(granted));
    for (unsigned wanted = 0; wanted < 8; ++wanted) {
      EXPECT_EQ(status(key, 0, 10, static_cast<Access>(wanted)),
                (granted & wanted) == wanted ? Status::ok : Status::access_denied)
          << granted << ' ' << wanted;
    }
  }
}

// bad_key comes before any other reason, so that nobody can find out what other domains have.
TEST_F(MemoryTableTest, AnotherDomainLearnsNothing) {
  const RegionKey key = insert(0, 10, Access::none);
  EXPECT_EQ(status(key, 0, 10, kRead, kDomain + 1), Status::bad_key);
  EXPECT_EQ(status(key, 1000, 10, kRead, kDomain + 1), Status::bad_key);
}

// Phantoms stand for memory in simulations of messages larger than any machine's.
TEST_F(MemoryTableTest, PhantomsAreCheckedButHaveNoBytes) {
  const auto key = table_.insert({nullptr, 0x1000, 1ULL << 40, kRead, kDomain, Placement::phantom});
  ASSERT_TRUE(key.has_value());
  const auto found = resolve(*key, 0x1000 + (1ULL << 39), 1ULL << 39);
  EXPECT_EQ(found.status, Status::ok);
  EXPECT_EQ(found.placement, Placement::phantom);
  EXPECT_EQ(found.data, nullptr);
  EXPECT_EQ(status(*key, 0x1000 + (1ULL << 39), (1ULL << 39) + 1), Status::out_of_bounds);
  EXPECT_EQ(status(*key, 0x1000, 1, kWrite), Status::access_denied);
}

TEST_F(MemoryTableTest, RegionNeedsMemory) {
  const auto key = table_.insert({nullptr, 0x1000, 10, kRead, kDomain});
  ASSERT_FALSE(key.has_value());
  EXPECT_EQ(key.error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(table_.size(), 0U);
}

TEST_F(MemoryTableTest, ErasedKeyIsGone) {
  const RegionKey key = insert(0, 10);
  EXPECT_NE(table_.find(key), nullptr);
  EXPECT_TRUE(table_.erase(key));
  EXPECT_EQ(table_.find(key), nullptr);
  EXPECT_EQ(status(key, 0, 10), Status::bad_key);
  EXPECT_FALSE(table_.erase(key)) << "twice";
  EXPECT_EQ(table_.size(), 0U);
}

// 256 indices rest before one is used again, and each use has another of 255 generations.
TEST_F(MemoryTableTest, KeyStaysInvalidForTheNext65280Regions) {
  const RegionKey first = insert(0, 10);
  table_.erase(first);
  std::unordered_set<std::uint32_t> keys{first.value()};
  for (int reuse = 1; reuse < 256 * 255; ++reuse) {
    const RegionKey key = insert(0, 10);
    ASSERT_TRUE(keys.insert(key.value()).second) << "reuse " << reuse;
    ASSERT_EQ(status(first, 0, 10), Status::bad_key) << "reuse " << reuse;
    ASSERT_FALSE(table_.erase(first));
    ASSERT_TRUE(table_.erase(key));
  }
  EXPECT_EQ(insert(0, 10), first) << "the generations are used up, as documented";
}

// A process that comes back registers the same memory in the same order.
TEST_F(MemoryTableTest, KeysOfOneLifeAreNotThoseOfTheNext) {
  constexpr std::uint32_t kRegions = 64;
  std::unordered_set<std::uint32_t> seen;
  std::size_t again = 0;
  for (std::uint64_t life = 1; life <= 200; ++life) {
    MemoryTable table(mix64(life));
    for (std::uint32_t i = 0; i < kRegions; ++i) {
      const auto key = table.insert({memory_.data(), 0, 10, kRead, kDomain});
      ASSERT_TRUE(key.has_value());
      EXPECT_LT(table.index_of(*key), kRegions);
      again += seen.insert(key->value()).second ? 0 : 1;
    }
  }
  EXPECT_LE(again, 20U) << "12800 of 2^24 numbers: five of them twice by chance";
}

// 24 bits are what a work request of EFA has room for.
TEST_F(MemoryTableTest, NoKeyIsZeroOrLongerThan24Bits) {
  for (int i = 0; i < 1000; ++i) {
    const RegionKey key = insert(0, 10);
    EXPECT_NE(key.value(), 0U);
    EXPECT_EQ(key.value() >> 24, 0U);
    table_.erase(key);
  }
  const RegionKey key = insert(0, 10);
  EXPECT_EQ(table_.find(RegionKey{key.value() | 0x01000000}), nullptr)
      << "upper bits are not ignored";
}

// A key with one wrong bit is what a damaged or a guessed key looks like.
TEST_F(MemoryTableTest, NeighbouringKeysFindNothing) {
  const RegionKey key = insert(0, 10);
  for (std::uint32_t bit = 0; bit < 32; ++bit) {
    EXPECT_EQ(status(RegionKey{key.value() ^ (1U << bit)}, 0, 10), Status::bad_key) << bit;
  }
  EXPECT_EQ(MemoryTable{}.find(key), nullptr);
}

TEST_F(MemoryTableTest, Holds65536Regions) {
  std::vector<RegionKey> keys;
  std::unordered_set<std::uint32_t> values;
  for (std::uint32_t i = 0; i < MemoryTable::kMaxRegions; ++i) {
    keys.push_back(insert(i, 1 + i % 4096));
    values.insert(keys.back().value());
  }
  EXPECT_EQ(values.size(), 65536U);
  EXPECT_EQ(table_.size(), 65536U);
  const auto one_more = table_.insert({memory_.data(), 0, 1, kRead, kDomain});
  ASSERT_FALSE(one_more.has_value());
  EXPECT_EQ(one_more.error().code, ErrorCode::out_of_resources);
  for (std::uint32_t i = 0; i < keys.size(); ++i) {
    ASSERT_EQ(table_.find(keys[i])->address, i);
    ASSERT_EQ(status(keys[i], i, 1 + i % 4096), Status::ok);
  }
  EXPECT_TRUE(table_.erase(keys[40'000]));
  const RegionKey again = insert(5, 5);
  EXPECT_NE(again, keys[40'000]);
  EXPECT_EQ(table_.index_of(again), table_.index_of(keys[40'000]));
}

// Against a map that is too simple to be wrong.
TEST_F(MemoryTableTest, RandomInsertEraseAndLookup) {
  for (const std::uint64_t seed : {1, 2, 3}) {
    Rng rng{seed};
    MemoryTable table;
    std::map<std::uint32_t, Region> model;
    std::vector<RegionKey> ever;
    for (int step = 0; step < 20'000; ++step) {
      if (rng.chance(0.4)) {
        const Region region{memory_.data(), rng.below(1000), 1 + rng.below(100),
                            static_cast<Access>(rng.below(8)), rng.below(3)};
        const auto key = table.insert(region);
        ASSERT_TRUE(key.has_value());
        ASSERT_TRUE(model.emplace(key->value(), region).second)
            << "seed " << seed << " step " << step;
        ever.push_back(*key);
      } else if (!ever.empty()) {
        const RegionKey key = ever[rng.below(static_cast<std::uint32_t>(ever.size()))];
        if (rng.chance(0.5)) {
          ASSERT_EQ(table.erase(key), model.erase(key.value()) == 1);
        }
        const std::uint64_t address = rng.below(1200);
        const std::uint64_t length = rng.below(120);
        const auto wanted = static_cast<Access>(rng.below(8));
        const std::uint32_t domain = rng.below(3);
        const auto found = model.find(key.value());
        Status expected = Status::ok;
        if (found == model.end() || found->second.domain != domain) {
          expected = Status::bad_key;
        } else if (!allows(found->second.access, wanted)) {
          expected = Status::access_denied;
        } else if (length != 0 &&
                   (address < found->second.address ||
                    address + length > found->second.address + found->second.length)) {
          expected = Status::out_of_bounds;
        }
        ASSERT_EQ(table.resolve(key, address, length, wanted, domain).status, expected)
            << "seed " << seed << " step " << step;
      }
      ASSERT_EQ(table.size(), model.size());
    }
  }
}

}  // namespace
}  // namespace weft::srd
