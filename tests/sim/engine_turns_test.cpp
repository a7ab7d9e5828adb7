// Owns the stories of messages that share a way: the short ones are through soon, and none waits
// for ever.
#include <gtest/gtest.h>

#include <map>

#include "tests/support/lab.hpp"

namespace weft::testing {
namespace {

// 100 Gb/s, 10 us there and back, packets of 4 KiB.
LabConfig fast() {
  LabConfig config = lab_config();
  config.engine.mtu_payload = 4096;
  config.engine.line_rate = config.link.rate = Rate::gbps(100);
  return config;
}

Duration time_of(Pair& pair, Node& who, std::uint64_t request) {
  const TimePoint begin = pair.now();
  EXPECT_TRUE(pair.run_until([&] { return who.status(request).has_value(); }));
  EXPECT_EQ(who.status(request), Status::ok);
  return pair.now() - begin;
}

TEST(EngineTurns, ASmallReadDoesNotWaitForALargeWrite) {
  for (const std::uint64_t size : {1U << 20, 1U << 24, 1U << 28}) {
    Pair pair(fast());
    pair.a.read(pair.b, 0, 8);
    ASSERT_TRUE(pair.run_until_idle());
    pair.b.write_phantom(pair.a, size);
    pair.run_for(20us);
    // A window of the write's own packets is on the wire before the answer.
    EXPECT_LT(time_of(pair, pair.a, pair.a.read(pair.b, 0, 8)), 60us) << size;
  }
}

TEST(EngineTurns, ShortMessagesDoNotWaitForLongOnes) {
  Pair pair(fast());
  pair.a.write_phantom(pair.b, 100'000'000);
  pair.run_for(100us);
  EXPECT_LT(time_of(pair, pair.a, pair.a.write_phantom(pair.b, 8000)), 60us);
  EXPECT_LT(time_of(pair, pair.a, pair.a.write_phantom(pair.b, 100'000)), 80us);
  EXPECT_LT(time_of(pair, pair.a, pair.a.write_phantom(pair.b, 1'000'000)), 300us);
}

// One after the other: the first of four ends after about a quarter of the time.
TEST(EngineTurns, EqualMessagesDoNotAllEndLast) {
  Pair pair(fast());
  std::vector<std::uint64_t> writes;
  const TimePoint begin = pair.now();
  for (int i = 0; i < 4; ++i) {
    writes.push_back(pair.a.write_phantom(pair.b, 10'000'000));
  }
  std::vector<Duration> ends;
  for (const auto write : writes) {
    ASSERT_TRUE(pair.run_until([&] { return pair.a.status(write).has_value(); }));
    ends.push_back(pair.now() - begin);
  }
  for (std::size_t i = 0; i < ends.size(); ++i) {
    EXPECT_LT(ends[i], ends.back() * (i + 1) / 4 + 100us) << i;
  }
}

// A stream of messages of each size, none of which ever runs dry, beside one of the longest.
TEST(EngineTurns, TheLongestAreNotStarved) {
  LabConfig config = fast();
  config.engine.max_work_requests = 4096;
  Pair pair(config);
  const auto longest = pair.a.write_phantom(pair.b, 20'000'000);
  const std::map<std::uint64_t, int> streams{
      {64, 16}, {8000, 16}, {100'000, 8}, {1'000'000, 4}, {8'000'000, 2}};
  std::map<std::uint64_t, std::vector<std::uint64_t>> open;
  const TimePoint begin = pair.now();
  while (!pair.a.status(longest).has_value() && pair.now() < begin + 500ms) {
    for (const auto& [size, count] : streams) {
      std::erase_if(open[size], [&](std::uint64_t c) { return pair.a.status(c).has_value(); });
      while (open[size].size() < static_cast<std::size_t>(count)) {
        open[size].push_back(pair.a.write_phantom(pair.b, size));
      }
    }
    pair.run_for(5us);
  }
  EXPECT_EQ(pair.a.status(longest), Status::ok);
  // Alone it takes 1.6 ms. It has half of the turns' sixteenth at the least: 32 times.
  EXPECT_LT(pair.now() - begin, 32 * 1700us);
}

}  // namespace
}  // namespace weft::testing
