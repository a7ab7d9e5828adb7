// Owns the storms: random messages among several processes over a bad network, some of which die.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "srd/base/rng.hpp"
#include "tests/support/message_lab.hpp"

namespace weft::testing {
namespace {

using srd::Status;

constexpr std::uint32_t kStations = 4;

// Each kind of harm is absent from half of the storms; small tables and few buffers are as likely
// as large ones. The first sequence number is at most 3000 before the end, so that some storms
// cross it.
MessageLabConfig bad_network(Rng& rng, std::uint64_t seed) {
  MessageLabConfig config = message_lab_config();
  config.seed = seed;
  const auto chance = [&](double most) {
    return rng.between(0, 1) == 0 ? 0 : most * static_cast<double>(rng.between(1, 100)) / 100;
  };
  config.link.loss = chance(0.1);
  config.link.burst = chance(0.005);
  config.link.duplicate = chance(0.1);
  config.link.reorder = chance(0.3);
  config.link.corrupt = chance(0.05);
  config.link.trim = chance(0.1);
  config.link.mark = chance(0.2);
  config.link.jitter = rng.between(0, 30) * 1us;
  config.link.path_skew = rng.between(0, 2) * 1us;
  config.engine.first_psn = Psn{static_cast<std::uint32_t>(-rng.between(0, 3000))};
  config.engine.forced_reorder = static_cast<std::uint16_t>(rng.between(0, 1) * 16);
  config.engine.max_work_requests = rng.between(0, 1) == 0 ? 64 : 4096;
  config.engine.max_reads_per_peer = rng.between(0, 1) == 0 ? 2 : 64;
  config.messenger.receive_buffers = static_cast<std::uint32_t>(rng.between(1, 64));
  config.messenger.control_buffers = static_cast<std::uint32_t>(rng.between(1, 16));
  return config;
}

// What the check at the end needs of a message; `seed` makes its bytes.
struct Sent {
  std::uint32_t from, to;
  std::uint64_t tag, cookie, seed;
  std::size_t size;
};

// The n-th message with a tag from one process to another meets the n-th receive for them, whatever
// the network does, and brings every byte.
class Storm : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(Storm, EveryMessageMeetsItsReceive) {
  Rng rng(GetParam());
  MessageLab lab(kStations, bad_network(rng, GetParam()));
  SCOPED_TRACE("seed " + std::to_string(GetParam()));
  using Line = std::tuple<std::uint32_t, std::uint32_t, std::uint64_t>;
  std::map<Line, std::vector<Sent>> sent;
  std::map<Line, std::vector<std::uint64_t>> receives;
  std::vector<Line> to_post;
  for (int i = 0; i < 400; ++i) {
    // Every second storm is an incast into station 0.
    const auto to =
        static_cast<std::uint32_t>(GetParam() % 2 == 0 ? 0 : rng.between(0, kStations - 1));
    auto from = static_cast<std::uint32_t>(rng.between(0, kStations - 1));
    from = from == to ? (from + 1) % kStations : from;
    const std::uint64_t tag = rng.between(0, 1);
    const std::size_t size = rng.between(0, 3) != 0 ? rng.between(0, 1100) : rng.between(0, 40000);
    const std::uint64_t seed = rng.next();
    const std::uint64_t cookie = lab[from].send(lab[to], tag, size, {.seed = seed});
    sent[{from, to, tag}].push_back({from, to, tag, cookie, seed, size});
    to_post.push_back({from, to, tag});
    if (rng.between(0, 3) == 0) {
      lab.run_for(rng.between(0, 20) * 1us);
    }
    if (rng.between(0, 2) == 0) {  // receives lag behind
      const std::size_t at = rng.between(0, to_post.size() - 1);
      const auto [f, t, g] = to_post[at];
      receives[to_post[at]].push_back(lab[t].receive(g, 40000, {.from = f}));
      to_post.erase(to_post.begin() + static_cast<std::ptrdiff_t>(at));
    }
  }
  for (const Line& line : to_post) {
    const auto [f, t, g] = line;
    receives[line].push_back(lab[t].receive(g, 40000, {.from = f}));
  }
  ASSERT_TRUE(lab.run_until_done(60s));
  for (const auto& [line, messages] : sent) {
    for (std::size_t i = 0; i < messages.size(); ++i) {
      const Sent& message = messages[i];
      Station& receiver = lab[message.to];
      const std::uint64_t receive = receives[line][i];
      ASSERT_EQ(lab[message.from].status(message.cookie), Status::ok);
      ASSERT_EQ(receiver.status(receive), Status::ok);
      ASSERT_EQ(receiver.result(receive)->length, message.size);
      ASSERT_EQ(first_difference(receiver.memory(receive).first(message.size), message.seed),
                message.size);
    }
  }
  for (std::uint32_t i = 0; i < kStations; ++i) {
    EXPECT_EQ(lab[i].messenger().unexpected(), 0U);
    EXPECT_EQ(lab[i].engine().memory().size(), 0U);
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, Storm, ::testing::Range<std::uint64_t>(1, 41));

// The first message may find out that its receiver has restarted; the second may not fail.
void expect_they_talk(MessageLab& lab, std::uint32_t from, std::uint32_t to) {
  const std::uint64_t hello = lab[to].receive(999, 1);
  const std::uint64_t greeting = lab[from].send(lab[to], 999, 1);
  ASSERT_TRUE(lab.run_until([&] { return lab[from].status(greeting).has_value(); }));
  lab.run_for(10ms);
  EXPECT_NE(lab[to].status(hello).has_value(), lab[to].messenger().cancel(hello));
  lab.run_for(1us);
  const std::uint64_t small = lab[to].receive(1000 + from, 100);
  const std::uint64_t large = lab[to].receive(1000 + from, 30000);
  lab[from].send(lab[to], 1000 + from, 100, {.seed = 1});
  lab[from].send(lab[to], 1000 + from, 30000, {.seed = 2});
  ASSERT_TRUE(lab.run_until([&] { return lab[to].status(large).has_value(); }));
  EXPECT_EQ(lab[to].status(small), Status::ok);
  EXPECT_EQ(lab[to].status(large), Status::ok);
  EXPECT_EQ(first_difference(lab[to].memory(small), 1), 100U);
  EXPECT_EQ(first_difference(lab[to].memory(large), 2), 30000U);
}

// Processes die and come back at any moment. Every request ends once; what ends well has the right
// bytes; and when the network is well again, so is everybody.
class Carnage : public ::testing::TestWithParam<std::uint64_t> {};

std::size_t sends_open(MessageLab& lab) {
  std::size_t open = 0;
  for (std::uint32_t i = 0; i < kStations; ++i) {
    open += lab[i].sends_open();
  }
  return open;
}

// Posts receives for any message everywhere, until no send is open or that does not help any more.
void receive_everything(MessageLab& lab) {
  for (int round = 0; round < 200 && sends_open(lab) > 0; ++round) {
    for (std::uint32_t i = 0; i < kStations; ++i) {
      for (int k = 0; k < 20; ++k) {
        // All bits of the tag are ignored: this takes any message.
        lab[i].receive(0, 40000, {.ignore = ~std::uint64_t{0}});
      }
    }
    lab.run_for(20ms);
  }
}

TEST_P(Carnage, EveryRequestEndsAndLifeGoesOn) {
  Rng rng(GetParam());
  MessageLabConfig config = bad_network(rng, GetParam());
  config.engine.peer_timeout = 5ms;
  MessageLab lab(kStations, config);
  SCOPED_TRACE("seed " + std::to_string(GetParam()));
  std::map<std::uint64_t, std::pair<std::size_t, std::uint64_t>> content;  // by immediate
  std::uint32_t number = 0;
  // Of the 500 steps about 3 % restart a process, 2 % cut two of them off and 3 % heal the network.
  for (int i = 0; i < 500; ++i) {
    const auto from = static_cast<std::uint32_t>(rng.between(0, kStations - 1));
    const auto to = static_cast<std::uint32_t>((from + rng.between(1, kStations - 1)) % kStations);
    const std::size_t size = rng.between(0, 3) != 0 ? rng.between(0, 1100) : rng.between(0, 40000);
    const std::uint64_t seed = rng.next();
    content[++number] = {size, seed};
    lab[from].send(lab[to], rng.between(0, 1), size, {.immediate = number, .seed = seed});
    lab[to].receive(rng.between(0, 1), 40000);
    lab.run_for(rng.between(0, 20) * 1us);
    const auto fate = rng.between(0, 99);
    const auto victim = static_cast<std::uint32_t>(rng.between(0, kStations - 1));
    if (fate < 3) {
      lab.restart(lab[victim]);
    } else if (fate < 5) {
      lab.network().partition(victim, (victim + 1) % kStations);
    } else if (fate < 8) {
      lab.network().heal();
      lab.network().link() = config.link;
    }
    if (rng.between(0, 9) == 0 && lab[to].receives_open() > 0) {
      lab.run_for(rng.between(0, 3) * 1ms);
    }
  }
  lab.network().heal();
  // What was not received yet is received now; then every send must end.
  receive_everything(lab);
  EXPECT_EQ(sends_open(lab), 0U);
  for (std::uint32_t i = 0; i < kStations; ++i) {
    for (const srd::MessageCompletion& done : lab[i].completions()) {
      if (done.kind == srd::MessageCompletion::Kind::receive && done.status == Status::ok) {
        const auto& [size, seed] = content.at(done.immediate);
        ASSERT_EQ(done.length, size);
        ASSERT_EQ(first_difference(lab[i].memory(done.cookie).first(size), seed), size);
      }
    }
    EXPECT_EQ(lab[i].engine().memory().size(), 0U) << "a region of a message was left behind";
  }
  lab.run_for(1s);  // reads from senders that have given up end, too
  // Receives that are left over may not take what comes now.
  for (std::uint32_t i = 0; i < kStations; ++i) {
    for (std::uint64_t cookie = 0; lab[i].receives_open() > 0 && cookie < 20000; ++cookie) {
      if (lab[i].messenger().cancel(cookie)) {
        lab[i].collect();
      }
    }
    EXPECT_EQ(lab[i].receives_open(), 0U) << "neither posted nor done";
  }
  for (std::uint32_t from = 0; from < kStations; ++from) {
    for (std::uint32_t to = 0; to < kStations; ++to) {
      if (from == to) {
        continue;
      }
      expect_they_talk(lab, from, to);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, Carnage, ::testing::Range<std::uint64_t>(1, 41));
// In these a receiver restarts while a watch waits to leave.
INSTANTIATE_TEST_SUITE_P(QueuedWatch, Carnage, ::testing::Values(48, 162, 213, 282));

}  // namespace
}  // namespace weft::testing
