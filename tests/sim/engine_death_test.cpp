// Owns the stories of peers that do not answer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/lab.hpp"

namespace weft::testing {
namespace {

LabConfig impatient() {
  LabConfig config = lab_config();
  config.engine.peer_timeout = 20ms;
  config.engine.max_rto = 4ms;
  return config;
}

TEST(EngineDeath, WhoNeverAnsweredIsUnreachable) {
  Pair pair(impatient());
  pair.crash(pair.b);
  const auto send = pair.a.send(pair.b, "anybody there?");
  const auto write = pair.a.write(pair.b, 0, pattern(5000));
  const auto read = pair.a.read(pair.b, 0, 100);
  ASSERT_TRUE(pair.run_until([&] { return pair.a.outstanding() == 0; }, 40ms));
  EXPECT_EQ(pair.a.status(send), Status::unreachable);
  EXPECT_EQ(pair.a.status(write), Status::unreachable);
  EXPECT_EQ(pair.a.status(read), Status::unreachable);
  EXPECT_EQ(pair.a.engine().counters().unreachable_remote_events, 1U);
  EXPECT_GE(pair.elapsed(), 20ms);
}

TEST(EngineDeath, WhoAnsweredOnceIsUnresponsive) {
  Pair pair(impatient());
  pair.b.receive(2);
  pair.a.send(pair.b, "hello");
  ASSERT_TRUE(pair.run_until_idle());
  pair.crash(pair.b);
  const auto send = pair.a.send(pair.b, "still there?");
  ASSERT_TRUE(pair.run_until([&] { return pair.a.outstanding() == 0; }, 40ms));
  EXPECT_EQ(pair.a.status(send), Status::unresponsive);
  EXPECT_EQ(pair.a.engine().counters().unresponsive_remote_events, 1U);
}

TEST(EngineDeath, HurtsOnlyTheWorkTowardsThatPeer) {
  Lab lab(3, impatient());
  lab[2].receive(100);
  lab.crash(lab[1]);
  const auto lost = lab[0].send(lab[1], "to the dead");
  for (int i = 0; i < 100; ++i) {
    lab[0].send(lab[2], "to the living");
    lab.run_for(300us);
  }
  ASSERT_TRUE(lab.run_until_idle());
  EXPECT_EQ(lab[0].status(lost), Status::unreachable);
  EXPECT_EQ(lab[2].inbox().size(), 100U);
}

TEST(EngineDeath, TheContextSurvivesAndLaterWorkSucceeds) {
  Pair pair(impatient());
  pair.b.receive(10);
  pair.a.send(pair.b, "before");
  ASSERT_TRUE(pair.run_until_idle());
  pair.partition(pair.a, pair.b);
  const auto lost = pair.a.send(pair.b, "lost");
  ASSERT_TRUE(pair.run_until([&] { return pair.a.outstanding() == 0; }));
  EXPECT_EQ(pair.a.status(lost), Status::unresponsive);
  pair.rejoin(pair.a, pair.b);
  const auto after = pair.a.send(pair.b, "after");
  ASSERT_TRUE(pair.run_until_idle());
  EXPECT_EQ(pair.a.status(after), Status::ok);
  EXPECT_EQ(pair.b.texts().back(), "after");
}

TEST(EngineDeath, AShortSilenceKillsNobody) {
  Pair pair(impatient());
  pair.b.receive(200);
  for (int i = 0; i < 100; ++i) {
    pair.a.send(pair.b, pattern(1000));
  }
  pair.run_for(8us);
  pair.partition(pair.a, pair.b);
  pair.run_for(10ms);
  pair.rejoin(pair.a, pair.b);
  ASSERT_TRUE(pair.run_until_idle());
  EXPECT_EQ(pair.b.inbox().size(), 100U);
  EXPECT_EQ(pair.a.engine().counters().unresponsive_remote_events, 0U);
}

TEST(EngineDeath, APausedPeerIsForgivenOnceItWakes) {
  LabConfig config = impatient();
  config.engine.peer_timeout = 100ms;
  Pair pair(config);
  pair.b.receive(10);
  pair.world().pause(1);
  const auto patient = pair.a.send(pair.b, "wake up");
  pair.run_for(60ms);
  pair.world().resume(1);
  ASSERT_TRUE(pair.run_until_idle());
  EXPECT_EQ(pair.a.status(patient), Status::ok);
  EXPECT_THAT(pair.b.texts(), ::testing::ElementsAre("wake up"));
}

TEST(EngineDeath, OneWayIsNoWay) {
  Pair pair(impatient());
  pair.b.receive(10);
  pair.network().partition(1, 0);  // b hears a, a does not hear b
  const auto send = pair.a.send(pair.b, "heard but not answered");
  ASSERT_TRUE(pair.run_until([&] { return pair.a.outstanding() == 0; }));
  EXPECT_EQ(pair.a.status(send), Status::unreachable);
  EXPECT_EQ(pair.b.inbox().size(), 1U);
}

TEST(EngineDeath, SilenceWhenNobodyAskedIsNotHeldAgainstAPeer) {
  Pair pair(impatient());
  pair.b.receive(2);
  pair.a.send(pair.b, "hello");
  ASSERT_TRUE(pair.run_until_idle());
  pair.partition(pair.a, pair.b);
  pair.a.send(pair.b, "given up after two timeouts");
  pair.run_for(8ms);
  pair.a.engine().flush(pair.a.peer(pair.b), kEndpoint);
  pair.run_for(1s);
  const auto send = pair.a.send(pair.b, "still there?");
  pair.run_for(19ms);
  EXPECT_EQ(pair.a.status(send), std::nullopt);
  ASSERT_TRUE(pair.run_until_idle());
  EXPECT_EQ(pair.a.status(send), Status::unresponsive);
}

// A sender that waits for credits, or for the bytes of a read, has nothing to send again: the
// questions are all that can show that the peer lives.
TEST(EngineDeath, QuestionsMayGetLostAsOftenAsWhatIsSentAgain) {
  LabConfig config = impatient();
  config.engine.min_rto = config.engine.max_rto;
  config.engine.receiver_credits = true;
  config.engine.credit_window = 64;  // less than the message
  Pair pair(config);
  pair.b.receive(3);
  pair.a.send(pair.b, pattern(1000));
  ASSERT_TRUE(pair.run_until_idle());
  pair.network().lose_next(Packet::credit_request, 4);
  pair.a.send(pair.b, pattern(1000));  // overdraws what was granted
  const auto second = pair.a.send(pair.b, pattern(1000));
  ASSERT_TRUE(pair.run_until([&] { return pair.a.status(second).has_value(); }));
  EXPECT_EQ(pair.a.status(second), Status::ok);
}

// Stopped, suspended, or without a core: the process did not listen meanwhile.
TEST(EngineDeath, TheTimeThatAProcessSleptIsNotHeldAgainstItsPeers) {
  Pair pair(impatient());
  pair.b.receive(2);
  pair.a.send(pair.b, "hello");
  ASSERT_TRUE(pair.run_until_idle());
  pair.network().lose_next(Packet::send);
  const auto send = pair.a.send(pair.b, "good night");
  pair.run_for(1us);
  pair.world().pause(0);
  pair.run_for(10s);
  pair.partition(pair.a, pair.b);  // the network wakes a little later
  pair.world().resume(0);
  pair.run_for(10ms);
  pair.rejoin(pair.a, pair.b);
  ASSERT_TRUE(pair.run_until_idle());
  EXPECT_EQ(pair.a.status(send), Status::ok);
}

}  // namespace
}  // namespace weft::testing
