// Owns the proof that ending many requests takes time in proportion to their number. Looks at
// requests, peers and window slots are counted; the clock is not asked.
#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "tests/sim/steps_of.hpp"
#include "tests/support/lab.hpp"

namespace weft::testing {
namespace {

// Far more than a request needs, and far less than the 4000 and more that a walk over all of them
// would take.
constexpr std::uint64_t kStepsPerRequest = 60;

// An engine and peers that never answer.
struct Alone {
  explicit Alone(std::uint32_t peers_wanted = 1, std::uint32_t endpoints = 1) {
    EXPECT_TRUE(srd::validate(config));
    for (std::uint32_t i = 0; i < endpoints; ++i) {
      EXPECT_TRUE(engine.open_endpoint(Qpn{i + 1}, {.qkey = kQkey, .receive_depth = 16384}));
    }
    for (std::uint32_t i = 0; i < peers_wanted; ++i) {
      peers.push_back(engine.peer(world::address_of_host(i + 1), srd::AttachmentId{}).value());
    }
  }
  void send(std::uint32_t peer = 0, std::uint32_t endpoint = 0) {
    srd::SendRequest request;
    request.peer = peers[peer];
    request.source = request.destination = Qpn{endpoint + 1};
    request.segments[0] = {memory.data(), 8};
    request.cookie = ++cookies;
    ASSERT_EQ(engine.post(request), srd::PostResult::accepted);
  }
  void write(std::uint32_t length) {
    srd::WriteRequest request;
    request.peer = peers[0];
    request.source = request.destination = Qpn{1};
    request.segments[0] = {nullptr, length};
    request.phantom = true;
    request.cookie = ++cookies;
    ASSERT_EQ(engine.post(request), srd::PostResult::accepted);
  }
  // What the windows let out leaves and is never answered.
  void transmit() {
    srd::TxPacket packet;
    while (engine.next_transmit(now, packet)) {
    }
  }
  std::size_t completed() {
    std::size_t count = 0;
    for (; engine.next_completion() != nullptr; engine.pop_completion()) {
      ++count;
    }
    return count;
  }

  srd::EngineConfig config = [] {
    srd::EngineConfig it;
    it.congestion_control = "fixed";
    it.line_rate = Rate::gbps(400);
    it.base_rtt = 1ms;  // so that whole windows leave
    it.max_completions = 1 << 18;
    return it;
  }();
  srd::Engine engine{config};
  std::vector<srd::PeerId> peers;
  std::vector<std::byte> memory = std::vector<std::byte>(64);
  TimePoint now = time_at(1s);
  std::uint64_t cookies = 0;
};

// `steps(n)` for n and four times n.
void expect_linear(const std::function<std::uint64_t(std::uint32_t)>& steps,
                   std::uint64_t fixed = 0) {
  // With one factor for both numbers a cost that grows faster than they do fails the larger one.
  for (const std::uint32_t n : {4000U, 16000U}) {
    EXPECT_LE(steps(n), kStepsPerRequest * n + fixed) << n;
  }
}

TEST(EngineSteps, ClosingAnEndpointWithQueuedSends) {
  expect_linear([](std::uint32_t n) {
    Alone a;
    for (std::uint32_t i = 0; i < n; ++i) {
      a.send();
    }
    const auto steps = steps_of([&] { a.engine.close_endpoint(Qpn{1}); });
    EXPECT_EQ(a.completed(), n);
    return steps;
  });
}

// Two endpoints take turns, so that what is left of one does not let the window move.
TEST(EngineSteps, ClosingAnEndpointBesideAnother) {
  expect_linear([](std::uint32_t n) {
    Alone a(1, 2);
    for (std::uint32_t i = 0; i < n; ++i) {
      a.send(0, i % 2);
    }
    a.transmit();
    return steps_of([&] { a.engine.close_endpoint(Qpn{2}); });
  });
}

TEST(EngineSteps, ClosingManyEndpoints) {
  constexpr std::uint32_t kEndpoints = 500;
  expect_linear([](std::uint32_t n) {
    Alone a(8, kEndpoints);
    for (std::uint32_t i = 0; i < n; ++i) {
      a.send(i % 8, i % kEndpoints);
    }
    a.transmit();
    const auto steps = steps_of([&] {
      for (std::uint32_t e = 0; e < kEndpoints; ++e) {
        a.engine.close_endpoint(Qpn{e + 1});
      }
    });
    EXPECT_EQ(a.completed(), n);
    return steps;
  });
}

TEST(EngineSteps, FlushingOnePeerOfMany) {
  constexpr std::uint32_t kPeers = 100;
  expect_linear([](std::uint32_t n) {
    Alone a(kPeers);
    for (std::uint32_t i = 0; i < n; ++i) {
      a.send(i % kPeers);
    }
    std::uint64_t steps = 0;
    for (const srd::PeerId peer : a.peers) {
      steps += steps_of([&] { a.engine.flush(peer, Qpn{1}); });
    }
    EXPECT_EQ(a.completed(), n);
    return steps;
  });
}

TEST(EngineSteps, LongWritesThatAreFlushedInTheWindow) {
  Alone a;
  for (int i = 0; i < 200; ++i) {
    a.write(10 * 4096);
  }
  a.transmit();
  const auto steps = steps_of([&] { a.engine.flush(a.peers[0], Qpn{1}); });
  EXPECT_EQ(a.completed(), 200U);
  // Beside the requests each slot of the window may be looked at once or twice.
  EXPECT_LE(steps, 200 * kStepsPerRequest + 2 * 2048);
}

TEST(EngineSteps, LosingAPeer) {
  expect_linear([](std::uint32_t n) {
    Alone a;
    for (std::uint32_t i = 0; i < n; ++i) {
      a.send();
    }
    std::uint64_t most = 0;
    std::size_t completed = 0;
    // Time-outs of a peer that does not answer, until it counts as dead. The costliest one is
    // judged: that in which all its requests end.
    for (int i = 0; i < 1000 && completed == 0; ++i) {
      a.transmit();
      a.now = std::max(a.now + 1us, a.engine.next_timeout());
      const auto steps = steps_of([&] { a.engine.on_timeout(a.now); });
      completed = a.completed();
      most = std::max(most, steps);
    }
    EXPECT_EQ(completed, n);
    return most;
  });
}

TEST(EngineSteps, LosingOnePeerOfMany) {
  constexpr std::uint32_t kPeers = 1000;
  Alone a(kPeers);
  for (std::uint32_t i = 1; i < kPeers; ++i) {
    for (int k = 0; k < 40; ++k) {
      a.send(i);
    }
  }
  a.send(0);
  const auto steps = steps_of([&] { a.engine.flush(a.peers[0], Qpn{1}); });
  EXPECT_EQ(a.completed(), 1U);
  EXPECT_LE(steps, kStepsPerRequest);
}

TEST(EngineSteps, RestartOfAPeer) {
  expect_linear([](std::uint32_t n) {
    LabConfig config = lab_config();
    config.engine.max_work_requests = 65536;
    config.engine.max_completions = 1 << 18;
    Pair pair(config);
    pair.b.receive();
    pair.a.send(pair.b, "hello");
    EXPECT_TRUE(pair.run_until_idle());
    for (std::uint32_t i = 0; i < n; ++i) {
      pair.a.write(pair.b, 0, "never");
    }
    pair.restart(pair.b);
    std::uint64_t most = 0;
    while (pair.a.outstanding() != 0) {
      most = std::max(most, steps_of([&] { pair.run_for(1us); }));
    }
    return most;
  });
}

TEST(EngineSteps, RevokingMemory) {
  expect_linear([](std::uint32_t n) {
    Alone a;
    for (std::uint32_t i = 0; i < n; ++i) {
      a.send();
    }
    for (std::uint32_t i = 0; i < 1000; ++i) {
      EXPECT_EQ(a.engine.post_receive(Qpn{1}, {.segments = {}, .cookie = 0}),
                srd::PostResult::accepted);
    }
    std::uint64_t asked = 0;
    const auto steps = steps_of([&] {
      a.engine.revoke([&](std::uint64_t cookie) {
        ++asked;
        return cookie % 2 == 0;
      });
    });
    EXPECT_EQ(asked, n + 1000);
    return steps + asked;
  });
}

// Requests that have ended leave nothing that later ones must look at.
TEST(EngineSteps, RevokingMemoryAfterABusyTime) {
  Alone a;
  for (std::uint32_t i = 0; i < 30000; ++i) {
    a.send();
  }
  a.engine.flush(a.peers[0], Qpn{1});
  a.send();
  EXPECT_LE(steps_of([&] { a.engine.revoke([](std::uint64_t) { return true; }); }),
            kStepsPerRequest);
}

// All are refused at once, wait, and come back: no timer looks at all of them.
TEST(EngineSteps, RequestsThatWaitForAReceive) {
  expect_linear([](std::uint32_t n) {
    LabConfig config = lab_config();
    config.engine.max_work_requests = 65536;
    config.engine.max_completions = 1 << 18;
    Pair pair(config);
    for (std::uint32_t i = 0; i < n / 8; ++i) {
      pair.a.send(pair.b, "not yet");
    }
    const auto steps = steps_of([&] { pair.run_for(10ms); });
    EXPECT_GT(pair.a.engine().counters().rnr_retries, 100U);
    const auto& counters = pair.a.engine().counters();
    // Judged per packet: how often a request is refused and tried again in 10 ms is none of this
    // test's business.
    return steps * n / (2 * (counters.tx_pkts + counters.rx_pkts));
  });
}

TEST(EngineSteps, MeetingManyPeers) {
  const auto steps = steps_of([] {
    Alone a(16000);
    EXPECT_EQ(a.peers.size(), 16000U);
  });
  EXPECT_LE(steps, 16000 * kStepsPerRequest);
}

}  // namespace
}  // namespace weft::testing
