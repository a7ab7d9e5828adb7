// Owns the tests of the names that travel and that people read.
#include "srd/engine/types.hpp"

#include <gtest/gtest.h>

#include <array>
#include <set>
#include <string_view>

namespace weft::srd {
namespace {

// [wire 3.6] These numbers are on the wire: they never change.
TEST(Status, WireCodes) {
  const std::array travelling{Status::ok,
                              Status::bad_qpn,
                              Status::bad_qkey,
                              Status::receiver_not_ready,
                              Status::length_error,
                              Status::bad_key,
                              Status::out_of_bounds,
                              Status::access_denied,
                              Status::responder_busy,
                              Status::feature_mismatch,
                              Status::unknown_peer};
  for (unsigned code = 0; code < travelling.size(); ++code) {
    EXPECT_EQ(static_cast<unsigned>(travelling[code]), code);
  }
}

TEST(Status, EachHasItsText) {
  std::set<std::string_view> texts;
  // Those that travel, and from 32 on those that only a program is told.
  for (const unsigned code :
       {0U, 1U, 2U, 3U, 4U, 5U, 6U, 7U, 8U, 9U, 10U, 32U, 33U, 34U, 35U, 36U}) {
    texts.insert(to_string(static_cast<Status>(code)));
  }
  EXPECT_EQ(texts.size(), 16U);
  EXPECT_FALSE(texts.contains("unknown"));
  EXPECT_STREQ(to_string(static_cast<Status>(200)), "unknown");
}

}  // namespace
}  // namespace weft::srd
