// Owns the stories of what others do when a process ends: it neither makes a peer wait for ever nor
// the end take long.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstring>
#include <string>
#include <vector>

#include "srd/wire/srd_codec.hpp"
#include "srd/wire/srd_header.hpp"
#include "tests/support/leaving.hpp"

namespace weft::testing {
namespace {

// The last connection was closed, and then another one was opened; the paths of what was said
// before and after differ in length.
TEST(EngineLeaveTrouble, AWordOfLeavingThatComesLateDoesNotCountForWhatWasSentAfterIt) {
  Pair pair;
  pair.b.receive();
  exchange(pair);
  pair.network().delay_next(Packet::ack, 60us);
  pair.a.engine().take_leave(pair.now(), srd::Leave::begin);
  pair.world().pump();
  const auto sent = pair.a.send(pair.b, "second");
  pair.network().add({.kind = Packet::ack, .count = 1000, .from = pair.b.host()});
  ASSERT_TRUE(pair.run_until([&] { return pair.b.inbox().size() == 2; }));
  EXPECT_TRUE(begin_to_leave(pair, pair.b));
  pair.run_for(100us);
  pair.network().clear_rules();
  leave(pair, pair.b);
  ASSERT_TRUE(pair.run_until_idle(20s));
  EXPECT_EQ(pair.a.status(sent), Status::ok);
}

// [wire 4.4, 5] An acknowledgement that is dropped has no effect but its counter.
TEST(EngineLeaveTrouble, AnAcknowledgementThatIsDroppedTellsOfNoLeaving) {
  LabConfig config = lab_config();
  config.engine.checksum = false;
  Pair pair(config);
  pair.b.receive(2);
  pair.a.receive(1);
  world::VirtualNetwork::InFlight copy;
  pair.network().observe([&](TimePoint, world::NetworkEvent event, const auto& packet) {
    if (event == world::NetworkEvent::sent && packet.from == pair.a.host() &&
        world::kind_of(packet.bytes) == Packet::ack) {
      copy = packet;
    }
  });
  pair.a.send(pair.b, "first");
  pair.b.send(pair.a, "and back");
  ASSERT_TRUE(pair.run_until_idle());
  ASSERT_FALSE(copy.bytes.empty());
  copy.to = pair.b.host();
  srd::wire::AckHeader header;
  std::memcpy(&header, copy.bytes.data(), sizeof header);
  header.common.flags = srd::wire::kLeaving;
  header.cumulative = header.cumulative.value() + 1000;  // was never sent
  header.echo_psn = pair.a.config().first_psn.value() + 2;
  std::memcpy(copy.bytes.data(), &header, sizeof header);
  const auto sent = pair.a.send(pair.b, "second");
  pair.network().add({.kind = Packet::ack, .count = 1000, .from = pair.b.host()});
  ASSERT_TRUE(pair.run_until([&] { return pair.b.inbox().size() == 2; }));
  ASSERT_TRUE(begin_to_leave(pair, pair.b));
  const auto dropped = [&] {
    return pair.b.engine()
        .counters()
        .drops[static_cast<std::size_t>(srd::DropReason::ack_not_sent)];
  };
  const auto before = dropped();
  pair.network().inject(pair.now() + 1us, copy);
  pair.run_for(10us);
  EXPECT_EQ(dropped() - before, 1U);
  EXPECT_TRUE(pair.b.engine().is_awaited());
  pair.network().clear_rules();
  leave(pair, pair.b);
  ASSERT_TRUE(pair.run_until_idle(20s));
  EXPECT_EQ(pair.a.status(sent), Status::ok);
}

// It answers each question within a round trip.
TEST(EngineLeaveTrouble, IsQuickThoughAPeerGoesOnSending) {
  Pair pair;
  pair.a.write_phantom(pair.b, std::uint64_t{1} << 30,
                       {.key = pair.b.phantom_key(), .address = Node::kPhantomAddress});
  pair.run_for(1ms);
  ASSERT_EQ(pair.a.outstanding(), 1U);
  const Duration took = leave(pair, pair.b);
  EXPECT_LE(took, 2ms) << std::chrono::duration_cast<std::chrono::microseconds>(took).count();
}

// One at a time, so that nearly always nothing is under way; each is told of by the next one only.
TEST(EngineLeaveTrouble, IsQuickThoughAPeerGoesOnSendingAFewShortMessages) {
  Pair pair;
  pair.b.receive(8000);
  pair.a.send(pair.b, "on");
  ASSERT_TRUE(pair.run_until([&] { return !pair.b.inbox().empty(); }));
  const TimePoint begin = pair.now();
  ASSERT_TRUE(begin_to_leave(pair, pair.b));
  const auto is_free = [&] {
    pair.b.engine().take_leave(pair.now(), srd::Leave::end);
    return !pair.b.engine().is_awaited();
  };
  bool once = false;
  for (int n = 0; n < 1000 && !once; ++n) {
    pair.a.send(pair.b, "on");
    once = pair.run_until(is_free, 25us);
  }
  EXPECT_TRUE(once);
  EXPECT_LE(pair.now() - begin, 2ms);
}

// Numbers come round.
TEST(EngineLeaveTrouble, APeerIsToldThatItsNumberZeroWasReached) {
  for (const std::uint32_t first : {0xFFFFFFFEU, 0xFFFFFFFFU, 0U}) {
    LabConfig config = lab_config();
    config.engine.first_psn = Psn{first};
    Pair pair(config);
    pair.b.receive();
    pair.a.send(pair.b, "the last one");
    ASSERT_TRUE(pair.run_until_idle());
    leave(pair, pair.a);
    pair.run_for(1ms);
    EXPECT_FALSE(begin_to_leave(pair, pair.b)) << "first number " << first;
    EXPECT_LE(leave(pair, pair.b), 1ms) << "first number " << first;
  }
}

TEST(EngineLeaveTrouble, NumbersThatComeRoundAreHeard) {
  for (std::uint32_t back = 0; back < 8; ++back) {
    LabConfig config = lab_config();
    config.engine.first_psn = Psn{0U - back};
    Pair pair(config);
    pair.b.receive(8);
    pair.a.receive(8);
    for (int i = 0; i < 4; ++i) {
      pair.a.send(pair.b, "there");
      pair.b.send(pair.a, "and back");
      ASSERT_TRUE(pair.run_until_idle());
    }
    EXPECT_LE(leave(pair, pair.b), 2 * pair.rtt()) << back;
  }
}

// A says its farewell (a message) and leaves, as a rank of NCCL does that knows no finalize(); then
// B leaves. Paths differ in length, so that what comes last may overtake.
TEST(EngineLeaveTrouble, APeerThatSaysGoodbyeAndLeavesIsNotWaitedForWhereItsWordsOvertake) {
  int slow = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    LabConfig config = lab_config();
    config.seed = seed;
    config.link.path_skew = 1us;
    Pair pair(config);
    pair.b.receive();
    pair.a.receive();
    exchange(pair);
    pair.a.send(pair.b, "goodbye");
    pair.world().pump();
    leave(pair, pair.a);
    pair.run_for(1ms);
    slow += leave(pair, pair.b) > 10ms ? 1 : 0;
  }
  EXPECT_EQ(slow, 0) << "of 200";
}

// Its requests have ended, as nobody answers: it is known to be dead.
TEST(EngineLeaveTrouble, APeerThatWasGivenUpIsNotWaitedFor) {
  Pair pair;
  exchange(pair);
  pair.crash(pair.a);
  const auto sent = pair.b.send(pair.a, "are you there?");
  ASSERT_TRUE(pair.run_until([&] { return pair.b.status(sent).has_value(); }, 100s));
  EXPECT_NE(pair.b.status(sent), Status::ok);
  EXPECT_LE(leave(pair, pair.b), 1ms);
}

// A process that goes on (a library that ends with its last connection, again and again).
TEST(EngineLeaveTrouble, LeavingAgainAndAgainAsksADeadPeerNoMore) {
  Lab lab(3);
  Node& a = lab[0];
  Node& b = lab[1];
  Node& dead = lab[2];
  b.receive(20);
  dead.send(b, "the last one");
  ASSERT_TRUE(lab.run_until([&] { return !b.inbox().empty(); }));
  lab.crash(dead);
  Duration waited{};
  for (int again = 0; again < 10; ++again) {
    a.send(b, "on");
    ASSERT_TRUE(lab.run_until_idle());
    waited += say_last_words(lab, b);
  }
  EXPECT_LE(waited, 250ms) << std::chrono::duration_cast<std::chrono::milliseconds>(waited).count();
}

TEST(EngineLeaveTrouble, APeerThatHasRestartedIsWaitedForAWhileOnly) {
  Pair pair;
  pair.b.receive(2);
  pair.a.send(pair.b, "first");
  ASSERT_TRUE(pair.run_until([&] { return !pair.b.inbox().empty(); }));
  pair.restart(pair.a);
  EXPECT_LE(leave(pair, pair.b), 101ms);
}

TEST(EngineLeaveTrouble, APeerThatHasRestartedAndSentIsToldAll) {
  Pair pair;
  pair.b.receive(2);
  pair.a.send(pair.b, "first");
  ASSERT_TRUE(pair.run_until([&] { return !pair.b.inbox().empty(); }));
  pair.restart(pair.a);
  pair.network().lose_next(Packet::ack, 2);
  const auto sent = pair.a.send(pair.b, "second");
  ASSERT_TRUE(pair.run_until([&] { return pair.b.inbox().size() == 2; }));
  EXPECT_LE(leave(pair, pair.b), 5ms);
  ASSERT_TRUE(pair.run_until_idle(20s));
  EXPECT_EQ(pair.a.status(sent), Status::ok);
}

TEST(EngineLeaveTrouble, RefusalsAreToldToo) {
  Pair pair;
  pair.network().lose_next(Packet::ack, 2);
  const auto sent = pair.a.send(pair.b, "the last one", {.qkey = 1});
  pair.run_for(8us);
  EXPECT_TRUE(begin_to_leave(pair, pair.b));
  EXPECT_LE(leave(pair, pair.b), 5ms);
  ASSERT_TRUE(pair.run_until_idle(20s));
  EXPECT_EQ(pair.a.status(sent), Status::bad_qkey);
}

// No receive is posted, and none will be.
TEST(EngineLeaveTrouble, APeerThatRepeatsWhatFindsNoReceiveIsNotWaitedForLong) {
  int slow = 0;
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    LabConfig config = lab_config();
    config.seed = seed;
    Pair pair(config);
    for (int n = 0; n < 40; ++n) {
      pair.a.send(pair.b, "nobody wants this");
    }
    pair.run_for(1ms + seed * 7us);
    slow += leave(pair, pair.b) > 10ms ? 1 : 0;
  }
  EXPECT_EQ(slow, 0) << "of 50";
}

TEST(EngineLeaveTrouble, GapsAreFilledFirst) {
  Pair pair;
  pair.b.receive(20);
  pair.network().lose_next(Packet::send, 1, 3);
  std::vector<std::uint64_t> sent;
  for (int n = 0; n < 10; ++n) {
    sent.push_back(pair.a.send(pair.b, "on"));
  }
  ASSERT_TRUE(pair.run_until([&] { return pair.b.inbox().size() == 9; }));
  EXPECT_LE(leave(pair, pair.b), 5ms);
  ASSERT_TRUE(pair.run_until_idle(20s));
  for (const auto one : sent) {
    EXPECT_EQ(pair.a.status(one), Status::ok);
  }
}

TEST(EngineLeaveTrouble, APeerThatOnlyReadsIsTold) {
  Pair pair;
  const auto got = pair.a.read(pair.b, 0, 100);
  ASSERT_TRUE(pair.run_until([&] { return pair.a.status(got).has_value(); }));
  EXPECT_LE(leave(pair, pair.b), 2 * pair.rtt());
  ASSERT_TRUE(pair.run_until_idle(20s));
  EXPECT_EQ(pair.a.status(got), Status::ok);
}

TEST(EngineLeaveTrouble, WorksWithRationedCreditsAndLoss) {
  int failed = 0;
  int slow = 0;
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    LabConfig config = lab_config();
    config.seed = seed;
    config.engine.receiver_credits = true;
    config.link.loss = 0.05;
    config.link.rate = Rate::gbps(100);
    Pair pair(config);
    pair.b.receive(40);
    std::vector<std::uint64_t> sent;
    for (int n = 0; n < 20; ++n) {
      sent.push_back(pair.a.send(pair.b, pattern(1000)));
    }
    ASSERT_TRUE(pair.run_until([&] { return pair.b.inbox().size() == 20; }));
    slow += leave(pair, pair.b) > 50ms ? 1 : 0;
    ASSERT_TRUE(pair.run_until_idle(100s));
    for (const auto one : sent) {
      failed += pair.a.status(one) == Status::ok ? 0 : 1;
    }
  }
  EXPECT_EQ(failed, 0);
  EXPECT_EQ(slow, 0);
}

TEST(EngineLeaveTrouble, OfAProcessThatSpeaksToItselfIsQuick) {
  Lab lab(1);
  lab[0].receive(2);
  lab[0].send(lab[0], "to myself");
  ASSERT_TRUE(lab.run_until([&] { return !lab[0].inbox().empty(); }));
  EXPECT_LE(leave(lab, lab[0]), 2 * lab.rtt());
}

TEST(EngineLeaveTrouble, WithAThousandPeersIsOneRoundTrip) {
  constexpr std::uint32_t kPeers = 1000;
  Lab lab(kPeers + 1);
  lab[0].receive(kPeers);
  for (std::uint32_t i = 1; i <= kPeers; ++i) {
    lab[i].send(lab[0], "on");
  }
  ASSERT_TRUE(lab.run_until([&] { return lab[0].inbox().size() == kPeers; }));
  EXPECT_TRUE(begin_to_leave(lab, lab[0]));
  EXPECT_LE(leave(lab, lab[0]), 2 * lab.rtt());
}

// Both ask and answer: the questions of neither make others.
TEST(EngineLeaveTrouble, AFloodOfWordsOfLeavingIsAnsweredOnceEach) {
  Pair pair;
  pair.b.receive();
  pair.a.receive();
  exchange(pair);
  int sent = 0;
  pair.network().observe([&](TimePoint, world::NetworkEvent event, const auto&) {
    sent += event == world::NetworkEvent::sent ? 1 : 0;
  });
  pair.network().duplicate_next(Packet::ack, 1);
  pair.network().duplicate_next(Packet::probe, 1);
  pair.a.engine().take_leave(pair.now(), srd::Leave::begin);
  pair.b.engine().take_leave(pair.now(), srd::Leave::begin);
  pair.run_for(10ms);
  EXPECT_LE(sent, 14);
}

// As a rank of NCCL that watches its partner: what finds no receive is repeated, with new numbers,
// for as long as the process lives. It says again that it leaves.
TEST(EngineLeaveTrouble, APeerThatHasSaidThatItLeavesIsNotWaitedForThoughItRepeatsWhatWasRefused) {
  Pair pair;
  exchange(pair);
  pair.a.send(pair.b, "are you there?");  // there is no receive, and will be none
  pair.run_for(200us);
  pair.a.engine().take_leave(pair.now(), srd::Leave::begin);
  ASSERT_TRUE(pair.run_until([&] { return !pair.a.engine().is_awaited(); }));
  pair.run_for(1ms);
  pair.a.engine().take_leave(pair.now(), srd::Leave::end);
  pair.world().pump();
  pair.crash(pair.a);
  pair.run_for(1ms);
  EXPECT_LE(leave(pair, pair.b), 10ms);
}

// The same farewell where all paths are equally long.
TEST(EngineLeaveTrouble, APeerThatSaysGoodbyeAndLeavesIsNotWaitedFor) {
  Pair pair;
  pair.b.receive();
  pair.a.receive();
  exchange(pair);
  pair.a.send(pair.b, "goodbye");
  pair.world().pump();
  leave(pair, pair.a);
  pair.run_for(1ms);
  EXPECT_LE(leave(pair, pair.b), 10ms);
}

// Each says at times that it leaves (its last connection was closed), and goes on; each ends as
// soon as it has all. Counts requests that failed.
int failed_requests(std::uint64_t seed, bool says_so_before) {
  LabConfig config = lab_config();
  config.seed = seed;
  config.link.loss = 0.1;
  config.link.reorder = 0.2;
  config.link.reorder_delay = 200us;
  config.link.path_skew = 2us;
  Lab lab(2, config);
  constexpr std::size_t kMessages = 6;
  std::array<std::vector<std::uint64_t>, 2> requests;
  std::size_t expected = 0;
  for (std::uint32_t i = 0; i < 2; ++i) {
    lab[i].receive(2 * kMessages);
  }
  for (std::size_t n = 0; n < kMessages; ++n) {
    for (std::uint32_t i = 0; i < 2; ++i) {
      requests[i].push_back(lab[i].send(lab[1 - i], "on"));
    }
    ++expected;
    if (!lab.run_until([&] { return lab[0].outstanding() + lab[1].outstanding() == 0; }, 100s)) {
      return -1;
    }
    if (says_so_before && n + 1 != kMessages) {
      lab[0].engine().take_leave(lab.now(), srd::Leave::begin);
      lab[1].engine().take_leave(lab.now(), srd::Leave::begin);
      lab.world().pump();
    }
  }
  // One more from the first to the second, which then ends at once.
  requests[0].push_back(lab[0].send(lab[1], "the last one"));
  if (!lab.run_until([&] { return lab[1].inbox().size() == expected + 1; }, 100s)) {
    return -1;
  }
  leave(lab, lab[1]);
  lab.run_until([&] { return lab[0].outstanding() == 0; }, 100s);
  int failed = 0;
  for (const auto one : requests[0]) {
    failed += lab[0].status(one) == Status::ok ? 0 : 1;
  }
  return failed;
}

TEST(EngineLeaveTrouble, SayingSoAndGoingOnDoesNotMakeRequestsFail) {
  int failed = 0;
  int without = 0;
  for (std::uint64_t seed = 1; seed <= 2000; ++seed) {
    failed += failed_requests(seed, true);
    without += failed_requests(seed, false);
  }
  EXPECT_EQ(without, 0);
  EXPECT_EQ(failed, 0);
}

}  // namespace
}  // namespace weft::testing
