// Owns the stories of packets that are lost, late, doubled, damaged or cut short.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/lab.hpp"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;

// Once: the counter would show a sender that repeats for safety.
TEST(EngineLoss, ALostMessageIsSentAgain) {
  Pair pair;
  pair.b.receive();
  pair.network().lose_next(Packet::send);
  const auto hello = pair.a.send(pair.b, "hello");
  ASSERT_TRUE(pair.run_until_idle());
  EXPECT_EQ(pair.a.status(hello), Status::ok);
  EXPECT_THAT(pair.b.texts(), ElementsAre("hello"));
  EXPECT_EQ(pair.a.engine().counters().retrans_pkts, 1U);
}

// [wire 4.7]
TEST(EngineLoss, ALostTailIsFoundWithinAFewRoundTrips) {
  Pair pair;
  pair.b.receive(20);
  pair.a.send(pair.b, "first");  // measures the round trip
  ASSERT_TRUE(pair.run_until_idle());
  pair.network().lose_next(Packet::send);
  const TimePoint start = pair.now();
  const auto last = pair.a.send(pair.b, "last");
  ASSERT_TRUE(pair.run_until([&] { return pair.a.status(last).has_value(); }));
  EXPECT_LT(pair.now() - start, 6 * pair.rtt());
}

// The sender cannot know that the message has come, and sends it again. The second receive must
// stay.
TEST(EngineLoss, ALostAcknowledgementDoesNotDeliverTwice) {
  Pair pair;
  pair.b.receive(2);
  pair.network().lose_next(Packet::ack);
  const auto hello = pair.a.send(pair.b, "hello");
  ASSERT_TRUE(pair.run_until_idle());
  EXPECT_EQ(pair.a.status(hello), Status::ok);
  EXPECT_THAT(pair.b.texts(), ElementsAre("hello"));
  EXPECT_EQ(pair.b.receives_posted(), 1U);
}

// [wire 4.1, 5.2] What is settled is not executed again.
TEST(EngineLoss, ADuplicateIsDroppedAndCounted) {
  Pair pair;
  pair.b.receive(2);
  pair.network().duplicate_next(Packet::send);
  pair.a.send(pair.b, "once");
  ASSERT_TRUE(pair.run_until_idle());
  EXPECT_THAT(pair.b.texts(), ElementsAre("once"));
  EXPECT_EQ(pair.b.engine().counters().duplicate_pkts, 1U);
}

// 50 ms later the window has moved on by thousands of packets. What is before it counts as settled.
TEST(EngineLoss, ACopyThatComesMuchLaterIsStillACopy) {
  Pair pair;
  pair.b.receive(3000);
  pair.network().duplicate_next(Packet::send);
  pair.network().add({.kind = Packet::send, .action = Action::delay, .delay = 50ms});
  pair.a.send(pair.b, "once");
  for (int i = 0; i < 2999; ++i) {
    pair.a.send(pair.b, "more");
  }
  ASSERT_TRUE(pair.run_until_idle());
  EXPECT_EQ(pair.b.inbox().size(), 3000U);
}

// Packets of fast paths overtake those of slow ones all the time. Only a gap within a path is a
// loss.
TEST(EngineLoss, DelayOfOnePathIsNotTakenForLoss) {
  LabConfig config = lab_config();
  config.link.path_skew = 150ns;  // path 15: 2.25 us late
  Pair pair(config);
  pair.b.receive(500);
  for (int i = 0; i < 500; ++i) {
    pair.a.send(pair.b, pattern(1000));
  }
  ASSERT_TRUE(pair.run_until_idle());
  EXPECT_EQ(pair.a.engine().counters().retrans_pkts, 0U);
}

// A path keeps its order, so no time-out is needed.
TEST(EngineLoss, AGapWithinAPathIsLossAtOnce) {
  LabConfig config = lab_config();
  config.engine.paths = 1;
  Pair pair(config);
  pair.b.receive(100);
  pair.network().lose_next(Packet::send, 1, 3);
  for (int i = 0; i < 40; ++i) {
    pair.a.send(pair.b, pattern(1000));
  }
  ASSERT_TRUE(pair.run_until_idle());
  EXPECT_EQ(pair.b.inbox().size(), 40U);
  EXPECT_EQ(pair.a.engine().counters().lost_by_gap, 1U);
  EXPECT_EQ(pair.a.engine().counters().lost_by_timeout, 0U);
  EXPECT_EQ(pair.a.engine().counters().retrans_pkts, 1U);
}

// [wire 4.9]
TEST(EngineLoss, ATrimmedPacketIsSentAgainWithoutWaiting) {
  LabConfig config = lab_config();
  config.engine.trimming = true;
  Pair pair(config);
  pair.b.receive(40);
  pair.a.send(pair.b, "acquaintance");
  ASSERT_TRUE(pair.run_until_idle());
  pair.network().trim_next(Packet::send);
  const TimePoint start = pair.now();
  const auto cut = pair.a.send(pair.b, pattern(1000));
  ASSERT_TRUE(pair.run_until([&] { return pair.a.status(cut).has_value(); }));
  EXPECT_EQ(pair.a.status(cut), Status::ok);
  EXPECT_EQ(pair.now() - start, 2 * pair.rtt());
  EXPECT_EQ(pair.a.engine().counters().lost_by_trim, 1U);
  EXPECT_EQ(pair.b.engine().counters().trimmed_pkts, 1U);
  EXPECT_EQ(pair.b.inbox()[1].text, pattern(1000));
}

// More than one acknowledgement has room for.
TEST(EngineLoss, EveryTrimmedPacketOfABurstIsToldAtOnce) {
  LabConfig config = lab_config();
  config.engine.trimming = true;
  Pair pair(config);
  pair.b.receive(101);
  pair.a.send(pair.b, "acquaintance");
  ASSERT_TRUE(pair.run_until_idle());
  pair.network().trim_next(Packet::send, 100);
  for (int i = 0; i < 100; ++i) {
    pair.a.send(pair.b, pattern(1000));
  }
  ASSERT_TRUE(pair.run_until_idle());
  const auto& counters = pair.a.engine().counters();
  EXPECT_EQ(counters.lost_by_trim, 100U);
  EXPECT_EQ(counters.retrans_pkts, 100U);
  EXPECT_EQ(counters.lost_by_timeout, 0U);
  EXPECT_EQ(pair.b.inbox().size(), 101U);
}

TEST(EngineLoss, TheVeryFirstPacketMayBeTrimmed) {
  Pair pair;
  pair.b.receive();
  pair.network().trim_next(Packet::send);
  const auto first = pair.a.send(pair.b, pattern(1000));
  ASSERT_TRUE(pair.run_until_idle());
  EXPECT_EQ(pair.a.status(first), Status::ok);
  EXPECT_THAT(pair.b.texts(), ElementsAre(pattern(1000)));
}

// One of five packets has a wrong bit, in a header or in the payload. Each must be dropped; the
// rest is loss.
TEST(EngineLoss, DamageIsNoticedWhereverItStrikes) {
  LabConfig config = lab_config();
  config.link.corrupt = 0.2;
  Pair pair(config);
  pair.b.receive(500);
  for (std::uint64_t i = 0; i < 300; ++i) {
    pair.a.send(pair.b, pattern(800, i));
  }
  pair.a.write(pair.b, 0, pattern(200'000, 7));
  ASSERT_TRUE(pair.run_until_idle());
  ASSERT_EQ(pair.b.inbox().size(), 300U);
  std::multiset<std::string> expected;
  for (std::uint64_t i = 0; i < 300; ++i) {
    expected.insert(pattern(800, i));
  }
  const auto texts = pair.b.texts();
  EXPECT_EQ(std::multiset<std::string>(texts.begin(), texts.end()), expected);
  EXPECT_EQ(pair.b.memory(0, 200'000), pattern(200'000, 7));
  EXPECT_GT(pair.network().counts().corrupted, 50U);
}

TEST(EngineLoss, BurstsOfLossOnTheWayBackAndForth) {
  LabConfig config = lab_config();
  config.link.burst = 0.01;
  config.link.burst_length = 20;
  Pair pair(config);
  pair.b.receive(1000);
  for (int i = 0; i < 1000; ++i) {
    pair.a.send(pair.b, pattern(500));
  }
  ASSERT_TRUE(pair.run_until_idle());
  EXPECT_EQ(pair.b.inbox().size(), 1000U);
}

// The path may be what lost it.
TEST(EngineLoss, ARetransmissionLeavesOnAnotherPath) {
  Pair pair;
  pair.b.receive();
  std::vector<std::uint16_t> used;
  pair.network().observe([&](TimePoint, world::NetworkEvent event, const auto& packet) {
    if (event == world::NetworkEvent::sent && world::kind_of(packet.bytes) == Packet::send) {
      used.push_back(packet.path.value());
    }
  });
  pair.network().lose_next(Packet::send, 3);
  pair.a.send(pair.b, "stubborn");
  ASSERT_TRUE(pair.run_until_idle());
  ASSERT_EQ(used.size(), 4U);
  for (std::size_t i = 1; i < used.size(); ++i) {
    EXPECT_NE(used[i], used[i - 1]);
  }
}

TEST(EngineLoss, RoundTripTimesDoNotComeFromCopies) {
  Pair pair;
  pair.b.receive(10);
  // The copy is answered 20 ms later; a sender that measured that would wait long for the next
  // loss.
  pair.network().duplicate_next(Packet::send);
  pair.network().delay_next(Packet::ack, 20ms, 1, 1);
  pair.a.send(pair.b, "one");
  pair.run_for(30ms);
  pair.network().clear_rules();
  pair.network().lose_next(Packet::send);
  const TimePoint start = pair.now();
  const auto two = pair.a.send(pair.b, "two");
  ASSERT_TRUE(pair.run_until([&] { return pair.a.status(two).has_value(); }));
  EXPECT_LT(pair.now() - start, 1ms);
}

// An acknowledgement whose map spans two words settles what is in them once. (Numbers cross a
// multiple of 64 while one in front of it is missing.)
TEST(EngineLoss, AnAcknowledgementAcrossTwoWordsOfTheMap) {
  LabConfig config = lab_config();
  config.engine.first_psn = Psn{60};
  config.engine.paths = 2;
  Pair pair(config);
  pair.network().lose_next(Packet::write, 1);
  const std::string bytes = pattern(12 * 1024);
  const auto write = pair.a.write(pair.b, 0, bytes);
  ASSERT_TRUE(pair.run_until([&] { return pair.a.status(write).has_value(); }));
  EXPECT_EQ(pair.b.memory(0, bytes.size()), bytes);
  ASSERT_TRUE(pair.run_until_idle());
}

// A probe that arrives before anything else is answered by a receiver that has no window yet.
TEST(EngineLoss, AnAnswerWithoutAWindowAcknowledgesNothing) {
  for (const std::uint32_t first : {0xFFFFFFF0U, 0x7FFFFFF0U, 5U, 0x80000000U}) {
    LabConfig config = lab_config();
    config.engine.first_psn = Psn{first};
    Pair pair(config);
    pair.b.receive(4);
    pair.network().lose_next(Packet::send, 12);
    for (int i = 0; i < 4; ++i) {
      pair.a.send(pair.b, "message");
    }
    ASSERT_TRUE(pair.run_until_idle());
    EXPECT_EQ(pair.b.inbox().size(), 4U) << first;
  }
}

// Everybody begins at once, and a packet waits behind the first windows of all others.
TEST(EngineLoss, NothingIsSentAgainBeforeTheFirstAnswer) {
  Pair pair;
  pair.network().add({.kind = Packet::data | Packet::probe,
                      .action = Action::delay,
                      .count = 0xFFFFFFFF,
                      .from = 0,
                      .delay = 2ms});
  pair.a.write(pair.b, 0, pattern(50'000));
  ASSERT_TRUE(pair.run_until_idle());
  const auto& counters = pair.a.engine().counters();
  EXPECT_EQ(counters.retrans_pkts, 0U);
  EXPECT_EQ(counters.lost_by_timeout, 0U);
  EXPECT_EQ(counters.paths_abandoned, 0U);
  EXPECT_GT(pair.b.engine().counters().rx_pkts, counters.data_pkts);  // it was asked for
}

TEST(EngineLoss, AFirstFlightThatIsLostIsFoundByAsking) {
  Pair pair;
  pair.network().lose_next(Packet::write, 20);
  const auto write = pair.a.write(pair.b, 0, pattern(20 * 1024));
  ASSERT_TRUE(pair.run_until([&] { return pair.a.status(write).has_value(); }));
  EXPECT_EQ(pair.a.status(write), Status::ok);
  constexpr Duration kFirstQuestion = 64us;  // twice three round trips and the longest ack delay
  EXPECT_LE(pair.elapsed(),
            kFirstQuestion + 3 * pair.rtt());  // with the pacing after so many losses
  EXPECT_EQ(pair.a.engine().counters().retrans_pkts, 20U);
}

// The first question leaves late, where it waits for an answer that is long in coming. What is
// known then must not wait for it.
TEST(EngineLoss, TheFirstAnswerBringsTheNextQuestionForward) {
  Pair pair;
  pair.network().delay_next(Packet::send, 3ms);
  pair.network().lose_next(Packet::send);
  pair.network().lose_next(Packet::probe, 1000);
  pair.b.receive(2);
  pair.a.send(pair.b, "late");
  const auto lost = pair.a.send(pair.b, "lost");
  pair.run_for(3ms + pair.rtt());
  pair.network().clear_rules();
  const TimePoint start = pair.now();
  ASSERT_TRUE(pair.run_until([&] { return pair.a.status(lost).has_value(); }));
  EXPECT_EQ(pair.a.status(lost), Status::ok);
  EXPECT_LE(pair.now() - start, 1ms);
}

// What one peer has acknowledged says nothing about what is under way to another one.
TEST(EngineLoss, AnAnswerWithoutAWindowLosesNothing) {
  LabConfig config = lab_config();
  config.engine.paths = 1;
  config.engine.receiver_credits = true;
  Lab lab(3, config);
  Node& a = lab[0];
  lab[1].receive(3);
  lab[2].receive(3);
  lab.network().add(
      {.kind = Packet::send, .action = Action::delay, .count = 3, .to = 2, .delay = 40us});
  lab.network().add(
      {.kind = Packet::credit_request, .action = Action::delay, .to = 2, .delay = 10us});
  for (const std::uint32_t to : {2U, 1U}) {
    for (int i = 0; i < 3; ++i) {
      a.send(lab[to], pattern(1000));
    }
    lab.run_for(1us);
  }
  ASSERT_TRUE(lab.run_until_idle());
  EXPECT_EQ(a.engine().counters().lost_by_gap, 0U);
  EXPECT_EQ(a.engine().counters().retrans_pkts, 0U);
}

// The longest time-out is configured in absolute time, and shorter than this network's round trip.
TEST(EngineLoss, FarPeersAreWaitedFor) {
  LabConfig config = lab_config();
  config.link.latency = 100ms;
  config.engine.base_rtt = 200ms;
  config.engine.max_rto = 100ms;
  config.engine.peer_timeout = 10s;
  Pair pair(config);
  pair.b.receive();
  const auto send = pair.a.send(pair.b, "far");
  ASSERT_TRUE(pair.run_until_idle());
  EXPECT_EQ(pair.a.status(send), Status::ok);
  EXPECT_EQ(pair.a.engine().counters().retrans_pkts, 0U);
}

}  // namespace
}  // namespace weft::testing
