// Owns the tests of blocks of loopback addresses (127.N.0.0/16): no two networks have the same, and
// one that is started again has its former one.
//
// The blocks are those of this machine: networks beside the test may have some, or take one at any
// moment. So the tests leave room, and name none but the ones that they hold.
#include "emu/daemon/address_block.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <vector>

#include "tests/support/temporary_folder.hpp"

namespace weft::daemon {
namespace {

// N of 127.N.0.0/16.
unsigned number_of(const AddressBlock& block) { return block.prefix()[1]; }

TEST(AddressBlock, NoTwoAreTheSame) {
  const testing::TemporaryFolder folder;
  std::vector<AddressBlock> all;
  std::set<unsigned> numbers;
  for (int i = 0; i < 40; ++i) {
    auto block = AddressBlock::take(folder.path());
    ASSERT_TRUE(block) << block.error().message;
    EXPECT_EQ(block->prefix()[0], 127);
    EXPECT_NE(number_of(*block), 77U);  // networks that are joined have it in common
    EXPECT_TRUE(numbers.insert(number_of(*block)).second);
    all.push_back(std::move(*block));
  }
}

TEST(AddressBlock, IsFreeAgainWhenItsNetworkEnds) {
  const testing::TemporaryFolder folder;
  // Several end at once, and the last one is asked for again: a network that starts elsewhere on
  // this machine in that moment takes the first that is free.
  std::vector<AddressBlock> all;
  for (int i = 0; i < 8; ++i) {
    auto block = AddressBlock::take(folder.path());
    ASSERT_TRUE(block);
    all.push_back(std::move(*block));
  }
  const unsigned number = number_of(all.back());
  all.back().remember(folder.path());
  const auto beside = AddressBlock::take(folder.path());
  ASSERT_TRUE(beside);
  EXPECT_NE(number_of(*beside), number);
  all.clear();
  const auto again = AddressBlock::take(folder.path());
  ASSERT_TRUE(again);
  EXPECT_EQ(number_of(*again), number);
}

// A number that no block may have, also one that a conversion to fewer bits would make good, is as
// if nothing was remembered.
TEST(AddressBlock, NonsenseThatIsRememberedDoesNoHarm) {
  for (const char* text :
       {"", "x", "-1", "0", "77", "255", "4294967373", "999999999999999999999"}) {
    const testing::TemporaryFolder folder;
    std::ofstream(folder.path() + "/block") << text;
    const auto block = AddressBlock::take(folder.path());
    ASSERT_TRUE(block) << text;
    EXPECT_GE(number_of(*block), AddressBlock::kFirst);
    EXPECT_LE(number_of(*block), AddressBlock::kLast);
  }
}

}  // namespace
}  // namespace weft::daemon
