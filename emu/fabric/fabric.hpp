// Owns the running network: frames go in at ports, wait in queues, are marked, cut, lost or
// delivered.
//
// How to drive it: inject() frames at a port, and call advance(until, sink), which makes everything
// happen that is due and tells the sink of it. next_event() says when that is worth while again.
// There is no clock and no thread: the simulator passes virtual time, weftd real time. The bytes of
// frames stay with the caller; the network knows a handle, a size and a few flags.
//
//   inject() -> send() -> suffer() -> enqueue() -> [calendar] -> reach() -> send() ... -> deliver()
//               faults of the link    its queue    cable         mark      next link
//
// Two orders of events: by time (EventQueue), or node by node within windows (NodeCalendar), which
// is much faster in large networks and asks more of the sink; see FabricOptions::by_node.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "emu/fabric/event_queue.hpp"
#include "emu/fabric/fault.hpp"
#include "emu/fabric/node_calendar.hpp"
#include "emu/fabric/picos.hpp"
#include "emu/fabric/routes.hpp"
#include "emu/fabric/topology.hpp"
#include "srd/base/rng.hpp"

namespace weft::fabric {

// Bits of CalendarEvent::flags.
enum FrameFlags : std::uint8_t {
  kControl = 0x01,  // goes before data: acknowledgements, cut headers
  kEcnCapable = 0x02,
  kMarked = 0x04,
  kTrimmed = 0x08,
  kCorrupted = 0x10,  // a bit is wrong; the owner of the bytes chooses which
  kArrives = 0x20,    // the far end of `via` is the destination
  kTrimmable = 0x40,  // its header alone tells the receiver what was lost
};

// What the network needs to know of a frame. The bytes stay with the caller, under `handle`, which
// comes back in each call of the sink that ends the frame: deliver() or drop(), one of them exactly
// once.
struct Frame {
  PortId destination = 0;
  std::uint32_t hash = 0;  // of everything that ECMP looks at
  std::uint32_t handle = 0;
  std::uint16_t size = 0;  // bytes on the wire
  bool control = false;
  bool ecn_capable = true;
  // A full queue that trims may cut it to its header. Only for packets of a transport that
  // understands a cut header; others are dropped instead.
  bool trimmable = false;
};

enum class LossReason : std::uint8_t {
  queue_full,
  link_down,
  loss,
  burst,
  grey,
  no_route,
  host_paused
};
inline constexpr std::size_t kLossReasons = static_cast<std::size_t>(LossReason::host_paused) + 1;
[[nodiscard]] const char* to_string(LossReason reason);

// Since the network was made. Frames, but for `events`; `marked` and `trimmed` count each frame
// once, because a frame that is marked or cut stays so.
struct FabricTotals {
  std::uint64_t injected = 0;
  std::uint64_t delivered = 0;
  std::uint64_t duplicated = 0;
  std::uint64_t corrupted = 0;
  std::uint64_t trimmed = 0;
  std::uint64_t marked = 0;
  std::array<std::uint64_t, kLossReasons> dropped{};
  std::uint64_t events = 0;

  [[nodiscard]] std::uint64_t dropped_all() const;
  // Frames that must still be inside, if every frame is accounted for.
  [[nodiscard]] std::uint64_t in_flight() const {
    return injected + duplicated - delivered - dropped_all();
  }
};

// Of one link, one direction of a cable. Drops count where the frame was to be queued, or was cut.
struct LinkCounters {
  std::uint64_t bytes = 0;
  Picos longest_queue = 0;  // as time to drain
  std::uint32_t drops = 0;
  std::uint32_t trims = 0;
  std::uint32_t marks = 0;
};
static_assert(sizeof(LinkCounters) == 32);

struct FabricOptions {
  std::uint64_t seed = 1;
  std::uint32_t mtu = 4150;  // wire bytes of the usual frame: sizes the calendar, and the frame
                             // that control waits for on a busy wire
  std::uint16_t trimmed_size = 64;
  std::uint32_t paused_frames = 1024;  // that a paused host's NIC holds before it drops
  // Events go node by node within the shortest cable's delay, instead of strictly by time: much
  // faster in large networks. In deliver() and wake_port() the sink must then touch only that
  // port's state, and must not depend on another port's.
  bool by_node = false;
  // For real time, where few events lie ahead, all of them soon: a small calendar that stays in the
  // first-level cache.
  bool live = false;
};

class Fabric {
 public:
  // The topology must have passed validate() and outlive the fabric. All calls come from one
  // thread.
  Fabric(const Topology& topology, const FabricOptions& options);

  // --- Frames in; returns when the port's uplink has sent it and everything before it. A frame
  // that is lost at once is reported by the next advance(), not from here.
  Picos inject(Picos now, PortId from, const Frame& frame);
  [[nodiscard]] bool is_down(LinkId link) const { return troubles_[links_[link].trouble].sum.down; }
  // Changes whenever a link goes down or comes up.
  [[nodiscard]] std::uint64_t outages() const { return outages_; }
  [[nodiscard]] Picos uplink_free(PortId port) const { return links_[routes_.uplink(port)].busy; }

  // --- Time. advance() makes all happen that is due at `until` or before, in order, and calls the
  // sink: deliver(Picos, PortId, const CalendarEvent&), drop(Picos, const CalendarEvent&,
  // LossReason, LinkId), duplicate(handle) -> handle, or kNone where there is no room for a copy,
  // wake(Picos, token), wake_port(Picos, PortId, token), paused(Picos, PortId, bool), and if links
  // are watched passed(Picos, const CalendarEvent&, LinkId). The sink may inject and schedule. If
  // it has expect_frame(handle) and expect_port(PortId, handle or kNone, step), it is told whose
  // turn comes soon, so that it can prefetch.
  template <class Sink>
  void advance(Picos until, Sink& sink);
  // Ends advance() after the present event; by node, after the present window, so that the end
  // depends neither on the order of the nodes nor on `until`.
  void stop() {
    if (calendar_ && !stopped_) {
      stop_at_ = calendar_->window_end();
    }
    stopped_ = true;
  }
  // When the next thing happens, or kNoTime. By node it may be earlier than that, never later.
  [[nodiscard]] Picos next_event() {
    if (!notices_.empty()) {
      return now_;
    }
    const CalendarEvent* event = queue_.front();
    const Picos next = event == nullptr ? kNoTime : event->when;
    return calendar_ ? std::min(next, calendar_->next_bound()) : next;
  }
  // Calls the sink at that time, before all frames of that time.
  void schedule_wake(Picos when, std::uint32_t token) {
    queue_.push({.when = when, .frame = token, .kind = CalendarEvent::Kind::wake});
  }
  // For one port only: hosts keep their deadlines in the same calendar as frames.
  void schedule_wake(Picos when, PortId port, std::uint32_t token) {
    const CalendarEvent event{.when = when,
                              .frame = token,
                              .destination = port,
                              .via = kWakesFrom + token,
                              .kind = CalendarEvent::Kind::wake_port};
    if (calendar_) {
      calendar_->push(routes_.host_of(port), event);
    } else {
      queue_.push(event);
    }
  }
  [[nodiscard]] Picos now() const { return now_; }
  // For a live network with no frame inside: sets its time back to 0, and planned events by as
  // much. Returns what now() was.
  Picos rewind();

  // --- Trouble. apply() plans the fault's whole schedule, from `now` on, and returns its index; an
  // error names what is wrong with it, and nothing is planned. end() ends what is left of it; an
  // index that is unknown or ended already is ignored.
  Result<std::uint32_t> apply(Picos now, const Fault& fault);
  void end(Picos now, std::uint32_t fault);
  [[nodiscard]] bool paused(PortId port) const { return paused_[port] != 0; }
  // The links that a fault touches.
  [[nodiscard]] std::span<const LinkId> links_of(std::uint32_t fault) const {
    return faults_[fault].links;
  }

  // Tells the sink of every frame that a watched link takes, with the time when its last bit
  // leaves.
  void watch(LinkId link, bool watched) {
    const unsigned flags = links_[link].flags & ~unsigned{kWatched};
    links_[link].flags = static_cast<std::uint8_t>(flags | (watched ? kWatched : 0U));
  }

  [[nodiscard]] const Routes& routes() const { return routes_; }
  [[nodiscard]] const Topology& topology() const { return topology_; }
  [[nodiscard]] std::uint32_t port_count() const {
    return static_cast<std::uint32_t>(paused_.size());
  }
  [[nodiscard]] const FabricTotals& totals() const { return totals_; }
  [[nodiscard]] const LinkCounters& counters(LinkId link) const { return links_[link].counters; }
  // The time until everything that waits on the link now has left.
  [[nodiscard]] Picos backlog(LinkId link) const {
    return std::max<Picos>(links_[link].busy - now_, 0);
  }
  // Frames inside, counted in the calendar and at paused hosts: equals totals().in_flight() at any
  // time.
  [[nodiscard]] std::uint64_t frames_inside() const { return hops_pending_ + held_count_; }
  [[nodiscard]] std::size_t memory() const;

 private:
  // Properties that many links share, kept once. Limits in bytes are converted to the time that the
  // link takes to drain them, so that no hop divides.
  struct LinkClass {
    Picos limit = 0;
    Picos delay = 0;  // to the far end, and through the switch there
    Picos ecn_low = 0;
    Picos ecn_high = 0;      // 0: no marking
    unsigned log_shift = 0;  // the log counts in units of 2^log_shift ps
    friend bool operator==(const LinkClass&, const LinkClass&) = default;
  };
  static constexpr std::uint8_t kTrims = 1;
  static constexpr std::uint8_t kLeadsToHost = 2;
  static constexpr std::uint8_t kWatched = 4;
  // Calls of a port's sink have no link. In the order of a node's events they take the place of
  // links from here on, after all frames, ordered by token.
  static constexpr std::uint32_t kWakesFrom = 0xFFFF0000;
  // Added to the link of frames that were held back. Those are planned by another node than frames
  // that cross the same link just now; with a different `via` their order is fixed, whichever node
  // has its turn first.
  static constexpr std::uint32_t kLateFrom = 0x80000000;

  // The log of a queue: its length after recent arrivals. A mark depends on the queue at the moment
  // when a frame leaves, but is decided when that frame reaches the next node: arrivals in between
  // must not count. Arrivals within an eighth of the link's delay share an entry, so that 16
  // entries reach back over twice the delay: by node, one end may be a whole delay ahead of the
  // other. Times wrap; the log is reset when the link has been idle.
  static constexpr std::size_t kLogEntries = 16;
  struct LogEntry {
    std::uint32_t when = 0;
    std::uint32_t queue = 0;
  };

  // Three cache lines per link: one that every frame needs, and two for the log, which only frames
  // that may be marked need.
  struct alignas(64) LinkState {
    Picos busy = 0;     // data and control queued so far have left by then
    Picos control = 0;  // control queued so far has left by then
    LinkCounters counters;
    std::uint32_t ps_per_kib = 0;  // serialisation of 1024 bytes
    NodeId to = 0;
    std::uint32_t trouble = 0;  // index into troubles_, 0: none
    std::uint16_t kind = 0;     // index into classes_
    std::uint8_t head = 0;      // next entry of the log
    std::uint8_t flags = 0;
    std::array<LogEntry, kLogEntries> log{};
  };
  static_assert(sizeof(LinkState) == 192);
  // A time in which the link was down, as far as is known: (from, until].
  struct Outage {
    Picos from = 0;
    Picos until = kNoTime;
  };
  struct Trouble {
    Impairment sum;
    std::vector<std::uint32_t> active;  // faults; one that overlaps itself is in here twice
    bool bursting = false;
    // The latest outage, and earlier ones that a frame now on the cable may have met.
    std::vector<Outage> outages;
  };
  // A fault with the links or ports that it names, and how many of its occurrences hold now.
  struct AppliedFault {
    Fault fault;
    std::vector<LinkId> links;
    std::vector<PortId> ports;
    bool ended = false;
    std::uint32_t active = 0;
  };
  // Something to tell the sink once the present event is done (tell()).
  struct Notice {
    enum class Kind : std::uint8_t { dropped, copied, passed };
    CalendarEvent event;
    LossReason reason = LossReason::loss;
    LinkId link = 0;
    Kind kind = Kind::dropped;
  };
  struct PauseChange {
    PortId port = 0;
    bool paused = false;
  };

  void send(LinkId link, CalendarEvent& event);
  void send_copy(LinkId link, CalendarEvent& event);
  // Puts a frame into the link's queue, which decides when it leaves.
  void enqueue(LinkState& link, LinkId id, CalendarEvent& event);
  void send_control(LinkState& link, LinkId id, CalendarEvent& event);
  // The frame has crossed the cable of event.via, exactly one cable's delay after it left: faults
  // that delay hold it back at the far end. False: it was lost, or comes again later.
  bool reach(CalendarEvent& event);
  bool was_cut(const CalendarEvent& event, const LinkState& via, Picos left);
  bool hold_back(CalendarEvent& event, const LinkState& via);
  void mark(CalendarEvent& event, LinkState& via, const LinkClass& kind, Picos left);
  // Applies the faults of a link to a frame that is to be queued on it. False: it is lost.
  bool suffer(LinkState& link, LinkId id, CalendarEvent& event);
  bool survives(Trouble& trouble, LinkId id, CalendarEvent& event, Rng& dice_now);
  void drop(const CalendarEvent& event, LossReason reason, LinkId link);
  void push_hop(const CalendarEvent& event) { push_frame(links_[event.via].to, event); }
  // Plans a frame that has crossed the cable and was held back at its far end.
  void push_late(CalendarEvent event) {
    const NodeId node = links_[event.via].to;
    event.kind = CalendarEvent::Kind::late;
    event.via |= kLateFrom;
    push_frame(node, event);
  }
  void push_frame(NodeId node, const CalendarEvent& event) {
    ++hops_pending_;
    if (calendar_) {
      calendar_->push(node, event);
    } else {
      queue_.push(event);
    }
  }
  [[nodiscard]] Picos lookahead() const;
  // Keeps or drops a frame for a paused host. Always true: it is not delivered now.
  bool hold(const CalendarEvent& event);
  void note_queue(LinkState& link, const LinkClass& kind, Picos now);
  std::uint16_t class_of(const LinkClass& wanted);
  // A random number that depends only on the frame, the link and the time: the same whatever else
  // happens, and in whichever order events of other nodes are handled.
  [[nodiscard]] std::uint64_t dice(const CalendarEvent& event, LinkId link) const {
    return mix64(dice_seed_ ^ mix64(static_cast<std::uint64_t>(event.when)) ^
                 (static_cast<std::uint64_t>(link) << 32 | event.hash));
  }
  template <class Sink>
  void tell(Sink& sink);
  template <class Sink>
  void happen(CalendarEvent event, Sink& sink);
  template <class Sink>
  void go_on(CalendarEvent& event, Sink& sink);
  template <class Sink>
  struct Turns;
  template <class Sink>
  void advance_by_node(Picos until, Sink& sink);

  // An occurrence of a fault begins or ends.
  void change(std::uint32_t fault_and_phase);
  void set_active(std::uint32_t fault, bool active);
  // Sums up anew what is active on the link.
  void refresh(LinkId link);
  Trouble& trouble_of(LinkId link);
  void set_paused(PortId port, bool paused);
  Result<void> resolve(AppliedFault& applied);

  const Topology& topology_;
  FabricOptions options_;
  Routes routes_;
  EventQueue queue_;  // everything, or, by node, what concerns more than one node
  std::optional<NodeCalendar> calendar_;  // by node only
  std::vector<LinkState> links_;
  std::vector<LinkClass> classes_;
  Rng rng_;  // for the choice of links, before anything happens
  std::uint64_t dice_seed_;
  Picos now_ = 0;
  bool stopped_ = false;
  Picos stop_at_ = 0;  // by node: the end of the window in which it was asked for
  FabricTotals totals_;
  std::uint64_t hops_pending_ = 0;
  std::vector<Notice> notices_;
  // Entry 0 belongs to no link: most links never have a fault, and share it.
  std::vector<Trouble> troubles_;
  std::uint64_t outages_ = 0;
  std::vector<AppliedFault> faults_;
  std::vector<std::uint16_t> paused_;  // by port: how many pauses overlap
  std::vector<PauseChange> pause_changes_;
  // By port: frames that wait until a paused host goes on.
  std::vector<std::vector<CalendarEvent>> held_;
  std::uint64_t held_count_ = 0;
};

}  // namespace weft::fabric

#include "emu/fabric/fabric_advance.hpp"
