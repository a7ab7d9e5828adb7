// Owns the tests of faults.
//
// Each kind of impairment is seen alone on a star of two hosts, where its effect can be computed;
// then their schedules, the patterns that choose links, and at the end everything at once. A star's
// link has 100 Gb/s and 1 us, so a frame of 1000 bytes takes 80 ns to send.
#include "emu/fabric/fault.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "emu/fabric/fabric.hpp"
#include "emu/fabric/generators.hpp"
#include "tests/unit/emu/fabric/collector.hpp"

namespace weft::fabric {
namespace {

using std::chrono::microseconds;
constexpr Picos kUs = 1'000'000;
constexpr Picos kSecond = 1'000'000 * kUs;

Fault on_link(const std::string& where, const Impairment& impairment,
              microseconds at = microseconds{0}, microseconds lasts = microseconds{0}) {
  Fault fault;
  fault.where = where;
  fault.impairment = impairment;
  fault.at = at;
  fault.lasts = lasts;
  return fault;
}

Impairment down() {
  Impairment is;
  is.down = true;
  return is;
}

// One frame every microsecond from host 0 to host 1 of a star, with a fault; how many arrive.
struct Stream {
  explicit Stream(const Topology& net, std::uint64_t seed = 1) : fabric(net, {.seed = seed}) {}
  void play(int frames, std::uint16_t size = 1000) {
    for (int i = 0; i < frames; ++i) {
      fabric.advance(i * kUs, seen);
      fabric.inject(i * kUs, 0,
                    {.destination = 1,
                     .hash = static_cast<std::uint32_t>(i),
                     .handle = static_cast<std::uint32_t>(i),
                     .size = size});
    }
    fabric.advance(kNoTime, seen);
  }
  Fabric fabric;
  Collector seen;
};

// Several faults may act on one link. Chances combine as those of independent events, 1 - (1 - a)(1
// - b); a field that one of the two does not set keeps the value of the other.
TEST(Fault, MergeAddsUpAndNeverResets) {
  Impairment a;
  a.loss = 0.1;
  a.extra_delay = microseconds{3};
  a.rate_factor = 0.5;
  Impairment b;
  b.loss = 0.2;
  b.rate_factor = 0.5;
  b.jitter = microseconds{1};
  b.down = true;
  a.merge(b);
  EXPECT_DOUBLE_EQ(a.loss, 1 - 0.9 * 0.8);
  EXPECT_EQ(a.extra_delay, microseconds{3});
  EXPECT_EQ(a.jitter, microseconds{1});
  EXPECT_DOUBLE_EQ(a.rate_factor, 0.25);
  EXPECT_TRUE(a.down);
}

TEST(Fault, ALinkIsDownForItsTimeAndThenBack) {
  const Topology net = star(2);
  Stream stream(net);
  ASSERT_TRUE(
      stream.fabric.apply(0, on_link("hub->h1", down(), microseconds{10}, microseconds{5})));
  stream.play(30);
  // Frames reach the hub 1.08 us after they were sent: those of 9..13 us find the link down.
  EXPECT_EQ(stream.seen.drops.size(), 5U);
  EXPECT_EQ(stream.seen.arrivals.size(), 25U);
  EXPECT_EQ(stream.fabric.totals().in_flight(), 0U);
}

// Two senders fill the queue in front of one link. What has left when the cable is cut arrives;
// what is queued is lost, because the port has nowhere to send it.
TEST(Fault, WhatWaitsForACutCableIsLost) {
  const Topology net = star(3);
  Fabric fabric(net, {});
  Collector seen;
  for (std::uint32_t i = 0; i < 20; ++i) {
    fabric.inject(0, 0, {.destination = 2, .handle = i, .size = 4150});
    fabric.inject(0, 1, {.destination = 2, .handle = i, .size = 4150});
  }
  ASSERT_TRUE(fabric.apply(0, on_link("hub->h2", down(), microseconds{5})));
  fabric.advance(kNoTime, seen);
  // 1.332 us until the first may leave, then one every 332 ns: 11 have left by 5 us.
  EXPECT_EQ(seen.arrivals.size(), 11U);
  EXPECT_EQ(seen.arrivals.size() + seen.drops.size(), 40U);
}

// Two frames fall into each of the three times that the link is down.
TEST(Fault, RepeatsWithItsPeriod) {
  const Topology net = star(2);
  Stream stream(net);
  Fault flap = on_link("hub->h1", down(), microseconds{10}, microseconds{2});
  flap.every = microseconds{10};
  flap.times = 3;
  ASSERT_TRUE(stream.fabric.apply(0, flap));
  stream.play(60);
  EXPECT_EQ(stream.seen.drops.size(), 6U);
}

// 10..20 us and 15..25 us: the link is down for 15 us in all. If the end of the first fault brought
// the link up, only 10 frames would be lost.
TEST(Fault, OverlappingFaultsEndOneByOne) {
  const Topology net = star(2);
  Stream stream(net);
  ASSERT_TRUE(
      stream.fabric.apply(0, on_link("hub->h1", down(), microseconds{10}, microseconds{10})));
  ASSERT_TRUE(
      stream.fabric.apply(0, on_link("hub->h1", down(), microseconds{15}, microseconds{10})));
  stream.play(40);
  EXPECT_EQ(stream.seen.drops.size(), 15U);
}

TEST(Fault, EndsWhenTold) {
  const Topology net = star(2);
  Fabric fabric(net, {});
  Collector seen;
  const auto fault = fabric.apply(0, on_link("h0->hub", down()));
  ASSERT_TRUE(fault);
  fabric.advance(1, seen);
  fabric.inject(1, 0, {.destination = 1, .size = 100});
  fabric.end(2, *fault);
  fabric.inject(2, 0, {.destination = 1, .size = 100});
  fabric.advance(kNoTime, seen);
  EXPECT_EQ(seen.drops.size(), 1U);
  EXPECT_EQ(seen.arrivals.size(), 1U);
}

// Five standard deviations: a right implementation fails here once in millions of seeds, and the
// seed is fixed.
TEST(Fault, LosesTheShareItSays) {
  const Topology net = star(2);
  for (const double share : {0.01, 0.3}) {
    Impairment is;
    is.loss = share;
    Stream stream(net, 5);
    ASSERT_TRUE(stream.fabric.apply(0, on_link("hub->h1", is)));
    stream.play(20'000);
    EXPECT_NEAR(static_cast<double>(stream.seen.drops.size()), 20'000 * share,
                5 * std::sqrt(20'000 * share));
  }
}

// The share is that of the bad state in the long run, enter / (enter + leave); a run lasts 1 /
// leave frames. Losses that were drawn one by one would have the share but not the length.
TEST(Fault, BurstsLoseTheSameShareInFewerRuns) {
  const Topology net = star(2);
  Impairment is;
  is.burst = {.enter = 0.01, .leave = 0.1, .loss = 1};
  Stream stream(net, 5);
  ASSERT_TRUE(stream.fabric.apply(0, on_link("hub->h1", is)));
  stream.play(40'000);
  const auto lost = static_cast<double>(stream.seen.drops.size());
  EXPECT_NEAR(lost / 40'000, 0.01 / 0.11, 0.02);
  int runs = 0;
  std::uint32_t expected = 0;
  for (const auto& arrival : stream.seen.arrivals) {
    runs += arrival.event.frame != expected ? 1 : 0;
    expected = arrival.event.frame + 1;
  }
  EXPECT_NEAR(lost / runs, 10, 2) << "mean length of a burst";
}

// The bound itself is not spared: 100 bytes pass, 101 are lost.
TEST(Fault, SparesSmallFramesIfAsked) {
  const Topology net = star(2);
  Impairment is;
  is.loss = 1;
  is.min_bytes = 101;
  Stream stream(net);
  ASSERT_TRUE(stream.fabric.apply(0, on_link("hub->h1", is)));
  stream.play(10, 100);
  EXPECT_EQ(stream.seen.arrivals.size(), 10U);
  stream.play(10, 101);
  EXPECT_EQ(stream.seen.arrivals.size(), 10U);
}

// Each flow sends twice. Whether it is lost follows from its hash alone, so the number of losses is
// even.
TEST(Fault, AGreyLinkLosesAlwaysTheSameFlows) {
  const Topology net = star(2);
  Impairment is;
  is.grey = 0.25;
  Fabric fabric(net, {});
  ASSERT_TRUE(fabric.apply(0, on_link("hub->h1", is)));
  Collector seen;
  for (int round = 0; round < 2; ++round) {
    for (std::uint32_t flow = 0; flow < 1000; ++flow) {
      fabric.inject(fabric.now(), 0,
                    {.destination = 1,
                     .hash = static_cast<std::uint32_t>(mix64(flow)),
                     .handle = flow,
                     .size = 100});
    }
    fabric.advance(fabric.now() + 1000 * kUs, seen);
  }
  EXPECT_NEAR(static_cast<double>(seen.drops.size()), 500, 80);
  EXPECT_EQ(seen.drops.size() % 2, 0U);
}

TEST(Fault, DuplicatesCorruptsDelaysAndReorders) {
  const Topology net = star(2);
  Impairment is;
  is.duplication = 0.5;
  is.corruption = 0.5;
  is.extra_delay = microseconds{7};
  is.reordering = 0.2;
  is.reorder_delay = microseconds{20};
  Stream stream(net, 9);
  ASSERT_TRUE(stream.fabric.apply(0, on_link("hub->h1", is)));
  stream.play(1000);
  EXPECT_NEAR(stream.seen.copies, 500, 80);
  EXPECT_EQ(stream.seen.arrivals.size(), 1000U + stream.seen.copies);
  int corrupted = 0;
  int overtaken = 0;
  std::uint32_t last = 0;
  for (const auto& arrival : stream.seen.arrivals) {
    corrupted += (arrival.event.flags & kCorrupted) != 0 ? 1 : 0;
    const std::uint32_t frame = arrival.event.frame % 1'000'000;
    overtaken += frame < last ? 1 : 0;
    last = frame;
    EXPECT_GE(arrival.when, static_cast<Picos>(frame) * kUs + 2 * kUs + 2 * 80'000 + 7 * kUs);
  }
  EXPECT_GT(corrupted, 400);
  EXPECT_GT(overtaken, 50);
  EXPECT_EQ(stream.fabric.totals().in_flight(), 0U);
  EXPECT_EQ(stream.fabric.frames_inside(), 0U);
}

TEST(Fault, AQuarterOfTheRateTakesFourTimesAsLong) {
  const Topology net = star(2);
  Impairment is;
  is.rate_factor = 0.25;
  Fabric fabric(net, {});
  Collector seen;
  ASSERT_TRUE(fabric.apply(0, on_link("h0-hub", is)));
  fabric.advance(0, seen);
  EXPECT_EQ(fabric.inject(0, 0, {.destination = 1, .size = 4150}), 4 * 332'000);
}

// The port's share of the buffer shrinks with the rate, and is smaller than a frame here.
TEST(Fault, AnIdleLinkTakesAFrameHoweverSlowItIs) {
  LinkProperties port;
  port.buffer = Bytes{28} * 4150;
  const Topology net = star(2, port);
  Impairment is;
  is.rate_factor = 0.01;
  Fabric fabric(net, {});
  Collector seen;
  ASSERT_TRUE(fabric.apply(0, on_link("hub->h1", is)));
  fabric.advance(0, seen);
  for (const Picos now : {Picos{0}, Picos{1'000'000}, 100 * kUs}) {
    fabric.advance(now, seen);
    fabric.inject(now, 0, {.destination = 1, .size = 4150});
  }
  fabric.advance(kNoTime, seen);
  EXPECT_EQ(seen.arrivals.size(), 2U);
  EXPECT_EQ(seen.drops.size(), 1U) << "one that comes while the first is sent";
}

// Of 100 Gb/s: four faults together would leave 256 kb/s, less than what can be modelled.
TEST(Fault, FactorsMultiplyDownToTheSlowestRate) {
  const Topology net = star(2);
  Impairment is;
  is.rate_factor = 0.04;
  Fabric fabric(net, {});
  Collector seen;
  std::vector<double> rates;
  for (int faults = 1; faults <= 4; ++faults) {
    const Picos now = faults * kSecond;
    ASSERT_TRUE(fabric.apply(now, on_link("h0-hub", is)));
    fabric.advance(now, seen);
    const Picos sent = fabric.inject(now, 0, {.destination = 1, .size = 1024});
    rates.push_back(1024 * 8 / (static_cast<double>(sent - now) * 1e-12));
  }
  EXPECT_NEAR(rates[0], 4e9, 1e6);
  EXPECT_NEAR(rates[1], 160e6, 1e5);
  EXPECT_NEAR(rates[2], 6.4e6, 1e4);
  EXPECT_NEAR(rates[3], 2e6, 1e3);
}

// A core switch has four cables, that is eight links. It is one of four ways between pods, and
// switches go on sending into it, because they do not route around a fault.
TEST(Fault, ADeadSwitchTakesItsLinksWithIt) {
  const Topology net = fat_tree(k_ary_fat_tree(16, {})).value();
  Fabric fabric(net, {});
  Fault fault;
  fault.target = Fault::Target::node;
  fault.where = "core0";
  const auto index = fabric.apply(0, fault);
  ASSERT_TRUE(index);
  EXPECT_EQ(fabric.links_of(*index).size(), 8U);
  Collector seen;
  fabric.advance(0, seen);
  for (std::uint32_t hash = 0; hash < 400; ++hash) {
    fabric.inject(
        fabric.now(), 0,
        {.destination = 15, .hash = static_cast<std::uint32_t>(mix64(hash)), .size = 100});
  }
  fabric.advance(kNoTime, seen);
  EXPECT_NEAR(static_cast<double>(seen.drops.size()), 100, 40) << "one path of four";
}

// A paused host loses nothing: its NIC keeps the frames. None may be delivered in the pause, and
// all are delivered in the end.
TEST(Fault, APausedHostGetsItsFramesLater) {
  const Topology net = star(2);
  Stream stream(net);
  Fault pause;
  pause.target = Fault::Target::host;
  pause.where = "h1";
  pause.at = microseconds{10};
  pause.lasts = microseconds{10};
  ASSERT_TRUE(stream.fabric.apply(0, pause));
  stream.play(40);
  EXPECT_EQ(stream.seen.pauses, (std::vector<std::pair<PortId, bool>>{{1, true}, {1, false}}));
  ASSERT_EQ(stream.seen.arrivals.size(), 40U);
  for (const auto& arrival : stream.seen.arrivals) {
    EXPECT_FALSE(arrival.when > 10 * kUs && arrival.when < 20 * kUs);
  }
}

// Each refusal names what is wrong, since the text goes to the user as it is.
TEST(Fault, RefusesWhatMakesNoSense) {
  const Topology net = star(2);
  Fabric fabric(net, {});
  const auto text = [&](const Fault& fault) { return fabric.apply(0, fault).error().message; };
  EXPECT_NE(text(on_link("nowhere->h1", down())).find("no link is called 'nowhere->h1'"),
            std::string::npos);
  Impairment is;
  is.loss = 1.5;
  EXPECT_NE(text(on_link("hub->h1", is)).find("between 0 and 1"), std::string::npos);
  is = {};
  is.rate_factor = 0;
  EXPECT_NE(text(on_link("hub->h1", is)).find("rate factor"), std::string::npos);
  Fault host;
  host.target = Fault::Target::host;
  host.where = "hub";
  EXPECT_NE(text(host).find("no host called 'hub'"), std::string::npos);
  Fault flap = on_link("hub->h1", down(), microseconds{0}, microseconds{10});
  flap.every = microseconds{10};
  EXPECT_NE(text(flap).find("shorter than its period"), std::string::npos);
}

// Everything at once, many seeds: nothing gets lost unaccounted, and the same seed gives the same
// run.
TEST(Fault, ConservationUnderAllFaultsTogether) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    const auto play = [&] {
      const Topology net = fat_tree(k_ary_fat_tree(16, {})).value();
      Fabric fabric(net, {.seed = seed, .paused_frames = 4});
      Rng rng(seed);
      Collector seen;
      for (int i = 0; i < 12; ++i) {
        Impairment is;
        is.down = rng.chance(0.2);
        is.loss = rng.unit() * 0.2;
        is.duplication = rng.unit() * 0.2;
        is.corruption = rng.unit() * 0.1;
        is.reordering = rng.unit() * 0.3;
        is.reorder_delay = microseconds{rng.below(30)};
        is.jitter = microseconds{rng.below(5)};
        is.rate_factor = 0.1 + rng.unit();
        is.burst.enter = rng.unit() * 0.1;
        is.burst.leave = 0.5;
        Fault fault = on_link(i % 2 == 0 ? "tor*-agg*" : "host*-*", is, microseconds{rng.below(50)},
                              microseconds{1 + rng.below(40)});
        fault.share = 0.3;
        EXPECT_TRUE(fabric.apply(0, fault));
        Fault pause;
        pause.target = Fault::Target::host;
        pause.where = "host" + std::to_string(rng.below(16));
        pause.at = microseconds{rng.below(60)};
        pause.lasts = microseconds{1 + rng.below(30)};
        EXPECT_TRUE(fabric.apply(0, pause));
      }
      for (std::uint32_t i = 0; i < 3000; ++i) {
        const Picos at = i * 30'000;
        fabric.advance(at, seen);
        const PortId from = rng.below(16);
        fabric.inject(at, from,
                      {.destination = (from + 1 + rng.below(15)) % 16,
                       .hash = i * 977,
                       .handle = i,
                       .size = static_cast<std::uint16_t>(64 + rng.below(4000)),
                       .control = rng.chance(0.3)});
        EXPECT_EQ(fabric.frames_inside(), fabric.totals().in_flight());
      }
      fabric.advance(kNoTime, seen);
      EXPECT_EQ(fabric.frames_inside(), 0U);
      EXPECT_EQ(fabric.totals().in_flight(), 0U);
      EXPECT_EQ(seen.arrivals.size(), fabric.totals().delivered);
      EXPECT_EQ(seen.drops.size(), fabric.totals().dropped_all());
      std::uint64_t digest = 0;
      for (const auto& a : seen.arrivals) {
        digest = mix64(digest ^ static_cast<std::uint64_t>(a.when) ^ a.event.frame ^ a.event.flags);
      }
      return digest;
    };
    EXPECT_EQ(play(), play());
  }
}

}  // namespace
}  // namespace weft::fabric
