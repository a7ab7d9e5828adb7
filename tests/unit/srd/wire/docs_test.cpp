// Owns the test that docs/wire.md lists each reason to drop, once, and none that the code does not
// know.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "srd/net/envelope.hpp"
#include "srd/wire/drop_reason.hpp"

namespace weft::srd {
namespace {

// The first column of the tables below the heading, up to the next heading of any level.
std::vector<std::string> names_in_section(const std::string& heading) {
  std::ifstream file("docs/wire.md");
  EXPECT_TRUE(file.is_open()) << "run it in the root of the tree";
  std::vector<std::string> names;
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("#")) {
      inside = line.starts_with("### " + heading + " ");
    } else if (inside && line.starts_with("| ") && !line.starts_with("| reason")) {
      std::string cell = line.substr(2, line.find(" |", 2) - 2);
      for (std::size_t comma; (comma = cell.find(", ")) != std::string::npos;
           cell.erase(0, comma + 2)) {
        names.push_back(cell.substr(0, comma));
      }
      names.push_back(cell);
    }
  }
  std::ranges::sort(names);
  return names;
}

template <class Reason>
std::vector<std::string> names_in_code(Reason first, Reason last) {
  std::vector<std::string> names;
  for (auto i = static_cast<std::size_t>(first); i <= static_cast<std::size_t>(last); ++i) {
    names.emplace_back(to_string(static_cast<Reason>(i)));
  }
  std::ranges::sort(names);
  return names;
}

// [wire 5.1]
TEST(WireDocs, ReasonsOfThePacketByItself) {
  EXPECT_EQ(names_in_section("5.1"),
            names_in_code(DropReason::too_short, DropReason::bad_checksum));
}

// [wire 5.2]
TEST(WireDocs, ReasonsOfThePacketAgainstTheState) {
  EXPECT_EQ(names_in_section("5.2"),
            names_in_code(DropReason::not_for_us, static_cast<DropReason>(kDropReasons - 1)));
}

// [wire 5.3]
TEST(WireDocs, FaultsOfTheEnvelope) {
  EXPECT_EQ(names_in_section("5.3"),
            names_in_code(net::EnvelopeFault::too_short, net::EnvelopeFault::bad_destination));
}

TEST(WireDocs, NothingIsUnknown) {
  EXPECT_STREQ(to_string(DropReason::none), "none");
  for (std::size_t i = 0; i < kDropReasons; ++i) {
    EXPECT_STRNE(to_string(static_cast<DropReason>(i)), "unknown") << i;
  }
}

}  // namespace
}  // namespace weft::srd
