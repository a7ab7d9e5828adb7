// Tests that texts are joined with separators between them only.
#include "srd/base/joined.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace weft {
namespace {

TEST(Joined, SeparatesAlsoWhatIsEmpty) {
  EXPECT_EQ(joined(std::vector<std::string>{}, ", "), "");
  EXPECT_EQ(joined(std::vector<std::string>{"a"}, ", "), "a");
  EXPECT_EQ(joined(std::vector<const char*>{"", "a", "", "b"}, " "), " a  b");
}

}  // namespace
}  // namespace weft
