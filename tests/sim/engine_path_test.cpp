// Owns the stories of paths that die, come back, or differ.
#include <gtest/gtest.h>

#include <set>

#include "tests/support/lab.hpp"

namespace weft::testing {
namespace {

// Data and probes that host 0 has sent, by path. To be made before the traffic, and to live as long
// as the pair runs.
class PathLog {
 public:
  explicit PathLog(Pair& pair) {
    pair.network().observe([this](TimePoint when, world::NetworkEvent event, const auto& packet) {
      if (event != world::NetworkEvent::sent || packet.from != 0) {
        return;
      }
      const Packet kind = world::kind_of(packet.bytes);
      if (world::matches(Packet::data, kind)) {
        data_.emplace_back(when, packet.path.value());
      } else if (kind == Packet::probe) {
        ++probes_[packet.path.value()];
      }
    });
  }
  std::size_t data_on(std::uint16_t path, TimePoint since) const {
    std::size_t count = 0;
    for (const auto& [when, p] : data_) {
      count += p == path && when >= since;
    }
    return count;
  }
  TimePoint last_on(std::uint16_t path) const {
    TimePoint last{};
    for (const auto& [when, p] : data_) {
      last = p == path ? when : last;
    }
    return last;
  }
  std::set<std::uint16_t> used() const {
    std::set<std::uint16_t> paths;
    for (const auto& [when, p] : data_) {
      paths.insert(p);
    }
    return paths;
  }
  std::size_t probes_on(std::uint16_t path) { return probes_[path]; }

 private:
  std::vector<std::pair<TimePoint, std::uint16_t>> data_;
  std::map<std::uint16_t, std::size_t> probes_;
};

// At 10 Gb/s a megabyte takes 0.8 ms: long enough for a path to die in its midst.
LabConfig streaming_config() {
  LabConfig config = lab_config();
  config.link.rate = Rate::gbps(10);
  config.engine.line_rate = Rate::gbps(10);
  config.engine.path_probe_interval = 500us;
  return config;
}

// Oblivious spraying by definition uses all; adaptive selectors may leave some out.
TEST(EnginePath, AllPathsAreUsed) {
  LabConfig config = streaming_config();
  config.engine.path_selector = "oblivious";
  Pair pair(config);
  PathLog log(pair);
  pair.a.write(pair.b, 0, pattern(500'000));
  ASSERT_TRUE(pair.run_until_idle());
  EXPECT_EQ(log.used().size(), 16U);
}

TEST(EnginePath, ADeadPathIsAbandonedWithinOneTimeout) {
  Pair pair(streaming_config());
  PathLog log(pair);
  for (int i = 0; i < 4; ++i) {
    pair.a.write(pair.b, 0, pattern(1'000'000));
  }
  pair.run_for(300us);
  ASSERT_GT(log.data_on(5, TimePoint{}), 5U);
  const TimePoint death = pair.now();
  pair.network().kill_path(0, 5);
  pair.run_for(1ms);

  EXPECT_EQ(pair.a.engine().counters().paths_abandoned, 1U);
  // Queueing included: five round trips of the idle network, and what stood in the queue.
  EXPECT_LE(log.last_on(5) - death, 5 * pair.rtt());
  EXPECT_GT(log.probes_on(5), 0U);
}

// Packets on living paths stay unharmed: none is sent again that has arrived.
TEST(EnginePath, ADeadPathCostsNoMoreThanWhatWasInFlightOnIt) {
  Pair pair(streaming_config());
  PathLog log(pair);
  for (int i = 0; i < 4; ++i) {
    pair.a.write(pair.b, 0, pattern(1'000'000));
  }
  pair.run_for(300us);
  const TimePoint death = pair.now();
  pair.network().kill_path(0, 5);
  ASSERT_TRUE(pair.run_until([&] { return pair.a.outstanding() == 0; }));
  const auto& counters = pair.a.engine().counters();
  EXPECT_LE(counters.retrans_pkts, log.data_on(5, death));
  EXPECT_EQ(counters.spurious_retrans_pkts, 0U);
}

// [wire 4.7] Probes try abandoned paths.
TEST(EnginePath, APathThatComesBackIsTakenBack) {
  LabConfig config = streaming_config();
  config.engine.path_selector = "oblivious";  // others need not use every path that they may
  Pair pair(config);
  PathLog log(pair);
  pair.a.write(pair.b, 0, pattern(300'000));
  pair.run_for(100us);
  pair.network().kill_path(0, 3);
  ASSERT_TRUE(pair.run_until([&] { return pair.a.engine().counters().paths_abandoned == 1; }));
  pair.run_for(2ms);
  pair.network().revive_path(0, 3);
  pair.run_for(3ms);
  EXPECT_EQ(pair.a.engine().counters().paths_recovered, 1U);
  const TimePoint back = pair.now();
  pair.a.write(pair.b, 0, pattern(1'000'000));
  ASSERT_TRUE(pair.run_until_idle());
  EXPECT_GT(log.data_on(3, back), 10U);
}

// In both directions, so that acknowledgements have to find the living path, too.
TEST(EnginePath, OneLivingPathOfSixteenIsEnough) {
  Pair pair(streaming_config());
  for (std::uint16_t path = 0; path < 15; ++path) {
    pair.network().kill_path(0, path);
    pair.network().kill_path(1, path);
  }
  const std::string bytes = pattern(200'000);
  const auto write = pair.a.write(pair.b, 0, bytes);
  ASSERT_TRUE(pair.run_until([&] { return pair.a.status(write).has_value(); }));
  EXPECT_EQ(pair.a.status(write), Status::ok);
  EXPECT_EQ(pair.b.memory(0, bytes.size()), bytes);
}

// A peer that is cut off makes every path fail. Probes must stay few meanwhile, and afterwards all
// paths must come back without a flood of repetitions.
TEST(EnginePath, ASilentPeerIsNotTakenForManyDeadPaths) {
  LabConfig config = streaming_config();
  config.engine.peer_timeout = 10s;
  Pair pair(config);
  pair.a.write(pair.b, 0, pattern(1'000'000));
  pair.run_for(100us);
  pair.partition(pair.a, pair.b);
  pair.run_for(1s);
  const auto& counters = pair.a.engine().counters();
  EXPECT_GT(counters.paths_abandoned, 8U);
  EXPECT_LE(counters.path_probes, 3000U);  // one path alone would make 2000 of these
  const std::uint64_t retransmitted = counters.retrans_pkts;
  pair.rejoin(pair.a, pair.b);
  ASSERT_TRUE(pair.run_until_idle());
  pair.run_for(10ms);
  EXPECT_EQ(counters.paths_recovered, counters.paths_abandoned);
  EXPECT_LE(counters.retrans_pkts - retransmitted, 300U);
}

// Probes go out at the pace at which their answers come.
TEST(EnginePath, ASlowPeerIsNotSentMoreProbesThanItAnswers) {
  LabConfig config = streaming_config();
  config.engine.min_rto = 20ms;
  Pair pair(config);
  pair.a.write(pair.b, 0, pattern(1'000'000));
  pair.run_for(100us);
  pair.network().kill_path(0, 3);
  pair.network().kill_path(0, 4);
  for (int i = 0; i < 50; ++i) {
    pair.a.write(pair.b, 0, pattern(100'000));
    pair.run_for(10ms);
  }
  const auto& counters = pair.a.engine().counters();
  EXPECT_EQ(counters.paths_abandoned, 2U);
  EXPECT_GT(counters.path_probes, 10U);
  EXPECT_LE(counters.path_probes, 2 * 500 / 20 + 4U);
}

// Nothing is outstanding when the peer dies, so no request ends and tells; only probes of the dead
// path are still sent.
TEST(EnginePath, APeerThatDiedUnnoticedIsNotProbedForEver) {
  LabConfig config = streaming_config();
  config.engine.peer_timeout = 20ms;
  Pair pair(config);
  for (int i = 0; i < 4; ++i) {
    pair.a.write(pair.b, 0, pattern(1'000'000));
  }
  pair.run_for(300us);
  pair.network().kill_path(0, 5);
  ASSERT_TRUE(pair.run_until([&] { return pair.a.outstanding() == 0; }));
  ASSERT_EQ(pair.a.engine().counters().paths_abandoned, 1U);
  pair.crash(pair.b);
  pair.run_for(50ms);
  const std::uint64_t sent = pair.network().counts().sent;
  pair.run_for(1s);
  EXPECT_EQ(pair.network().counts().sent, sent);
}

// With nothing to send, dead paths do not matter: a process that has given up is silent.
TEST(EnginePath, AnIdleProcessDoesNotProbeForEver) {
  Pair pair(streaming_config());
  pair.partition(pair.a, pair.b);
  pair.a.send(pair.b, "into the void");
  ASSERT_TRUE(pair.run_until([&] { return pair.a.outstanding() == 0; }));
  pair.run_for(1ms);
  const std::uint64_t sent = pair.network().counts().sent;
  pair.run_for(1s);
  EXPECT_EQ(pair.network().counts().sent, sent);
}

// Nothing but the question is under way, and the policy holds on to the path that has died.
TEST(EnginePath, AQuestionWithoutAnAnswerIsAskedAlongAnotherPath) {
  LabConfig config = lab_config();
  config.engine.path_selector = "ecmp";
  config.engine.paths = 2;
  config.engine.path_timeouts_to_abandon = 3;
  config.engine.receiver_credits = true;
  config.engine.credit_window = 64;  // less than the message
  Pair pair(config);
  PathLog log(pair);
  pair.b.receive(3);
  pair.a.send(pair.b, pattern(1000));
  ASSERT_TRUE(pair.run_until_idle());
  ASSERT_EQ(log.used().size(), 1U);
  pair.network().kill_path(0, *log.used().begin());
  pair.a.send(pair.b, pattern(1000));  // overdraws what was granted
  const auto second = pair.a.send(pair.b, pattern(1000));
  EXPECT_TRUE(pair.run_until([&] { return pair.a.status(second).has_value(); }));
  EXPECT_EQ(pair.a.status(second), Status::ok);
}

// [wire 4.7] Each probe is answered, also those that arrive together.
TEST(EnginePath, PathsThatComeBackTogetherAreTakenBackTogether) {
  LabConfig config = lab_config();
  config.engine.paths = 64;
  config.engine.path_selector = "oblivious";
  config.engine.path_probe_interval = 2ms;
  Pair pair(config);
  pair.a.write(pair.b, 0, pattern(1'000'000));
  pair.run_for(30us);
  for (std::uint16_t path = 1; path < 64; ++path) {
    pair.network().kill_path(0, path);
  }
  pair.run_for(20ms);
  const auto& counters = pair.a.engine().counters();
  ASSERT_GT(counters.paths_abandoned, 32U);
  ASSERT_EQ(counters.paths_recovered, 0U);
  for (std::uint16_t path = 1; path < 64; ++path) {
    pair.network().revive_path(0, path);
  }
  pair.run_for(config.engine.path_probe_interval + 2 * pair.rtt());
  EXPECT_EQ(counters.paths_recovered, counters.paths_abandoned);
}

}  // namespace
}  // namespace weft::testing
