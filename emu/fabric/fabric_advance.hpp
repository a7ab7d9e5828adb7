// Owns the loop that handles events, a template over the sink. Part of fabric.hpp.
#pragma once

#include <algorithm>

#include "emu/fabric/fabric.hpp"

namespace weft::fabric {

// Tells the sink of what an event led to besides a delivery: losses, copies, pauses. Code that is
// no template (fabric.cpp, fabric_faults.cpp) does not know the sink, and leaves notices instead.
template <class Sink>
void Fabric::tell(Sink& sink) {
  // In their order: a frame may have been copied before it was dropped. Handling one may add more.
  std::size_t told = 0;
  while (told < notices_.size() || !pause_changes_.empty()) {
    if (!pause_changes_.empty()) {
      const PauseChange change = pause_changes_.front();
      pause_changes_.erase(pause_changes_.begin());
      sink.paused(now_, change.port, change.paused);
      continue;
    }
    Notice notice = notices_[told++];
    if (notice.kind == Notice::Kind::copied) {
      notice.event.frame = sink.duplicate(notice.event.frame);
      if (notice.event.frame != kNone) {
        ++totals_.duplicated;
        notice.event.when = now_;
        send_copy(notice.link, notice.event);
      }
    } else if (notice.kind == Notice::Kind::passed) {
      if constexpr (requires { sink.passed(now_, notice.event, notice.link); }) {
        sink.passed(notice.event.when, notice.event, notice.link);
      }
    } else {
      sink.drop(now_, notice.event, notice.reason, notice.link);
    }
  }
  notices_.clear();
}

// One event. By time `now_` never goes back; by node it does, when the next node begins its window.
template <class Sink>
void Fabric::happen(CalendarEvent event, Sink& sink) {
  now_ = calendar_ ? event.when : std::max(now_, event.when);
  ++totals_.events;
  switch (event.kind) {
    case CalendarEvent::Kind::hop:
      --hops_pending_;
      if (reach(event)) [[likely]] {
        go_on(event, sink);
      }
      break;
    case CalendarEvent::Kind::late:
      --hops_pending_;
      event.kind = CalendarEvent::Kind::hop;
      event.via -= kLateFrom;
      go_on(event, sink);
      break;
    case CalendarEvent::Kind::wake_port:
      if constexpr (requires { sink.wake_port(now_, event.destination, event.frame); }) {
        sink.wake_port(now_, event.destination, event.frame);
      }
      break;
    case CalendarEvent::Kind::wake:
      sink.wake(now_, event.frame);
      break;
    case CalendarEvent::Kind::fault:
      change(event.frame);
      break;
  }
  if (!notices_.empty() || !pause_changes_.empty()) [[unlikely]] {
    tell(sink);
  }
}

// Marking is decided here, at the far end, by the queue as it was when the frame left (mark()): the
// frame saw the frames behind it, not those that came while it crossed the cable.
inline bool Fabric::reach(CalendarEvent& event) {
  LinkState& via = links_[event.via];
  const LinkClass& kind = classes_[via.kind];
  const Picos left = event.when - kind.delay;
  if (via.trouble != 0 && was_cut(event, via, left)) [[unlikely]] {
    return false;
  }
  if ((event.flags & (kControl | kEcnCapable | kMarked)) == kEcnCapable && kind.ecn_high != 0) {
    if (via.busy - left > kind.ecn_low) {
      mark(event, via, kind, left);
    }
  }
  return via.trouble == 0 || !hold_back(event, via);
}

// A frame that has crossed a cable goes on: into the next queue, or to its receiver.
template <class Sink>
inline void Fabric::go_on(CalendarEvent& event, Sink& sink) {
  if ((event.flags & kArrives) == 0) {
    send(event.next, event);
  } else if (paused_[event.destination] == 0 || !hold(event)) {
    ++totals_.delivered;
    sink.deliver(now_, event.destination, event);
  }
}

// The handler that NodeCalendar::run() calls.
template <class Sink>
struct Fabric::Turns {
  Turns(Fabric& its_fabric, Sink& its_sink) : fabric(its_fabric), sink(its_sink) {}
  Fabric& fabric;
  Sink& sink;

  void event(const CalendarEvent& event) { fabric.happen(event, sink); }
  [[nodiscard]] bool stopped() const { return fabric.stopped_; }

  // Prefetches what the node will touch, one level of pointers per step: the head of its chain, the
  // chunks, the links and frames that its events name, and at last the sink's own state.
  void ahead(const NodeCalendar& calendar, NodeId node, unsigned n) {
    switch (n) {
      case NodeCalendar::kAhead:
        calendar.prefetch_head(node);
        return;
      case NodeCalendar::kAhead - 1:
        calendar.prefetch_events(node, false);
        return;
      case NodeCalendar::kAhead - 2:
        calendar.prefetch_events(node, true);
        return;
      case NodeCalendar::kAhead - 3:
        look_at(calendar, node);
        return;
      default:
        if constexpr (requires { sink.expect_port(PortId{0}, kNone, 0U); }) {
          for (const Expected& it : expected_[node % expected_.size()]) {
            if (it.port != kNone) {
              sink.expect_port(it.port, it.frame, NodeCalendar::kAhead - 4 - n);
            }
          }
        }
        return;
    }
  }

 private:
  // One expected frame of each kind per node: most hosts get data from one peer at a time, and
  // acknowledgements from another one.
  struct Expected {
    PortId port = kNone;
    std::uint32_t frame = kNone;
  };
  enum Kind : std::size_t { is_data = 0, is_control = 1, is_wake = 2, kKinds = 3 };

  void look_at(const NodeCalendar& calendar, NodeId node) {
    auto& expected = expected_[node % expected_.size()];
    expected.fill({});
    calendar.visit(node, [&](const CalendarEvent& event) {
      if (event.kind > CalendarEvent::Kind::late) {
        expected[is_wake] = {event.destination, kNone};
        return;
      }
      __builtin_prefetch(&fabric.links_[event.via & ~kLateFrom]);
      if ((event.flags & kArrives) == 0) {
        const LinkState& next = fabric.links_[event.next];
        __builtin_prefetch(&next, 1);
        __builtin_prefetch(&next.log, 1);
        __builtin_prefetch(&next.log[kLogEntries / 2], 1);
      } else {
        expected[(event.flags & kControl) != 0 ? is_control : is_data] = {event.destination,
                                                                          event.frame};
        if constexpr (requires { sink.expect_frame(0U); }) {
          sink.expect_frame(event.frame);
        }
      }
    });
  }

  std::array<std::array<Expected, kKinds>, 2 * NodeCalendar::kAhead> expected_{};
};

// What inject() or end() led to outside of this loop is told first.
template <class Sink>
void Fabric::advance(Picos until, Sink& sink) {
  stopped_ = false;
  tell(sink);
  if (calendar_) {
    advance_by_node(until, sink);
  } else {
    for (const CalendarEvent* next = queue_.front();
         next != nullptr && next->when <= until && !stopped_; next = queue_.front()) {
      const CalendarEvent event = *next;
      queue_.pop();
      happen(event, sink);
    }
  }
  if (stopped_ && calendar_) {
    now_ = stop_at_;
  } else if (!stopped_ && until != kNoTime) {
    now_ = calendar_ ? until : std::max(now_, until);
  }
}

// Events of queue_ concern several nodes (faults, wakes of the sink). Each happens when all nodes
// have reached its time, before their own events of that time.
template <class Sink>
void Fabric::advance_by_node(Picos until, Sink& sink) {
  Turns<Sink> turns(*this, sink);
  const Picos after = until == kNoTime ? kNoTime : until + 1;
  while (true) {
    const bool stopping = stopped_;
    const CalendarEvent* front = queue_.front();
    const Picos due = front == nullptr ? kNoTime : front->when;
    calendar_->run(std::min(due, stopping ? stop_at_ : after), turns);
    if (stopped_ != stopping) {
      continue;  // to the end of the window
    }
    if (due >= (stopping ? stop_at_ : after)) {
      return;
    }
    const CalendarEvent event = *queue_.front();
    queue_.pop();
    happen(event, sink);
  }
}

}  // namespace weft::fabric
