// Owns the stories of work that is cancelled while it is under way. Its memory is freed at once:
// the address sanitizer watches that it is not touched again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "tests/support/lab.hpp"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;

// On a slow link, so that at the moment of closing some of the work has ended, some is under way
// and some has not left. The last run gives late packets time to hit memory that is gone.
TEST(EngineClose, EndsEverythingOfTheEndpointAndFreesItsMemory) {
  LabConfig config = lab_config();
  config.link.rate = Rate::gbps(1);
  config.link.loss = 0.05;
  Pair pair(config);
  pair.a.receive(10);
  std::vector<std::uint64_t> cookies;
  for (int i = 0; i < 20; ++i) {
    cookies.push_back(pair.a.send(pair.b, pattern(1000)));
    cookies.push_back(pair.a.write(pair.b, 0, pattern(30'000)));
    cookies.push_back(pair.a.read(pair.b, 0, 30'000));
  }
  pair.run_for(200us);
  pair.a.close(kEndpoint);
  EXPECT_EQ(pair.a.outstanding(), 0U);
  EXPECT_EQ(pair.a.receives_posted(), 0U);
  std::size_t flushed = 0;
  for (const auto cookie : cookies) {
    flushed += pair.a.status(cookie) == Status::flushed;
  }
  EXPECT_GT(flushed, 20U);
  pair.run_for(50ms);
}

// Endpoints share the reliability context: numbers of the closed one's packets must still be
// settled.
TEST(EngineClose, LeavesTheContextToTheOtherEndpoints) {
  Pair pair;
  const Qpn other{99};
  pair.a.open(other, {.qkey = kQkey, .domain = kDomain});
  pair.b.receive(50);
  std::vector<std::uint64_t> kept;
  for (int i = 0; i < 20; ++i) {
    pair.a.write(pair.b, 0, pattern(10'000));
    kept.push_back(pair.a.send(pair.b, "kept", {.source = other}));
  }
  pair.run_for(7us);
  pair.a.close(kEndpoint);
  ASSERT_TRUE(pair.run_until_idle());
  for (const auto cookie : kept) {
    EXPECT_EQ(pair.a.status(cookie), Status::ok);
  }
  EXPECT_EQ(pair.b.inbox().size(), 20U);
}

// As when an address handle is destroyed. The peer is cut off, so nothing but the flush can end the
// send.
TEST(EngineClose, FlushEndsOnlyWhatGoesToThatPeer) {
  Lab lab(3);
  lab[1].receive(10);
  lab[2].receive(10);
  lab.partition(lab[0], lab[1]);
  const auto cancelled = lab[0].send(lab[1], "cancelled");
  const auto kept = lab[0].send(lab[2], "kept");
  lab.run_for(2us);
  lab[0].engine().flush(lab[0].peer(lab[1]), kEndpoint);
  ASSERT_TRUE(lab.run_until_idle());
  EXPECT_EQ(lab[0].status(cancelled), Status::flushed);
  EXPECT_EQ(lab[0].status(kept), Status::ok);
}

// The owner takes memory back from some of the work that is under way: everything else goes on.
TEST(EngineClose, RevokedWorkEndsUnlessItHasLeftAndArrives) {
  LabConfig config = lab_config();
  config.link.rate = Rate::gbps(1);
  config.link.loss = 0.05;
  Pair pair(config);
  pair.a.receive(10);
  pair.b.receive(20);
  std::vector<std::uint64_t> cookies;
  for (int i = 0; i < 20; ++i) {
    cookies.push_back(pair.a.send(pair.b, pattern(1000)));
    cookies.push_back(pair.a.write(pair.b, 0, pattern(30'000)));
    cookies.push_back(pair.a.read(pair.b, 0, 30'000));
  }
  pair.run_for(200us);
  std::vector<std::uint64_t> open;
  for (const auto cookie : cookies) {
    if (!pair.a.status(cookie)) {
      open.push_back(cookie);
    }
  }
  ASSERT_GT(open.size(), 20U);
  pair.a.engine().revoke([](std::uint64_t cookie) { return cookie % 2 == 0; });
  pair.run_for(1us);
  EXPECT_EQ(pair.a.receives_posted(), 5U);
  ASSERT_TRUE(pair.run_until_idle());
  std::map<Status, int> revoked;
  for (const auto cookie : open) {
    ASSERT_TRUE(pair.a.status(cookie));
    if (cookie % 2 != 0) {
      EXPECT_EQ(pair.a.status(cookie), Status::ok);
    } else {
      ++revoked[*pair.a.status(cookie)];
    }
  }
  EXPECT_GT(revoked[Status::local_protection], 10);
  EXPECT_EQ(revoked[Status::local_protection] + revoked[Status::ok],
            static_cast<int>(std::count_if(open.begin(), open.end(),
                                           [](auto cookie) { return cookie % 2 == 0; })));
  pair.b.send(pair.a, "still there");
  ASSERT_TRUE(pair.run_until_idle());
  EXPECT_THAT(pair.a.texts(), ElementsAre("still there"));
}

// The message is there, only its acknowledgement is still under way.
TEST(EngineClose, WhatHasArrivedSucceedsThoughItsMemoryIsTakenBack) {
  Pair pair;
  pair.b.receive(1);
  const auto send = pair.a.send(pair.b, "hello");
  ASSERT_TRUE(pair.run_until([&] { return pair.b.inbox().size() == 1; }));
  ASSERT_FALSE(pair.a.status(send));
  pair.a.engine().revoke([](std::uint64_t) { return true; });
  ASSERT_TRUE(pair.run_until_idle());
  EXPECT_EQ(pair.a.status(send), Status::ok);
}

// A receiver that is not ready would have to be sent the bytes again.
TEST(EngineClose, WhatHasToLeaveAgainEndsWhenItsMemoryIsTakenBack) {
  Pair pair;
  const auto send = pair.a.send(pair.b, "hello");
  pair.run_for(pair.rtt() / 4);
  pair.a.engine().revoke([](std::uint64_t) { return true; });
  ASSERT_FALSE(pair.a.status(send));
  ASSERT_TRUE(pair.run_until_idle());
  EXPECT_EQ(pair.a.status(send), Status::local_protection);
}

// Nothing of the old endpoint, neither requests nor receives, may be found under its number.
TEST(EngineClose, TheNumberMayBeUsedAgain) {
  Pair pair;
  pair.a.receive(4);
  const auto old = pair.a.send(pair.b, "old");
  pair.a.close(kEndpoint);
  EXPECT_EQ(pair.a.status(old), Status::flushed);
  pair.a.open(kEndpoint, {.qkey = kQkey, .domain = kDomain, .receive_depth = 8});
  pair.a.receive(1);
  pair.b.receive(2);
  const auto fresh = pair.a.send(pair.b, "new");
  pair.b.send(pair.a, "answer");
  ASSERT_TRUE(pair.run_until_idle());
  EXPECT_EQ(pair.a.status(fresh), Status::ok);
  EXPECT_EQ(pair.a.texts().back(), "answer");
}

// To the peers it is as if it had never been there.
TEST(EngineClose, AtTheTargetGivesBadQpn) {
  Pair pair;
  pair.b.receive(10);
  pair.a.send(pair.b, "before");
  ASSERT_TRUE(pair.run_until_idle());
  pair.b.close(kEndpoint);
  EXPECT_EQ(pair.b.receives_posted(), 0U);
  const auto after = pair.a.send(pair.b, "after");
  const auto write = pair.a.write(pair.b, 0, pattern(5000), {.immediate = 1});
  ASSERT_TRUE(pair.run_until_idle());
  EXPECT_EQ(pair.a.status(after), Status::bad_qpn);
  EXPECT_EQ(pair.a.status(write), Status::bad_qpn);
}

// What is still to be sent of the read has no endpoint any more.
TEST(EngineClose, OfAnEndpointThatIsServedAReadEndsTheRead) {
  LabConfig config = lab_config();
  config.link.rate = Rate::gbps(1);
  Pair pair(config);
  const auto read = pair.a.read(pair.b, 0, 500'000);
  pair.run_for(500us);
  pair.b.close(kEndpoint);
  ASSERT_TRUE(pair.run_until_idle());
  EXPECT_EQ(pair.a.status(read), Status::bad_qpn);
}

// A whole window of the cancelled write is lost, and its bytes cannot be sent again: the window has
// to move on without them.
TEST(EngineClose, WhatWasCancelledDoesNotBlockTheWindow) {
  LabConfig config = lab_config();
  config.engine.window_packets = 8;
  Pair pair(config);
  const Qpn other{99};
  pair.a.open(other, {.qkey = kQkey, .domain = kDomain});
  pair.b.receive(100);
  pair.network().lose_next(Packet::data, 8);
  pair.a.write(pair.b, 0, pattern(100'000));
  pair.run_for(2us);
  pair.a.close(kEndpoint);
  for (int i = 0; i < 50; ++i) {
    pair.a.send(pair.b, "next", {.source = other});
  }
  ASSERT_TRUE(pair.run_until_idle());
  EXPECT_EQ(pair.b.inbox().size(), 50U);
}

}  // namespace
}  // namespace weft::testing
