// Owns the stories of processes that end: nobody waits for an acknowledgement that died with them.
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "srd/wire/srd_header.hpp"
#include "tests/support/leaving.hpp"

namespace weft::testing {
namespace {

// Packets that hosts have sent, by kind.
class Traffic {
 public:
  explicit Traffic(world::VirtualNetwork& network) {
    network.observe([this](TimePoint, world::NetworkEvent event, const auto& packet) {
      sent_ += event == world::NetworkEvent::sent ? 1 : 0;
      from_[packet.from % from_.size()] += event == world::NetworkEvent::sent ? 1 : 0;
    });
  }
  [[nodiscard]] int sent() const { return sent_; }
  [[nodiscard]] int sent_by(const Node& node) const { return from_[node.host()]; }

 private:
  int sent_ = 0;
  std::array<int, 4> from_{};
};

TEST(EngineLeave, RepeatsWhatThePeerHasNotHeard) {
  Pair pair;
  pair.b.receive();
  pair.network().lose_next(Packet::ack, 2);
  const auto sent = pair.a.send(pair.b, "the last one");
  ASSERT_TRUE(pair.run_until([&] { return !pair.b.inbox().empty(); }));
  EXPECT_TRUE(begin_to_leave(pair, pair.b));
  leave(pair, pair.b);
  ASSERT_TRUE(pair.run_until_idle());
  EXPECT_EQ(pair.a.status(sent), Status::ok);
}

// The answer to the question is lost, too.
TEST(EngineLeave, AsksAgainWhereTheAnswerIsLost) {
  Pair pair;
  pair.b.receive();
  pair.network().lose_next(Packet::ack, 1);
  pair.network().lose_next(Packet::probe, 1);
  const auto sent = pair.a.send(pair.b, "the last one");
  ASSERT_TRUE(pair.run_until([&] { return !pair.b.inbox().empty(); }));
  const TimePoint begin = pair.now();
  leave(pair, pair.b);
  EXPECT_LT(pair.now() - begin, 4ms);
  ASSERT_TRUE(pair.run_until_idle());
  EXPECT_EQ(pair.a.status(sent), Status::ok);
}

// A question and its answer, and what the other one is told: no more.
TEST(EngineLeave, TakesARoundTrip) {
  Pair pair;
  exchange(pair);
  const Traffic traffic(pair.network());
  const TimePoint begin = pair.now();
  leave(pair, pair.b);
  EXPECT_LE(pair.now() - begin, 2 * pair.rtt());
  pair.run_for(1ms);
  EXPECT_LE(traffic.sent(), 6);
}

// It cannot be known to live: one packet, in case it does.
TEST(EngineLeave, WaitsForNoPeerThatHasLeft) {
  Pair pair;
  exchange(pair);
  leave(pair, pair.b);
  pair.run_for(1ms);
  const Traffic traffic(pair.network());
  const TimePoint begin = pair.now();
  leave(pair, pair.a);
  EXPECT_EQ(traffic.sent_by(pair.a), 1);
  EXPECT_EQ(pair.now(), begin);
}

TEST(EngineLeave, SaysItAgainOnlyWhereItHasSentSomethingSince) {
  Pair pair;
  pair.b.receive(2);
  pair.a.send(pair.b, "there");
  ASSERT_TRUE(pair.run_until_idle());
  say_last_words(pair, pair.a);
  ASSERT_TRUE(pair.run_until_idle());
  const Traffic traffic(pair.network());
  const auto end = [&] {
    pair.a.engine().take_leave(pair.now(), srd::Leave::end);
    pair.run_for(1ms);
    return traffic.sent_by(pair.a);
  };
  EXPECT_EQ(end(), 0);
  pair.a.send(pair.b, "after all");
  ASSERT_TRUE(pair.run_until_idle());
  const int sent = traffic.sent_by(pair.a);
  EXPECT_EQ(end(), sent + 1);
}

// Nothing has come from the peer that could be answered.
TEST(EngineLeave, IsSaidBetweenTheEndpointsOfTheLatestRequest) {
  const Qpn other{99};
  Pair pair;
  pair.b.open(other, {.qkey = kQkey, .receive_depth = 1});
  pair.b.receive(1, 4096, other);
  pair.a.send(pair.b, "there", {.destination = other});
  ASSERT_TRUE(pair.run_until_idle());
  int acks = 0;
  pair.network().observe([&](TimePoint, world::NetworkEvent event, const auto& packet) {
    srd::wire::CommonHeader header;
    if (event == world::NetworkEvent::sent && packet.from == pair.a.host() &&
        world::kind_of(packet.bytes) == Packet::ack && srd::wire::load(packet.bytes, header)) {
      ++acks;
      EXPECT_EQ(header.destination_qpn.value(), other.value());
      EXPECT_EQ(header.source_qpn.value(), kEndpoint.value());
    }
  });
  leave(pair, pair.a);
  EXPECT_EQ(acks, 1);
}

TEST(EngineLeave, DoesNotWaitForAPeerThatLeavesAtTheSameTime) {
  Pair pair;
  exchange(pair);
  pair.a.engine().take_leave(pair.now(), srd::Leave::begin);
  pair.b.engine().take_leave(pair.now(), srd::Leave::begin);
  ASSERT_TRUE(
      pair.run_until([&] { return !pair.a.engine().is_awaited() && !pair.b.engine().is_awaited(); },
                     2 * pair.rtt()));
}

// The last connection was closed, and then another one was opened.
TEST(EngineLeave, IsForgottenWhenWorkGoesOn) {
  Pair pair;
  pair.b.receive();
  exchange(pair);
  pair.a.engine().take_leave(pair.now(), srd::Leave::begin);
  pair.b.engine().take_leave(pair.now(), srd::Leave::begin);
  ASSERT_TRUE(pair.run_until_idle());
  pair.network().lose_next(Packet::ack, 2);
  const auto sent = pair.a.send(pair.b, "second");
  ASSERT_TRUE(pair.run_until([&] { return pair.b.inbox().size() == 2; }));
  leave(pair, pair.b);
  ASSERT_TRUE(pair.run_until_idle());
  EXPECT_EQ(pair.a.status(sent), Status::ok);
}

TEST(EngineLeave, OfADeadPeerEndsAfterAWhile) {
  Pair pair;
  pair.b.receive();
  pair.a.send(pair.b, "the last one");
  ASSERT_TRUE(pair.run_until([&] { return !pair.b.inbox().empty(); }));
  pair.crash(pair.a);
  const Traffic traffic(pair.network());
  const TimePoint begin = pair.now();
  leave(pair, pair.b);
  EXPECT_GE(pair.now() - begin, 100ms);
  EXPECT_LE(pair.now() - begin, 200ms);
  EXPECT_LE(traffic.sent(), 9);
}

// [wire 4.10] Each ends as soon as it has all, in its own time.
class EngineLeaveIn : public ::testing::TestWithParam<double> {};
INSTANTIATE_TEST_SUITE_P(Loss, EngineLeaveIn, ::testing::Values(0.01, 0.1, 0.2));

TEST_P(EngineLeaveIn, ALossyNetworkNoRequestFails) {
  constexpr std::size_t kMessages = 5;
  int failed = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    LabConfig config = lab_config();
    config.seed = seed;
    config.link.loss = GetParam();
    config.link.reorder = 0.1;
    Lab lab(3, config);
    std::array<std::vector<std::uint64_t>, 3> requests;
    for (std::uint32_t i = 0; i < 3; ++i) {
      lab[i].receive(2 * kMessages);
    }
    for (std::size_t n = 0; n < kMessages; ++n) {
      for (std::uint32_t i = 0; i < 3; ++i) {
        requests[i].push_back(lab[i].send(lab[(i + 1) % 3], "on"));
        requests[i].push_back(lab[i].send(lab[(i + 2) % 3], "on"));
      }
    }
    const auto is_done = [&](std::uint32_t i) {
      return lab[i].inbox().size() == 2 * kMessages && lab[i].outstanding() == 0;
    };
    std::array<bool, 3> gone{};
    for (int left = 3; left != 0;) {
      const auto next = [&] {
        for (std::uint32_t i = 0; i < 3; ++i) {
          if (!gone[i] && is_done(i)) {
            return i;
          }
        }
        return 3U;
      };
      ASSERT_TRUE(lab.run_until([&] { return next() != 3U; }, 100s)) << "seed " << seed;
      const std::uint32_t i = next();
      for (const std::uint64_t one : requests[i]) {
        failed += lab[i].status(one) == Status::ok ? 0 : 1;
      }
      gone[i] = true;
      --left;
      leave(lab, lab[i]);
    }
  }
  EXPECT_EQ(failed, 0);
}

}  // namespace
}  // namespace weft::testing
