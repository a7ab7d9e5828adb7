// Owns what a queue decides of a frame, once: when it leaves, whether it is marked, cut or dropped.
//
// A queue decides when the frame arrives, from what is before it. Later troubles of the link
// (delay, outages, a paused host) must not change that decision, nor make it a second time: most
// cases run with and without such a trouble, and compare.
#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "emu/fabric/fabric.hpp"
#include "tests/unit/emu/fabric/collector.hpp"

namespace weft::fabric {
namespace {

using std::chrono::microseconds;
constexpr Picos kUs = 1'000'000;

Fault on_link(const std::string& where, const Impairment& impairment) {
  Fault fault;
  fault.where = where;
  fault.impairment = impairment;
  return fault;
}

// Three hosts send to a fourth one, faster than its link: `rounds` frames each.
void incast(Fabric& fabric, Collector& seen, std::uint32_t rounds) {
  for (std::uint32_t i = 0; i < rounds; ++i) {
    for (PortId from = 0; from < 3; ++from) {
      fabric.inject(fabric.now(), from, data(3, 3 * i + from));
    }
    fabric.advance(fabric.now() + kUs / 2, seen);
  }
  fabric.advance(kNoTime, seen);
}

// Eight frames meet a queue for four. Half of the rest can be cut; the other half is lost, as on a
// switch that does not know the protocol.
TEST(Admission, OnlyFramesThatCanBeTrimmedAreTrimmed) {
  LinkProperties down;
  down.buffer = 4 * 4150;
  down.trimming = true;
  const Topology net = star(9, down);
  Fabric fabric(net, {});
  Collector seen;
  for (std::uint32_t i = 0; i < 8; ++i) {
    Frame frame = data(8, i);
    frame.trimmable = i % 2 == 0;
    fabric.inject(0, i, frame);
  }
  fabric.advance(kNoTime, seen);
  EXPECT_EQ(fabric.totals().trimmed, 2U);
  ASSERT_EQ(seen.drops.size(), 2U);
  EXPECT_EQ(seen.drops[0].first, LossReason::queue_full);
  EXPECT_EQ(seen.arrivals.size(), 6U);
  for (const auto& arrival : seen.arrivals) {
    EXPECT_TRUE((arrival.event.flags & kTrimmed) == 0 || arrival.event.frame % 2 == 0);
  }
}

// Delay and jitter act at the far end of the link. If frames were still counted as queued
// meanwhile, a longer cable would mark more.
TEST(Admission, MarksDoNotDependOnWhatHoldsFramesBackAfterwards) {
  LinkProperties down;
  down.buffer = 1 << 20;
  down.ecn_low = 20'000;
  down.ecn_high = 120'000;
  const Topology net = star(4, down);
  const auto marked = [&](const Impairment& is) {
    Fabric fabric(net, {.seed = 3});
    Collector seen;
    EXPECT_TRUE(fabric.apply(0, on_link("hub->h3", is)));
    fabric.advance(0, seen);
    incast(fabric, seen, 60);
    EXPECT_EQ(seen.arrivals.size(), 180U);
    EXPECT_EQ(fabric.frames_inside(), 0U);
    std::set<std::uint32_t> frames;
    for (const auto& arrival : seen.arrivals) {
      if ((arrival.event.flags & kMarked) != 0) {
        frames.insert(arrival.event.frame);
      }
    }
    return frames;
  };
  const auto untroubled = marked({});
  EXPECT_GT(untroubled.size(), 50U);
  EXPECT_LT(untroubled.size(), 180U);
  for (const int us : {1, 5, 20, 50, 100, 5000}) {
    Impairment is;
    is.extra_delay = microseconds{us};
    EXPECT_EQ(marked(is), untroubled) << us << " us more";
    is = {};
    is.jitter = microseconds{us};
    EXPECT_EQ(marked(is), untroubled) << "up to " << us << " us more";
    is = {};
    is.reordering = 0.3;
    is.reorder_delay = microseconds{us};
    EXPECT_EQ(marked(is), untroubled) << "some " << us << " us more";
  }
}

// Whatever the extra delay, the same 11 frames have left when the cable is cut.
TEST(Admission, ACutHitsWhatWaitsAndNotWhatIsHeldBackBehindTheCable) {
  const Topology net = star(3);
  for (const int us : {0, 3, 50}) {
    Fabric fabric(net, {});
    Collector seen;
    Impairment slow;
    slow.extra_delay = microseconds{us};
    ASSERT_TRUE(fabric.apply(0, on_link("hub->h2", slow)));
    for (std::uint32_t i = 0; i < 20; ++i) {
      fabric.inject(0, 0, data(2, i));
      fabric.inject(0, 1, data(2, 100 + i));
    }
    Impairment cut;
    cut.down = true;
    Fault fault = on_link("hub->h2", cut);
    fault.at = microseconds{5};
    ASSERT_TRUE(fabric.apply(0, fault));
    fabric.advance(kNoTime, seen);
    EXPECT_EQ(seen.arrivals.size(), 11U) << us;  // what has left by 5 us
    EXPECT_EQ(seen.arrivals.size() + seen.drops.size(), 40U);
  }
}

// The outage of the moment when a frame would have left counts, however many came since.
TEST(Admission, AFlapShorterThanTheCableIsNotForgotten) {
  LinkProperties far;
  far.delay = microseconds{1000};
  const Topology net = star(2, far);
  Fabric fabric(net, {});
  Collector seen;
  Impairment cut;
  cut.down = true;
  Fault flap = on_link("hub->h1", cut);
  flap.at = microseconds{2000};
  flap.lasts = microseconds{50};
  flap.every = microseconds{100};
  flap.times = 8;
  ASSERT_TRUE(fabric.apply(0, flap));
  // They reach the hub in the 100 us before the first outage, and leave over the next 660 us.
  for (std::uint32_t i = 0; i < 2000; ++i) {
    fabric.advance(900 * kUs, seen);
    fabric.inject(900 * kUs, 0, data(1, i));
  }
  fabric.advance(kNoTime, seen);
  EXPECT_EQ(seen.arrivals.size() + seen.drops.size(), 2000U);
  for (const auto& arrival : seen.arrivals) {
    const Picos left = arrival.when - 1000 * kUs;
    const bool down = left > 2000 * kUs && left < 2800 * kUs && left % (100 * kUs) < 50 * kUs;
    EXPECT_FALSE(down) << left;
  }
}

// What a paused host's NIC holds has arrived: nothing that the link does later concerns it.
TEST(Admission, FramesOfAPausedHostAreJudgedOnce) {
  LinkProperties down;
  down.buffer = 1 << 20;
  down.ecn_low = down.ecn_high = 3 * 4150;
  const Topology net = star(4, down);
  Fabric fabric(net, {});
  Collector seen;
  Fault pause;
  pause.target = Fault::Target::host;
  pause.where = "h3";
  pause.lasts = microseconds{500};
  ASSERT_TRUE(fabric.apply(0, pause));
  Impairment cut;
  cut.down = true;
  Fault fault = on_link("hub->h3", cut);
  fault.at = microseconds{400};
  ASSERT_TRUE(fabric.apply(0, fault));
  fabric.advance(0, seen);
  incast(fabric, seen, 10);
  EXPECT_EQ(seen.arrivals.size(), 30U);
  EXPECT_TRUE(seen.drops.empty());
  Fabric quiet(net, {});
  Collector other;
  incast(quiet, other, 10);
  EXPECT_EQ(fabric.totals().marked, quiet.totals().marked);
}

// Each of 180 frames is doubled, in front of a queue that is too small for the originals. 360
// frames must be accounted for, and the link's rate holds for copies, too.
TEST(Admission, ACopyWaitsCountsAndIsDroppedLikeAnyFrame) {
  LinkProperties down;
  down.buffer = 4 * 4150;
  const Topology net = star(4, down);
  Fabric fabric(net, {});
  Collector seen;
  Impairment is;
  is.duplication = 1;
  ASSERT_TRUE(fabric.apply(0, on_link("hub->h3", is)));
  fabric.advance(0, seen);
  incast(fabric, seen, 60);
  const FabricTotals& totals = fabric.totals();
  EXPECT_EQ(totals.duplicated, 180U);
  EXPECT_EQ(totals.delivered + totals.dropped_all(), 360U);
  EXPECT_EQ(fabric.frames_inside(), 0U);
  // No link carries more than its rate: the last arrival is as late as all of them need.
  EXPECT_EQ(fabric.counters(net.find_links("hub->h3")[0]).bytes, totals.delivered * 4150);
  const Picos frame = 4150 * 80;
  for (std::size_t i = 1; i < seen.arrivals.size(); ++i) {
    EXPECT_GE(seen.arrivals[i].when - seen.arrivals[i - 1].when, frame);
  }
}

// The owner of the bytes frees them when the frame is dropped. A copy that is asked for after that
// would be of another frame's bytes.
TEST(Admission, ACopyOfAFrameThatFindsTheQueueFullIsMadeFromItsBytes) {
  struct Owner : Collector {
    std::set<std::uint32_t> gone;
    void drop(Picos now, const CalendarEvent& event, LossReason reason, LinkId link) {
      Collector::drop(now, event, reason, link);
      gone.insert(event.frame);
    }
    std::uint32_t duplicate(std::uint32_t handle) {
      EXPECT_FALSE(gone.contains(handle)) << "its bytes are somebody else's now";
      return Collector::duplicate(handle);
    }
  };
  const Topology net = star(9, queue_of_four());
  Fabric fabric(net, {});
  Owner seen;
  Impairment is;
  is.duplication = 1;
  ASSERT_TRUE(fabric.apply(0, on_link("hub->h8", is)));
  fabric.advance(0, seen);
  send_eight(fabric);
  fabric.advance(kNoTime, seen);
  EXPECT_EQ(seen.arrivals.size(), 4U);
  EXPECT_EQ(seen.drops.size(), 12U);
}

// weftd may have no memory for it. Then the original goes on alone, and nothing is counted as
// doubled.
TEST(Admission, WhereThereIsNoRoomForACopyThereIsNone) {
  struct Full : Collector {
    std::uint32_t duplicate(std::uint32_t) { return kNone; }
  };
  const Topology net = star(2);
  Fabric fabric(net, {});
  Full seen;
  Impairment is;
  is.duplication = 1;
  ASSERT_TRUE(fabric.apply(0, on_link("hub->h1", is)));
  fabric.advance(0, seen);
  fabric.inject(0, 0, data(1, 1));
  fabric.advance(kNoTime, seen);
  EXPECT_EQ(seen.arrivals.size(), 1U);
  EXPECT_EQ(fabric.totals().duplicated, 0U);
  EXPECT_EQ(fabric.frames_inside(), 0U);
}

// Without a switch between them a host cannot pass a frame on; both frames are lost for that
// reason.
TEST(Admission, OnACableBetweenTwoHostsACopyForAThirdHasNoRouteEither) {
  Topology net;
  const NodeId a = net.add_host("a");
  const NodeId b = net.add_host("b");
  const NodeId c = net.add_host("c");
  const NodeId hub = net.add_switch("hub");
  net.connect(a, b, LinkProperties{});
  net.connect(a, hub, LinkProperties{});
  net.connect(c, hub, LinkProperties{});
  ASSERT_TRUE(net.validate());
  Fabric fabric(net, {});
  Collector seen;
  Impairment is;
  is.duplication = 1;
  ASSERT_TRUE(fabric.apply(0, on_link("a->b", is)));
  fabric.advance(0, seen);
  const PortId third = fabric.port_count() - 1;
  fabric.inject(0, 0, data(third, 1));
  fabric.advance(kNoTime, seen);
  EXPECT_TRUE(seen.arrivals.empty());
  EXPECT_EQ(fabric.totals().dropped[static_cast<std::size_t>(LossReason::no_route)], 2U);
  EXPECT_EQ(fabric.totals().in_flight(), 0U);
}

}  // namespace
}  // namespace weft::fabric
