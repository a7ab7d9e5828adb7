// Owns the tests of receiver credits: what the receiver grants.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "srd/base/rng.hpp"
#include "srd/engine/cc/credit_scheduler.hpp"

namespace weft::srd {
namespace {

using namespace std::chrono_literals;

// Takes every grant as soon as it is due, until `end`. Returns the credits per peer.
std::vector<std::uint32_t> run(CreditScheduler& s, TimePoint end, std::uint32_t peers) {
  while (s.next_due() <= end) {
    (void)s.next(s.next_due());
  }
  std::vector<std::uint32_t> granted;
  for (std::uint32_t i = 0; i < peers; ++i) {
    granted.push_back(s.granted(PeerId{i}));
  }
  return granted;
}

TEST(CreditScheduler, IsIdleWithoutDemand) {
  CreditScheduler s{CreditTuning{}};
  EXPECT_EQ(s.next_due(), kNever);
  EXPECT_FALSE(s.next(time_at(1s)).has_value());
  EXPECT_EQ(s.granted(PeerId{5}), 0U);
}

// [wire 4.8]
TEST(CreditScheduler, GrantsWhatIsAskedForAndNoMore) {
  CreditScheduler s{CreditTuning{}};
  ASSERT_TRUE(s.on_demand(time_at(1us), PeerId{3}, 77));
  EXPECT_EQ(run(s, time_at(1s), 5), (std::vector<std::uint32_t>{0, 0, 0, 77, 0}));
  EXPECT_EQ(s.next_due(), kNever);
  ASSERT_TRUE(s.on_demand(time_at(1s), PeerId{3}, 77));  // repeated
  ASSERT_TRUE(s.on_demand(time_at(1s), PeerId{3}, 50));  // late
  EXPECT_EQ(s.next_due(), kNever);
}

// Credits are units of 256 bytes. Grants must come close to the rate of the line and never exceed
// it: what is granted beyond it would only queue up.
TEST(CreditScheduler, TurnsJustBelowTheRateOfTheLine) {
  CreditTuning tuning;
  tuning.line_rate = Rate::gbps(100);
  CreditScheduler s{tuning};
  ASSERT_TRUE(s.on_demand(time_at(0us), PeerId{0}, 1U << 30));
  const double bytes = 256.0 * run(s, time_at(10ms), 1).front();
  EXPECT_NEAR(bytes * 8 / 10e-3 / 100e9, 0.998, 0.0015);
}

// Half of all that is wanted has been granted: whoever is not satisfied has as much as anybody, but
// for one quantum of 32 credits.
TEST(CreditScheduler, IsFairWhateverTheDemands) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    CreditScheduler s{CreditTuning{}};
    const auto peers = static_cast<std::uint32_t>(rng.between(2, 100));
    std::vector<std::uint32_t> demand;
    std::uint64_t total = 0;
    for (std::uint32_t i = 0; i < peers; ++i) {
      demand.push_back(static_cast<std::uint32_t>(rng.between(1, 20'000)));
      total += demand.back();
      ASSERT_TRUE(s.on_demand(time_at(0us), PeerId{i}, demand.back()));
    }
    const auto half = Rate::gbps(99).time_for(total * 256 / 2);
    const auto granted = run(s, time_at(half), peers);
    std::uint32_t most = 0;
    for (const std::uint32_t g : granted) {
      most = std::max(most, g);
    }
    for (std::uint32_t i = 0; i < peers; ++i) {  // satisfied, or within one quantum of the best
      ASSERT_TRUE(granted[i] == demand[i] || granted[i] + 32 >= most) << i;
    }
  }
}

// The caller comes a second late: grants for all of that time at once would be an incast of the
// receiver's own making.
TEST(CreditScheduler, ALateCallerCatchesUpOnlyALittle) {
  CreditScheduler s{CreditTuning{}};
  ASSERT_TRUE(s.on_demand(time_at(0us), PeerId{0}, 1U << 30));
  int grants = 0;
  while (s.next(time_at(1s))) {
    ++grants;
    ASSERT_LT(grants, 100);
  }
  EXPECT_LE(grants, 6);
}

// The clock of grants must not stay behind while nobody asks, or the next demand would be granted
// all at once.
TEST(CreditScheduler, IdleTimeIsNotSavedUp) {
  CreditScheduler s{CreditTuning{}};
  ASSERT_TRUE(s.on_demand(time_at(0us), PeerId{0}, 32));
  (void)run(s, time_at(1ms), 1);
  ASSERT_TRUE(s.on_demand(time_at(1s), PeerId{0}, 1U << 20));
  EXPECT_GE(s.next_due(), time_at(1s));
}

TEST(CreditScheduler, AForgottenPeerStartsAgainAndBlocksNobody) {
  CreditScheduler s{CreditTuning{}};
  for (std::uint32_t i = 0; i < 4; ++i) {
    ASSERT_TRUE(s.on_demand(time_at(0us), PeerId{i}, 1000));
  }
  (void)s.next(time_at(0us));
  s.forget(PeerId{0});
  s.forget(PeerId{2});
  EXPECT_EQ(run(s, time_at(1s), 4), (std::vector<std::uint32_t>{0, 1000, 0, 1000}));
  ASSERT_TRUE(s.on_demand(time_at(2s), PeerId{2}, 10));
  EXPECT_EQ(run(s, time_at(3s), 4)[2], 10U);
}

// What a dead sender still wants is not granted any more; one that lives after all repeats it.
TEST(CreditScheduler, APeerThatWithdrawsLeavesTheLinkToTheOthers) {
  CreditScheduler s{CreditTuning{}};
  for (std::uint32_t i = 0; i < 2; ++i) {
    ASSERT_TRUE(s.on_demand(time_at(0us), PeerId{i}, 1U << 30));
  }
  const auto before = run(s, time_at(1ms), 2);
  s.withdraw(PeerId{0});
  s.withdraw(PeerId{0});
  s.withdraw(PeerId{7});  // that never wanted any
  const auto after = run(s, time_at(2ms), 2);
  EXPECT_EQ(after[0], before[0]);
  EXPECT_NEAR(after[1] - before[1], 2.0 * before[1], 64);
  ASSERT_TRUE(s.on_demand(time_at(2ms), PeerId{0}, 1U << 30));
  EXPECT_GT(run(s, time_at(3ms), 2)[0], before[0]);
}

TEST(CreditScheduler, RefusesPeersBeyondItsLimit) {
  CreditTuning tuning;
  tuning.max_peers = 10;
  CreditScheduler s{tuning};
  EXPECT_TRUE(s.on_demand(time_at(0us), PeerId{9}, 1));
  EXPECT_FALSE(s.on_demand(time_at(0us), PeerId{10}, 1));
}

// Demands are running totals in 32 bits. A wrap must not look like a late, smaller demand.
TEST(CreditScheduler, DemandsWrapAround) {
  CreditTuning tuning;
  tuning.quantum = Bytes{1} << 28;
  CreditScheduler s{tuning};
  std::uint32_t demand = 0;
  for (int i = 0; i < 12; ++i) {  // three times around
    demand += 1U << 30;
    ASSERT_TRUE(s.on_demand(time_at(0us), PeerId{0}, demand));
    while (s.next_due() != kNever) {
      (void)s.next(s.next_due());
    }
    ASSERT_EQ(s.granted(PeerId{0}), demand);
  }
}

}  // namespace
}  // namespace weft::srd
