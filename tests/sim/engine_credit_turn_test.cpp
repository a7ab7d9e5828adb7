// Owns the stories of senders that wait for their turn to be granted credits: when they ask, and
// how long what was lost holds them up.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/lab.hpp"

namespace weft::testing {
namespace {

constexpr std::size_t kGrant = 8192;
constexpr std::size_t kLong = 60'000;                // asked for at once
constexpr Duration kSoon = 470us + 2 * 70us + 40us;  // two turns late, and a question

LabConfig rationed(Bytes window = 4096) {
  LabConfig config = lab_config();
  config.engine.receiver_credits = true;
  config.engine.trimming = true;
  config.engine.credit_window = window;
  return config;
}

// The second one grants 8 KiB each 70 us.
class SlowPair : public Pair {
 public:
  SlowPair() : Pair(rationed()) {
    srd::EngineConfig slow = b.config();
    slow.line_rate = Rate::gbps(1);
    crash(b);
    boot(b, slow);
  }
};

// How long a message takes whose last grant is lost; it would take 470 us.
Duration time_with_lost_grants(Pair& pair) {
  const TimePoint start = pair.now();
  const auto write = pair.a.write(pair.b, 0, pattern(kLong));
  pair.run_for(420us);
  pair.network().partition(1, 0);
  pair.run_for(80us);
  pair.network().rejoin(1, 0);
  EXPECT_TRUE(pair.run_until([&] { return pair.a.status(write).has_value(); }));
  EXPECT_EQ(pair.a.status(write), Status::ok);
  return pair.now() - start;
}

TEST(EngineTurn, LostGrantsHoldUpAMessageForLittle) {
  SlowPair pair;
  EXPECT_LT(time_with_lost_grants(pair), kSoon);
}

// The receiver's last words to the message before were lost, and nobody missed them.
TEST(EngineTurn, APauseDoesNotMakeLostGrantsWorse) {
  SlowPair pair;
  for (const std::size_t bytes : {kGrant, std::size_t{1000}}) {
    const auto write = pair.a.write(pair.b, 0, pattern(bytes));
    ASSERT_TRUE(pair.run_until([&] { return pair.a.status(write).has_value(); }));
  }
  pair.network().partition(1, 0);
  pair.run_for(1ms);
  pair.network().rejoin(1, 0);
  pair.run_for(10s);
  EXPECT_LT(time_with_lost_grants(pair), kSoon);
}

// All links are down for a while, as when a switch restarts.
TEST(EngineTurn, AnOutageDoesNotMakeLostGrantsWorse) {
  SlowPair pair;
  const auto first = pair.a.write(pair.b, 0, pattern(kLong));
  pair.run_for(300us);
  pair.partition(pair.a, pair.b);
  pair.run_for(450ms);
  pair.rejoin(pair.a, pair.b);
  ASSERT_TRUE(pair.run_until([&] { return pair.a.status(first).has_value(); }));
  EXPECT_LT(time_with_lost_grants(pair), kSoon);
}

// Suspended, as a laptop is.
TEST(EngineTurn, ASleepDoesNotMakeLostGrantsWorse) {
  SlowPair pair;
  const auto first = pair.a.write(pair.b, 0, pattern(kLong));
  pair.run_for(300us);
  pair.world().pause(0);
  pair.world().pause(1);
  pair.run_for(1s);
  pair.world().resume(0);
  pair.world().resume(1);
  ASSERT_TRUE(pair.run_until([&] { return pair.a.status(first).has_value(); }));
  EXPECT_LT(time_with_lost_grants(pair), kSoon);
}

// What a sender asks within seven turns, of 41 that share a receiver; after so many turns.
std::uint64_t requests_after(Duration after, bool posts, bool patient) {
  constexpr std::uint32_t kOthers = 40;
  LabConfig config = rationed();
  config.engine.line_rate = Rate::gbps(1);
  if (patient) {
    config.engine.min_rto = 1s;
    config.engine.max_rto = 1s;
  }
  Lab lab(kOthers + 2, config);
  Node& a = lab[1];
  a.write_phantom(lab[0], posts ? 30'000 : 500'000);
  lab.run_for(100us);
  for (std::uint32_t i = 0; i < kOthers; ++i) {
    lab[i + 2].write_phantom(lab[0], 10'000'000);
  }
  lab.run_for(after);
  const std::uint64_t before = a.engine().counters().credit_requests;
  for (int i = 0; i < 1000; ++i) {
    lab.run_for(20us);
    if (posts) {
      a.write_phantom(lab[0], 256);
    }
  }
  return a.engine().counters().credit_requests - before;
}

// More than one asks that never loses its patience: it asks for what is posted, and no questions.
std::int64_t questions_after(Duration after, bool posts) {
  return static_cast<std::int64_t>(requests_after(after, posts, false)) -
         static_cast<std::int64_t>(requests_after(after, posts, true));
}

// Two a turn.
TEST(EngineTurn, AsksSeldomOnceItKnowsItsTurn) {
  EXPECT_LE(questions_after(40ms, false), 14);
  EXPECT_LE(questions_after(40ms, true), 14) << "of one that goes on posting";
}

// Its turn comes ever more seldom, as the receiver serves ever more others.
TEST(EngineTurn, AsksSeldomWhileItsTurnBecomesLonger) {
  EXPECT_LE(questions_after(0us, false), 14);
  EXPECT_LE(questions_after(0us, true), 14) << "of one that goes on posting";
}

// Posted during an outage to a receiver that has others to serve: how long after it, if the first
// grant is lost in a cut that begins so long after the outage. There is none at zero.
Duration time_after_outage(Duration outage, Duration cut_after) {
  constexpr std::uint32_t kOthers = 10;
  LabConfig config = rationed(16'384);
  config.engine.line_rate = Rate::gbps(1);
  Lab lab(kOthers + 2, config);
  Node& a = lab[1];
  const auto first = a.write_phantom(lab[0], 4 * kGrant);
  lab.run_for(30us);
  for (std::uint32_t i = 0; i < kOthers; ++i) {
    lab[i + 2].write_phantom(lab[0], 10'000'000);
  }
  EXPECT_TRUE(lab.run_until([&] { return a.status(first).has_value(); }));
  lab.run_for(1ms);
  lab.partition(a, lab[0]);
  const auto second = a.write_phantom(lab[0], kGrant);
  lab.run_for(outage);
  lab.rejoin(a, lab[0]);
  const TimePoint healed = lab.now();
  if (cut_after != Duration::zero()) {
    lab.run_for(cut_after);
    lab.network().partition(0, 1);
    lab.run_for(60us);
    lab.network().rejoin(0, 1);
  }
  EXPECT_TRUE(lab.run_until([&] { return a.status(second).has_value(); }));
  return lab.now() - healed;
}

// A turn is 0.8 ms, and the time-out has grown to about as much. Neither makes the other longer.
TEST(EngineTurn, AnOutageWhileARequestMayBeLostIsNotWaitedForAgain) {
  for (const Duration outage : {Duration{200us}, Duration{1ms}, Duration{5ms}, Duration{20ms}}) {
    const Duration without = time_after_outage(outage, 0us);
    Duration with{};
    for (Duration before = 80us; before <= 200us && before < without; before += 20us) {
      with = std::max(with, time_after_outage(outage, without - before));
    }
    EXPECT_GT(with, without) << "nothing was lost, " << outage.count();
    EXPECT_LT(with, without + 4ms) << outage.count();
  }
}

}  // namespace
}  // namespace weft::testing
