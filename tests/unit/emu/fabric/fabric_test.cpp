// Owns the tests of links, queues and marks. Times are picoseconds and exact: at 100 Gb/s a byte
// takes 80 of them, and each link is a microsecond long unless a test says otherwise.
#include "emu/fabric/fabric.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "emu/fabric/generators.hpp"
#include "tests/unit/emu/fabric/collector.hpp"

namespace weft::fabric {
namespace {

constexpr Picos kUs = 1'000'000;
constexpr Picos kData = 4150 * 80;  // one full frame at 100 Gb/s
constexpr Picos kAck = 64 * 80;

Frame ack(PortId to, std::uint32_t handle = 0) {
  return {.destination = to, .handle = handle, .size = 64, .control = true, .ecn_capable = false};
}

TEST(Fabric, AFrameTakesSerialisationAndDelayOfEveryLink) {
  const Topology net = star(2);
  Fabric fabric(net, {});
  Collector seen;
  EXPECT_EQ(fabric.inject(500, 0, data(1, 7)), 500 + kData);
  fabric.advance(kNoTime, seen);
  ASSERT_EQ(seen.arrivals.size(), 1U);
  EXPECT_EQ(seen.arrivals[0].when, 500 + 2 * kData + 2 * kUs);
  EXPECT_EQ(seen.arrivals[0].port, 1U);
  EXPECT_EQ(seen.arrivals[0].event.frame, 7U);
}

TEST(Fabric, OneEventAHop) {
  const Topology net = fat_tree(k_ary_fat_tree(128, {})).value();
  Fabric fabric(net, {});
  Collector seen;
  fabric.inject(0, 0, data(127));
  fabric.advance(kNoTime, seen);
  EXPECT_EQ(seen.arrivals.size(), 1U);
  // Six links from one corner of a fat tree to the other.
  EXPECT_EQ(fabric.totals().events, 6U);
}

TEST(Fabric, FramesOfOneLinkStayInOrderAndBackToBack) {
  const Topology net = star(2);
  Fabric fabric(net, {});
  Collector seen;
  for (std::uint32_t i = 0; i < 50; ++i) {
    fabric.inject(0, 0, data(1, i));
  }
  fabric.advance(kNoTime, seen);
  ASSERT_EQ(seen.arrivals.size(), 50U);
  for (std::uint32_t i = 0; i < 50; ++i) {
    EXPECT_EQ(seen.arrivals[i].event.frame, i);
    EXPECT_EQ(seen.arrivals[i].when, (i + 2) * kData + 2 * kUs);
  }
}

TEST(Fabric, ControlOvertakesWaitingDataButNotTheFrameOnTheWire) {
  const Topology net = star(3);
  Fabric fabric(net, {});
  Collector seen;
  for (std::uint32_t i = 0; i < 10; ++i) {
    fabric.inject(0, 0, data(2, i));
    fabric.inject(0, 1, data(2, 100 + i));
  }
  // At 2.2 us data waits in front of host 2's link; the acknowledgement arrives there at 2.2 us +
  // 64 B + 1 us.
  fabric.advance(2'200'000, seen);
  fabric.inject(2'200'000, 1, ack(2, 999));
  fabric.advance(kNoTime, seen);
  ASSERT_EQ(seen.arrivals.size(), 21U);
  std::size_t position = 0;
  while (seen.arrivals[position].event.frame != 999) {
    ++position;
  }
  EXPECT_LT(position, 12U) << "it waited behind the data";
  // Over the busy period no time is created: the last frame leaves when all bytes have been sent.
  const Picos all = 20 * kData + kAck;
  EXPECT_NEAR(static_cast<double>(seen.arrivals.back().when),
              static_cast<double>(2 * kUs + kData + all), static_cast<double>(kAck));
}

TEST(Fabric, AFullQueueDropsWithoutTrimming) {
  const Topology net = star(9, queue_of_four());
  Fabric fabric(net, {});
  Collector seen;
  send_eight(fabric);
  fabric.advance(kNoTime, seen);
  EXPECT_EQ(seen.arrivals.size(), 4U);
  ASSERT_EQ(seen.drops.size(), 4U);
  EXPECT_EQ(seen.drops[0].first, LossReason::queue_full);
  EXPECT_EQ(net.link_name(seen.drops[0].second), "hub->h8");
  EXPECT_EQ(fabric.totals().dropped_all(), 4U);
}

TEST(Fabric, AFullQueueTrimsAndTheHeaderArrivesFirst) {
  LinkProperties down = queue_of_four();
  down.trimming = true;
  const Topology net = star(9, down);
  Fabric fabric(net, {});
  Collector seen;
  send_eight(fabric, /*trimmable=*/true);
  fabric.advance(kNoTime, seen);
  ASSERT_EQ(seen.arrivals.size(), 8U);
  EXPECT_EQ(fabric.totals().trimmed, 4U);
  int trimmed = 0;
  for (const auto& arrival : seen.arrivals) {
    if ((arrival.event.flags & kTrimmed) != 0) {
      ++trimmed;
      EXPECT_EQ(arrival.event.size, 64U);
      EXPECT_GE(arrival.event.frame, 4U) << "the frames that came first found room";
    }
  }
  EXPECT_EQ(trimmed, 4);
  EXPECT_EQ(seen.arrivals.back().event.flags & kTrimmed, 0);
}

// The model that needs two events a hop: arrivals and departures in one list, the mark set by what
// is queued behind a frame when it leaves. Thresholds low = high make marking certain, so both must
// agree frame by frame, except where the queue crosses the threshold within an eighth of the link's
// delay of that moment.
struct Sent {
  Picos at_queue;  // at first when it is sent, later when it has reached the queue
  std::uint32_t size;
  std::uint32_t handle;  // of port handle / 20
};

// 20 frames of each of 16 ports, of any size and at any time, but no two of a port at once; in the
// order of their times.
std::vector<Sent> draw_frames(Rng& rng) {
  std::vector<Sent> sent;
  std::uint32_t handle = 0;
  for (PortId from = 0; from < 16; ++from) {
    Picos free = 0;
    for (int i = 0; i < 20; ++i) {
      const Picos at = std::max(free, static_cast<Picos>(rng.below(60'000'000)));
      const auto size = static_cast<std::uint16_t>(64 + rng.below(4087));
      sent.push_back({at, size, handle++});
      free = at + size * 80;
    }
  }
  std::sort(sent.begin(), sent.end(),
            [](const Sent& a, const Sent& b) { return a.at_queue < b.at_queue; });
  return sent;
}

TEST(Fabric, MarksByTheQueueAtTheMomentOfDeparture) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    LinkProperties down;
    down.buffer = 400 * 4150;
    down.ecn_low = down.ecn_high = 5 * 4150;
    const Topology net = star(17, down);
    Fabric fabric(net, {});
    Collector seen;
    std::vector<Sent> sent = draw_frames(rng);
    for (Sent& it : sent) {
      fabric.advance(it.at_queue, seen);
      Frame frame = data(16, it.handle);
      frame.size = static_cast<std::uint16_t>(it.size);
      const PortId from = it.handle / 20;
      it.at_queue = fabric.inject(it.at_queue, from, frame) + kUs;
    }
    fabric.advance(kNoTime, seen);
    std::stable_sort(sent.begin(), sent.end(),
                     [](const Sent& a, const Sent& b) { return a.at_queue < b.at_queue; });
    std::map<std::uint32_t, std::pair<bool, bool>> expected;  // at the moment, and an eighth later
    Picos busy = 0;
    std::vector<std::pair<Picos, std::size_t>> departures;
    for (std::size_t i = 0; i < sent.size(); ++i) {
      busy = std::max(busy, sent[i].at_queue) + sent[i].size * 80;
      departures.emplace_back(busy, i);
    }
    int clear = 0;
    for (const auto& [left, index] : departures) {
      std::uint64_t behind = 0;
      std::uint64_t later = 0;
      for (std::size_t j = index + 1; j < sent.size(); ++j) {
        behind += sent[j].at_queue <= left ? sent[j].size : 0;
        later += sent[j].at_queue <= left + kUs / 8 ? sent[j].size : 0;
      }
      expected[sent[index].handle] = {behind > 5 * 4150, later > 5 * 4150};
      clear += expected[sent[index].handle].first == expected[sent[index].handle].second ? 1 : 0;
    }
    EXPECT_GT(clear, 280) << "of 320 frames";
    ASSERT_EQ(seen.arrivals.size(), sent.size());
    std::size_t marks = 0;
    for (const auto& arrival : seen.arrivals) {
      const bool marked = (arrival.event.flags & kMarked) != 0;
      marks += marked ? 1U : 0U;
      const auto [now, later] = expected[arrival.event.frame];
      EXPECT_TRUE(marked == now || marked == later) << "frame " << arrival.event.frame;
    }
    EXPECT_GT(marks, 20U);
    EXPECT_LT(marks, 310U);
    EXPECT_EQ(fabric.totals().marked, marks);
  }
}

TEST(Fabric, MarksNeitherControlNorFramesThatDoNotTakePart) {
  LinkProperties down;
  down.buffer = 1 << 20;
  down.ecn_low = 1;
  down.ecn_high = 2;
  const Topology net = star(9, down);
  Fabric fabric(net, {});
  Collector seen;
  for (std::uint32_t i = 0; i < 8; ++i) {
    Frame frame = data(8, i);
    frame.ecn_capable = i % 2 == 0;
    fabric.inject(0, i, frame);
  }
  fabric.advance(kNoTime, seen);
  for (const auto& arrival : seen.arrivals) {
    if (arrival.event.frame % 2 == 1) {
      EXPECT_EQ(arrival.event.flags & kMarked, 0);
    }
  }
  EXPECT_GE(fabric.totals().marked, 3U);
}

TEST(Fabric, TheHashChoosesThePathAndTheSeedPermutesIt) {
  const Topology net = fat_tree(k_ary_fat_tree(128, {})).value();
  Fabric fabric(net, {.seed = 1});
  Fabric other(net, {.seed = 2});
  std::set<std::vector<LinkId>> paths;
  int differ = 0;
  for (std::uint32_t hash = 0; hash < 1000; ++hash) {
    const auto path = fabric.routes().path(0, 127, hash);
    EXPECT_EQ(path, fabric.routes().path(0, 127, hash));
    EXPECT_EQ(path.size(), 6U);
    paths.insert(path);
    differ += path != other.routes().path(0, 127, hash) ? 1 : 0;
  }
  EXPECT_EQ(paths.size(), 16U) << "4 aggregation switches x 4 cores";
  // Of 1000; by chance one in sixteen is the same.
  EXPECT_GT(differ, 500);
}

TEST(Fabric, TimeInOneStepOrInManyAndByTimeOrByNodeGiveTheSameNetwork) {
  const Topology net = fat_tree(k_ary_fat_tree(16, {.ecn = false})).value();
  const auto play = [&](bool by_node, Picos step) {
    Fabric fabric(net, {.seed = 3, .by_node = by_node});
    Collector seen;
    Rng rng(11);
    for (std::uint32_t i = 0; i < 500; ++i) {
      const PortId from = rng.below(16);
      Frame frame = data((from + 1 + rng.below(15)) % 16, i);
      frame.size = static_cast<std::uint16_t>(200 + rng.below(3900));  // no two at the same time
      fabric.inject(0, from, frame);
    }
    Fault fault;
    fault.where = "tor*-agg*";
    fault.impairment.loss = fault.impairment.duplication = 0.05;
    EXPECT_TRUE(fabric.apply(0, fault));
    Fault late;
    late.where = "agg*->core*";
    late.impairment.reordering = 0.3;
    late.impairment.reorder_delay = std::chrono::microseconds{7};
    late.impairment.jitter = std::chrono::microseconds{2};
    EXPECT_TRUE(fabric.apply(0, late));
    for (Picos now = 0; fabric.next_event() != kNoTime; now += step) {
      fabric.advance(now, seen);
      EXPECT_EQ(fabric.now(), now);
    }
    EXPECT_EQ(fabric.totals().in_flight(), 0U);
    std::vector<std::tuple<Picos, PortId, std::uint32_t, int>> result;
    for (const auto& a : seen.arrivals) {
      result.emplace_back(a.when, a.port, a.event.frame, a.event.flags);
    }
    std::sort(result.begin(), result.end());
    return result;
  };
  const auto fine = play(false, 777);
  EXPECT_GT(fine.size(), 400U);
  EXPECT_EQ(fine, play(false, 10'000'000'000));
  EXPECT_EQ(fine, play(true, 777));
  EXPECT_EQ(fine, play(true, 10'000'000'000));
}

TEST(Fabric, ByNodeAStopEndsWithTheWindowWhereverTimeIsCut) {
  const Topology net = fat_tree(k_ary_fat_tree(16, {})).value();
  struct Stopper : Collector {
    Fabric* fabric = nullptr;
    void deliver(Picos now, PortId port, const CalendarEvent& event) {
      Collector::deliver(now, port, event);
      if (event.frame == 77) {
        fabric->stop();
      }
    }
  };
  const auto play = [&](Picos step) {
    Fabric fabric(net, {.seed = 3, .by_node = true});
    Stopper seen;
    seen.fabric = &fabric;
    Rng rng(11);
    for (std::uint32_t i = 0; i < 500; ++i) {
      const PortId from = rng.below(16);
      fabric.inject(0, from, data((from + 1 + rng.below(15)) % 16, i));
    }
    const auto stopped = [&] {
      return std::any_of(seen.arrivals.begin(), seen.arrivals.end(),
                         [](const auto& a) { return a.event.frame == 77; });
    };
    for (Picos now = 0; !stopped(); now += step) {
      fabric.advance(now, seen);
    }
    return std::tuple(seen.arrivals.size(), fabric.totals().events, fabric.totals().delivered,
                      fabric.totals().marked);
  };
  const auto whole = play(10'000'000'000);
  EXPECT_LT(std::get<0>(whole), 500U);
  EXPECT_EQ(whole, play(777));
  EXPECT_EQ(whole, play(100'003));
}

TEST(Fabric, WakesComeInTimeAndInOrder) {
  const Topology net = star(2);
  Fabric fabric(net, {});
  Collector seen;
  fabric.schedule_wake(5000, 2);
  fabric.schedule_wake(1000, 1);
  fabric.schedule_wake(5000, 3);
  fabric.schedule_wake(900'000'000'000, 4);
  EXPECT_EQ(fabric.next_event(), 1000);
  fabric.advance(5000, seen);
  EXPECT_EQ(seen.wakes,
            (std::vector<std::pair<Picos, std::uint32_t>>{{1000, 1}, {5000, 2}, {5000, 3}}));
  EXPECT_EQ(fabric.next_event(), 900'000'000'000);
}

TEST(Fabric, AFrameForNobodyIsDroppedAndCounted) {
  const Topology net = star(2);
  Fabric fabric(net, {});
  Collector seen;
  fabric.inject(0, 0, data(77));
  fabric.advance(kNoTime, seen);
  ASSERT_EQ(seen.drops.size(), 1U);
  EXPECT_EQ(seen.drops[0].first, LossReason::no_route);
  EXPECT_EQ(fabric.totals().in_flight(), 0U);
}

TEST(Fabric, TwoHostsOnOneCableNeedNoSwitch) {
  Topology net;
  net.add_host("a");
  net.add_host("b");
  net.connect(0, 1, LinkProperties{});
  ASSERT_TRUE(net.validate());
  Fabric fabric(net, {});
  Collector seen;
  fabric.inject(0, 0, data(1));
  fabric.inject(0, 1, data(0));
  fabric.advance(kNoTime, seen);
  ASSERT_EQ(seen.arrivals.size(), 2U);
  EXPECT_EQ(seen.arrivals[0].when, kData + kUs);
}

}  // namespace
}  // namespace weft::fabric
