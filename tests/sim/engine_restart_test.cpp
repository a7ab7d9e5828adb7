// Owns the stories of processes that come back as a new life while packets of the old one travel.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/lab.hpp"

namespace weft::testing {
namespace {

using srd::Life;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Afterwards each knows the life of the other, and one receive of each is used up.
void get_acquainted(Pair& pair) {
  pair.a.receive();
  pair.b.receive();
  pair.a.send(pair.b, "hello b");
  pair.b.send(pair.a, "hello a");
  ASSERT_TRUE(pair.run_until_idle());
}

// [wire 4.2]
TEST(EngineRestart, OfTheReceiverIsToldToTheSender) {
  Pair pair;
  get_acquainted(pair);
  const auto in_flight = pair.a.send(pair.b, "for your former life");
  pair.run_for(1us);
  pair.restart(pair.b);
  pair.b.receive(4);
  ASSERT_TRUE(pair.run_until_idle());
  EXPECT_EQ(pair.a.status(in_flight), Status::peer_restarted);
  EXPECT_EQ(pair.a.engine().counters().peer_restarts, 1U);
  const auto next = pair.a.send(pair.b, "for this life");
  ASSERT_TRUE(pair.run_until_idle());
  EXPECT_EQ(pair.a.status(next), Status::ok);
  EXPECT_EQ(pair.b.texts().back(), "for this life");
  EXPECT_EQ(pair.b.inbox().size(), 2U);  // "hello b" of the former life, and this
}

TEST(EngineRestart, OfTheSenderStartsANewWindow) {
  Pair pair;
  get_acquainted(pair);
  pair.restart(pair.a);
  pair.b.receive(3);
  for (int i = 0; i < 3; ++i) {
    pair.a.send(pair.b, "new life " + std::to_string(i));
  }
  ASSERT_TRUE(pair.run_until_idle());
  EXPECT_EQ(pair.b.inbox().size(), 4U);
  EXPECT_EQ(pair.b.engine().counters().peer_restarts, 1U);
}

TEST(EngineRestart, LeavesNothingOfTheFormerLifeToBeDelivered) {
  Pair pair;
  get_acquainted(pair);
  pair.b.receive(10);
  // Still under way when its sender is gone, and its successor is known.
  pair.network().delay_next(Packet::send, 5ms);
  pair.a.send(pair.b, "from the grave");
  pair.run_for(1us);
  pair.restart(pair.a);
  pair.a.send(pair.b, "alive");
  pair.run_for(20ms);
  EXPECT_THAT(pair.b.texts(), ElementsAre("hello b", "alive"));
  EXPECT_EQ(pair.b.engine()
                .counters()
                .drops[static_cast<std::size_t>(srd::DropReason::stale_source_life)],
            1U);
}

TEST(EngineRestart, OfBothAtOnce) {
  Pair pair;
  get_acquainted(pair);
  pair.a.send(pair.b, "lost with its sender");
  pair.b.send(pair.a, "lost with its sender");
  pair.run_for(1us);
  pair.restart(pair.a);
  pair.restart(pair.b);
  pair.a.receive(4);
  pair.b.receive(4);
  // What was in flight introduces each new life to the other's former one.
  pair.run_for(100us);
  const auto to_b = pair.a.send(pair.b, "a again");
  const auto to_a = pair.b.send(pair.a, "b again");
  ASSERT_TRUE(pair.run_until_idle());
  for (const auto status : {pair.a.status(to_b), pair.b.status(to_a)}) {
    EXPECT_TRUE(status == Status::ok || status == Status::peer_restarted);
  }
  const auto again_b = pair.a.send(pair.b, "a for good");
  const auto again_a = pair.b.send(pair.a, "b for good");
  ASSERT_TRUE(pair.run_until_idle());
  EXPECT_EQ(pair.a.status(again_b), Status::ok);
  EXPECT_EQ(pair.b.status(again_a), Status::ok);
}

TEST(EngineRestart, APeerThatIsSilentAfterwardsIsFoundByWhoeverSpeaks) {
  Pair pair;
  get_acquainted(pair);
  pair.restart(pair.b);
  pair.b.receive(4);
  const auto first = pair.a.send(pair.b, "who are you?");
  ASSERT_TRUE(pair.run_until_idle());
  EXPECT_EQ(pair.a.status(first), Status::peer_restarted);
  EXPECT_THAT(pair.b.texts(), ElementsAre("hello b"));
}

// What a read or write names is memory of one life. It waits in the engine while its peer restarts.
TEST(EngineRestart, EndsReadsAndWritesThatHaveNotLeft) {
  Pair pair;
  pair.a.read(pair.b, 0, 8);
  ASSERT_TRUE(pair.run_until_idle());
  const auto former = pair.b.key();
  pair.a.write(pair.b, 0, pattern(900'000));  // holds the others back
  const auto write = pair.a.write(pair.b, 4096, pattern(3000), {.key = former});
  const auto small = pair.a.write(pair.b, 4096, "small", {.key = former});
  const auto announced = pair.a.write(pair.b, 4096, pattern(3000), {.immediate = 1, .key = former});
  pair.network().lose_next(Packet::read_request, 1);
  std::vector<std::uint64_t> reads;
  for (std::uint32_t i = 0; i < 2 * pair.a.config().max_reads_per_peer; ++i) {
    reads.push_back(pair.a.read(pair.b, 4096, 100, {.key = former}));
  }
  pair.restart(pair.b);
  pair.b.receive(4);
  pair.b.fill_memory(4096, std::string(3000, '.'));
  ASSERT_TRUE(pair.run_until_idle());
  for (const auto request : {write, small, announced}) {
    EXPECT_EQ(pair.a.status(request), Status::peer_restarted);
  }
  for (const auto read : reads) {
    EXPECT_EQ(pair.a.status(read), Status::peer_restarted);
  }
  EXPECT_EQ(pair.b.memory(4096, 3000), std::string(3000, '.'));
  EXPECT_TRUE(pair.b.inbox().empty());
}

TEST(EngineRestart, KeepsSendsThatHaveNotLeft) {
  LabConfig config = lab_config();
  config.engine.window_packets = 4;
  config.engine.ack_every = 1;
  Pair pair(config);
  get_acquainted(pair);
  std::vector<std::uint64_t> sends;
  for (int i = 0; i < 10; ++i) {
    sends.push_back(pair.a.send(pair.b, std::to_string(i)));
  }
  pair.run_for(1us);
  pair.restart(pair.b);
  pair.b.receive(10);
  ASSERT_TRUE(pair.run_until_idle());
  for (std::size_t i = 0; i < sends.size(); ++i) {
    EXPECT_EQ(pair.a.status(sends[i]), i < 4 ? Status::peer_restarted : Status::ok) << i;
  }
}

TEST(EngineRestart, OpensNothingToAKeyOfTheFormerLife) {
  Pair pair;
  pair.a.read(pair.b, 0, 8);
  ASSERT_TRUE(pair.run_until_idle());
  const auto former = pair.b.key();
  pair.restart(pair.b);
  pair.a.read(pair.b, 0, 8);
  ASSERT_TRUE(pair.run_until_idle());  // the new life is known
  const auto write = pair.a.write(pair.b, 0, "with an old key", {.key = former});
  const auto read = pair.a.read(pair.b, 0, 100, {.key = former});
  ASSERT_TRUE(pair.run_until_idle());
  EXPECT_EQ(pair.a.status(write), Status::bad_key);
  EXPECT_EQ(pair.a.status(read), Status::bad_key);
}

TEST(EngineRestart, LivesWrapAround) {
  LabConfig config = lab_config();
  config.engine.life = Life{0xFFFFFFFF};
  Pair pair(config);
  get_acquainted(pair);
  pair.restart(pair.b, Life{1});  // 0 is skipped: it means "not known"
  pair.b.receive(4);
  const auto first = pair.a.send(pair.b, "to the last life");
  ASSERT_TRUE(pair.run_until_idle());
  EXPECT_EQ(pair.a.status(first), Status::peer_restarted);
  const auto second = pair.a.send(pair.b, "to the first life");
  ASSERT_TRUE(pair.run_until_idle());
  EXPECT_EQ(pair.a.status(second), Status::ok);
}

TEST(EngineRestart, AHundredTimesUnderTraffic) {
  LabConfig config = lab_config();
  config.link.loss = 0.05;
  config.link.duplicate = 0.1;
  config.link.reorder = 0.2;
  config.link.reorder_delay = 500us;
  Pair pair(config);
  std::size_t seen = 0;
  // At most once in each life: a sender that does not know a life yet cannot tell it from the next
  // one.
  const auto expect_no_copies = [&] {
    std::set<std::string> distinct;
    for (; seen < pair.b.inbox().size(); ++seen) {
      EXPECT_TRUE(distinct.insert(pair.b.inbox()[seen].text).second);
    }
  };
  for (int life = 0; life < 100; ++life) {
    pair.b.receive(40);
    for (int i = 0; i < 20; ++i) {
      pair.a.send(pair.b, "life " + std::to_string(life) + " message " + std::to_string(i));
    }
    pair.run_for(std::chrono::microseconds{life});
    expect_no_copies();
    pair.restart(pair.b);
  }
  pair.b.receive(2000);
  ASSERT_TRUE(pair.run_until_idle());
  expect_no_copies();
}

TEST(EngineRestart, AReadInProgressEnds) {
  LabConfig config = lab_config();
  config.link.rate = Rate::gbps(1);
  Pair pair(config);
  const auto read = pair.a.read(pair.b, 0, 500'000);
  pair.run_for(1ms);
  pair.restart(pair.b);
  ASSERT_TRUE(pair.run_until([&] { return pair.a.status(read).has_value(); }, 1s));
  EXPECT_EQ(pair.a.status(read), Status::peer_restarted);
}

TEST(EngineRestart, AWriteWithImmediateBegunInOneLifeIsNotFinishedInTheNext) {
  Pair pair;
  get_acquainted(pair);
  pair.b.receive(2);
  pair.network().delay_next(Packet::write, 1ms, 1, 4);
  pair.a.write(pair.b, 0, pattern(8 * 1024, 1), {.immediate = 1});
  pair.run_for(20us);
  pair.restart(pair.a);
  // The same message number, in the next life.
  pair.a.write(pair.b, 100'000, pattern(8 * 1024, 2), {.immediate = 2});
  pair.run_for(20ms);
  ASSERT_EQ(pair.b.inbox().size(), 2U);
  EXPECT_EQ(pair.b.inbox()[1].completion.immediate, 2U);
  EXPECT_EQ(pair.b.memory(100'000, 8 * 1024), pattern(8 * 1024, 2));
}

// The data that would have met the new life is lost, and without credit no more of it leaves.
TEST(EngineRestart, IsToldToWhoWaitsForCredit) {
  LabConfig config = lab_config();
  config.engine.receiver_credits = true;
  config.engine.credit_window = 2048;
  config.engine.path_timeouts_to_abandon = 255;  // or a probe would find out
  Pair pair(config);
  get_acquainted(pair);
  pair.crash(pair.b);
  const auto first = pair.a.send(pair.b, pattern(1000));
  for (int i = 0; i < 20; ++i) {
    pair.a.send(pair.b, pattern(1000));
  }
  pair.run_for(1ms);
  pair.restart(pair.b);
  pair.b.receive(30);
  ASSERT_TRUE(pair.run_until_idle(100ms));
  EXPECT_EQ(pair.a.status(first), Status::peer_restarted);
  EXPECT_EQ(pair.a.engine().counters().unresponsive_remote_events, 0U);
  EXPECT_GT(pair.b.inbox().size(), 10U);
}

}  // namespace
}  // namespace weft::testing
