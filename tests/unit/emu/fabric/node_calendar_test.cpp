// Owns the tests of the calendar by nodes. It lets each node run ahead of the others by as much as
// an event needs at least to get from one to another (the lookahead), which must change nothing
// that any node sees.
#include "emu/fabric/node_calendar.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "srd/base/rng.hpp"

namespace weft::fabric {
namespace {

constexpr Picos kLookahead = 1000;

// Each event causes further ones, which follow from it alone: at its own node at any time, at
// others not before the lookahead is over.
class Causes {
 public:
  Causes(std::uint32_t nodes, Picos horizon)
      : calendar_(nodes, kLookahead, horizon), nodes_(nodes) {
    for (std::uint32_t i = 0; i < 40; ++i) {
      push(i % nodes, {.when = static_cast<Picos>(mix64(i) % 5000), .frame = i, .via = i % 3});
    }
  }

  void run(Picos until) { calendar_.run(until, *this); }
  void stop_at_window_of(Picos when) { stop_from_ = when; }
  [[nodiscard]] const NodeCalendar& calendar() const { return calendar_; }
  [[nodiscard]] std::uint32_t pending() const { return pushed_ - happened_; }

  void event(const CalendarEvent& event) {
    const NodeId node = event.destination;
    auto& log = logs[node];
    if (!log.empty()) {
      EXPECT_GE(event.when, log.back().first) << "node " << node;
    }
    log.emplace_back(event.when, event.frame);
    ++happened_;
    seen = std::max(seen, event.when);
    // What happens later causes nothing: the run has an end.
    if (event.when > 60'000) {
      return;
    }
    Rng rng(mix64(event.frame) ^ static_cast<std::uint64_t>(event.when));
    const auto via = static_cast<std::uint32_t>(100 + node);  // its author
    if (rng.chance(0.55)) {
      const Picos later = event.when + kLookahead + rng.below(rng.chance(0.1) ? 40'000U : 700U);
      push(rng.below(nodes_), {.when = later / 64 * 64 + 64, .frame = next(event), .via = via});
    }
    if (rng.chance(0.45)) {
      push(node, {.when = event.when + rng.below(2000), .frame = next(event) + 1, .via = via});
    }
  }
  void ahead(const NodeCalendar& calendar, NodeId node, unsigned n) {
    if (n + 1 == NodeCalendar::kAhead) {
      calendar.visit(node, [&](const CalendarEvent& event) { EXPECT_EQ(event.destination, node); });
    }
  }
  [[nodiscard]] bool stopped() const { return seen >= stop_from_; }

  std::map<NodeId, std::vector<std::pair<Picos, std::uint32_t>>> logs;
  Picos seen = 0;

 private:
  static std::uint32_t next(const CalendarEvent& event) {
    return static_cast<std::uint32_t>(mix64(event.frame + 7)) & ~1U;
  }
  void push(NodeId node, CalendarEvent event) {
    event.destination = node;
    ++pushed_;
    calendar_.push(node, event);
  }

  NodeCalendar calendar_;
  std::uint32_t nodes_;
  std::uint32_t pushed_ = 0;
  std::uint32_t happened_ = 0;
  Picos stop_from_ = kNoTime;
};

TEST(NodeCalendar, EveryNodeSeesItsEventsInOrderWhereverARunIsInterrupted) {
  for (const std::uint32_t nodes : {1U, 7U, 200U}) {
    for (const Picos horizon : {Picos{0}, Picos{100'000}}) {
      Causes whole(nodes, horizon);
      whole.run(kNoTime);
      EXPECT_EQ(whole.pending(), 0U);
      EXPECT_TRUE(whole.calendar().empty());
      for (const Picos step : {Picos{1}, Picos{333}, kLookahead, Picos{7777}}) {
        SCOPED_TRACE(step);
        Causes parts(nodes, horizon);
        for (Picos until = 0; !parts.calendar().empty(); until += step) {
          parts.run(until);
          ASSERT_GE(parts.calendar().next_bound(), until - kLookahead);
          ASSERT_LT(parts.seen, until + 1);
        }
        EXPECT_EQ(parts.logs, whole.logs);
      }
    }
  }
}

TEST(NodeCalendar, EqualTimesGoByLinkThenByInsertion) {
  struct Frames {
    void event(const CalendarEvent& event) { order.push_back(event.frame); }
    void ahead(const NodeCalendar&, NodeId, unsigned) {}
    [[nodiscard]] bool stopped() const { return false; }
    std::vector<std::uint32_t> order;
  } frames;
  NodeCalendar calendar(2, kLookahead, 0);
  for (std::uint32_t i = 0; i < 60; ++i) {  // long enough for either way of sorting
    calendar.push(1, {.when = 5, .frame = i, .via = i % 2});
  }
  calendar.push(1, {.when = 4, .frame = 99, .via = 9});
  calendar.run(kNoTime, frames);
  ASSERT_EQ(frames.order.size(), 61U);
  EXPECT_EQ(frames.order[0], 99U);
  for (std::uint32_t i = 0; i < 30; ++i) {
    EXPECT_EQ(frames.order[1 + i], 2 * i);
    EXPECT_EQ(frames.order[31 + i], 2 * i + 1);
  }
}

TEST(NodeCalendar, AStopLetsTheWindowEnd) {
  Causes whole(20, 0);
  whole.stop_at_window_of(20'000);
  whole.run(kNoTime);
  EXPECT_GT(whole.pending(), 0U);
  EXPECT_LT(whole.seen, 20'000 + 2 * kLookahead);
}

}  // namespace
}  // namespace weft::fabric
