// Owns the stories of sends on a healthy network: what arrives, where, and with which particulars.
// The link has a latency and no rate, so times are exact: nothing but distance takes time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/lab.hpp"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

TEST(EngineSend, ArrivesAndCompletesAtBothEnds) {
  Pair pair;
  pair.b.receive();
  const auto hello = pair.a.send(pair.b, "hello");
  EXPECT_EQ(pair.a.status(hello), std::nullopt);

  ASSERT_TRUE(pair.run_until_idle());

  EXPECT_EQ(pair.a.status(hello), Status::ok);
  ASSERT_THAT(pair.b.texts(), ElementsAre("hello"));
  const Completion& arrival = pair.b.inbox()[0].completion;
  EXPECT_EQ(arrival.kind, Completion::Kind::receive);
  EXPECT_EQ(arrival.endpoint, kEndpoint);
  EXPECT_EQ(arrival.remote, kEndpoint);
  EXPECT_EQ(arrival.length, 5U);
  EXPECT_FALSE(arrival.has_immediate);
  EXPECT_EQ(pair.b.engine().key_of(arrival.peer).address, world::address_of_host(0));
}

TEST(EngineSend, CompletesOneRoundTripAfterItLeft) {
  Pair pair;
  pair.b.receive();
  const auto hello = pair.a.send(pair.b, "hello");
  ASSERT_TRUE(pair.run_until([&] { return pair.a.status(hello).has_value(); }));
  // Exactly: neither end may let a packet or an acknowledgement lie.
  EXPECT_EQ(pair.elapsed(), pair.rtt());
}

TEST(EngineSend, CarriesImmediateDataAndNoBytesAtAll) {
  Pair pair;
  pair.b.receive(2);
  pair.a.send(pair.b, "", {.immediate = 0xCAFE});
  pair.a.send(pair.b, "");
  ASSERT_TRUE(pair.run_until_idle());
  ASSERT_EQ(pair.b.inbox().size(), 2U);
  int with_immediate = 0;
  for (const Message& message : pair.b.inbox()) {
    EXPECT_EQ(message.completion.length, 0U);
    if (message.completion.has_immediate) {
      ++with_immediate;
      EXPECT_EQ(message.completion.immediate, 0xCAFEU);
    }
  }
  EXPECT_EQ(with_immediate, 1);
}

TEST(EngineSend, FillsAWholePacketAndNotOneByteMore) {
  Pair pair;
  pair.b.receive(1, 2000);
  const std::string largest = pattern(pair.a.engine().max_send_size());
  pair.a.send(pair.b, largest);
  EXPECT_EQ(pair.a.try_send(pair.b, largest + "x"), std::nullopt);
  ASSERT_TRUE(pair.run_until_idle());
  EXPECT_THAT(pair.b.texts(), ElementsAre(largest));
}

// One after the other, as a program posts them: with a poll in between.
std::uint64_t acknowledgements_of(bool sparingly, double loss) {
  constexpr int kSends = 400;
  LabConfig config = lab_config();
  config.engine.ask_sparingly = sparingly;
  config.engine.ack_every = 8;
  config.link.loss = loss;
  Pair pair(config);
  pair.b.receive(kSends);
  for (int i = 0; i < kSends; ++i) {
    pair.a.send(pair.b, pattern(64, static_cast<std::uint64_t>(i)));
    // Shorter than a round trip: sends overtake the acknowledgements of those before.
    pair.run_for(500ns);
  }
  EXPECT_TRUE(pair.run_until_idle());
  EXPECT_EQ(pair.b.inbox().size(), static_cast<std::size_t>(kSends));
  return pair.b.engine().counters().acks_sent;
}

TEST(EngineSend, PacketsInARowNeedNotAskOneByOne) {
  // One for each packet; sparingly, one for each eight, and some for the ends of rows.
  EXPECT_GE(acknowledgements_of(false, 0), 400U);
  EXPECT_LE(acknowledgements_of(true, 0), 150U);
}

// That all have arrived is checked in acknowledgements_of().
TEST(EngineSend, WhoDoesNotAskStillLearnsOfLosses) { (void)acknowledgements_of(true, 0.05); }

TEST(EngineSend, BothWaysAtOnceOverOneContext) {
  Pair pair;
  pair.a.receive(50);
  pair.b.receive(50);
  for (int i = 0; i < 50; ++i) {
    pair.a.send(pair.b, "to b " + std::to_string(i));
    pair.b.send(pair.a, "to a " + std::to_string(i));
  }
  ASSERT_TRUE(pair.run_until_idle());
  EXPECT_EQ(pair.a.inbox().size(), 50U);
  EXPECT_EQ(pair.b.inbox().size(), 50U);
  EXPECT_EQ(pair.a.engine().counters().retrans_pkts, 0U);
}

TEST(EngineSend, EndpointsOfOneProcessShareTheContext) {
  Pair pair;
  const Qpn other{99};
  pair.a.open(other, {.qkey = kQkey, .domain = kDomain, .receive_depth = 8});
  pair.b.open(other, {.qkey = 7, .domain = kDomain, .receive_depth = 8});
  pair.b.receive(1);
  pair.b.receive(1, 100, other);
  pair.a.send(pair.b, "usual");
  pair.a.send(pair.b, "other", {.source = other, .destination = other, .qkey = 7});
  ASSERT_TRUE(pair.run_until_idle());
  EXPECT_THAT(pair.b.texts(), UnorderedElementsAre("usual", "other"));
  for (const Message& message : pair.b.inbox()) {
    EXPECT_EQ(message.completion.endpoint, message.text == "other" ? other : kEndpoint);
    EXPECT_EQ(message.completion.remote, message.text == "other" ? other : kEndpoint);
  }
}

TEST(EngineSend, ManySendersToOneReceiver) {
  Lab lab(6);
  lab[0].receive(500);
  for (std::uint32_t from = 1; from < 6; ++from) {
    for (int i = 0; i < 100; ++i) {
      lab[from].send(lab[0], pattern(200, from * 1000));
    }
  }
  ASSERT_TRUE(lab.run_until_idle());
  EXPECT_EQ(lab[0].inbox().size(), 500U);
}

// Loss and jitter are drawn, and each draw shows in the digest of what the network has carried.
TEST(EngineSend, ARunIsAFunctionOfItsSeed) {
  const auto run = [](std::uint64_t seed) {
    LabConfig config = lab_config();
    config.seed = seed;
    config.link.loss = 0.05;
    config.link.jitter = 1us;
    Pair pair(config);
    pair.b.receive(200);
    for (int i = 0; i < 200; ++i) {
      pair.a.send(pair.b, pattern(100, static_cast<std::uint64_t>(i)));
    }
    EXPECT_TRUE(pair.run_until_idle());
    return pair.network().digest().value();
  };
  EXPECT_EQ(run(1), run(1));
  EXPECT_NE(run(1), run(2));
}

}  // namespace
}  // namespace weft::testing
