// Owns the two ways of a sender to conclude from what has arrived that something else has not:
// a gap within a path, and time across paths. (The head of acknowledge.cpp compares all ways.)
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "srd/engine/rtt.hpp"
#include "srd/engine/send_window.hpp"

namespace weft::srd {

// Across paths: a packet that left so much earlier than one that has arrived is lost. Paths differ
// in delay, so the allowance is a whole round trip or more; it doubles when a packet that was taken
// for lost turns out to have arrived, and shrinks again when nothing of the kind happens for long.
class LossDetector {
 public:
  // A packet that left at `sent_at` has arrived.
  void on_arrival(TimePoint sent_at) { newest_arrival_ = std::max(newest_arrival_, sent_at); }
  // A packet that was taken for lost had arrived: be more patient.
  void on_mistake() {
    widening_ = std::min<std::uint8_t>(static_cast<std::uint8_t>(widening_ + 1), kMaxWidening);
    settled_since_widening_ = 0;
  }
  void on_settled() {
    if (++settled_since_widening_ >= kNarrowAfter && widening_ != 0) {
      --widening_;
      settled_since_widening_ = 0;
    }
  }
  // Calls lose(slot) for each packet in flight that is lost; it must take the slot out of flight.
  template <class Lose>
  void find(SendWindow& window, const RttEstimator& rtt, const Lose& lose) const {
    const Duration allowance = rtt.reorder_allowance() * (1 << widening_);
    while (SendSlot* const slot = window.oldest_in_flight()) {
      if (slot->sent_at + allowance >= newest_arrival_) {
        break;
      }
      lose(*slot);
    }
  }

  static constexpr std::uint32_t kNarrowAfter = 4096;  // packets that must settle before

 private:
  static constexpr std::uint8_t kMaxWidening = 1;  // a dead path must not go unnoticed for long

  TimePoint newest_arrival_{};  // latest departure among packets known to have arrived
  std::uint32_t settled_since_widening_ = 0;
  std::uint8_t widening_ = 0;  // the allowance is shifted by this
};

// The latest packet of each path: each packet is chained to the one before it on its path, as long
// as that one did not leave too long ago to matter.
class PathChain {
 public:
  // `first` is the first number of the window. A path that was never used has an entry from before.
  explicit PathChain(Psn first) { latest_.fill(Psn{first.value() - 1}); }

  // `slot` leaves along its path now.
  void link(SendSlot& slot) {
    const auto distance = static_cast<std::int32_t>(latest_[slot.path].value() - slot.psn.value());
    slot.path_before =
        distance == static_cast<std::int16_t>(distance) ? static_cast<std::int16_t>(distance) : 0;
    latest_[slot.path] = slot.psn;
  }

 private:
  std::array<Psn, wire::kMaxPaths> latest_;
};

// Within a path: a path keeps its order, so a packet that left earlier along the same one and has
// not arrived is lost. One acknowledgement tells of several packets: those that have arrived are
// noted first; their predecessors are looked at when all that the acknowledgement says is known.
class GapFinder {
 public:
  void clear() { arrived_.clear(); }
  // Before the slot is settled.
  void note_arrival(const SendSlot& slot) {
    if (slot.path_before != 0) {
      arrived_.push_back({slot.psn_before(), slot.path, slot.sent_at});
    }
  }
  // Calls lose(slot) for each packet in flight that more than `tolerance` later ones of its path
  // have overtaken; it must take the slot out of flight.
  template <class Lose>
  void find(SendWindow& window, std::uint8_t tolerance, const Lose& lose) const {
    for (const Overtaker& overtaker : arrived_) {
      Psn psn = overtaker.before;
      for (int steps = 0; steps < kLongestWalk && window.contains(psn); ++steps) {
        SendSlot& slot = window.slot(psn);
        if (slot.path != overtaker.path || overtaker.sent_at < slot.sent_at) {
          break;
        }
        if (slot.state == SendSlot::State::in_flight && slot.overtaken++ >= tolerance) {
          lose(slot);
        }
        if (slot.path_before == 0) {
          break;
        }
        psn = slot.psn_before();
      }
    }
  }

 private:
  // Steps back along the packets of one path: those further back were seen by earlier walks.
  static constexpr int kLongestWalk = 16;

  // A packet that has arrived, and the one that left before it along the same path.
  struct Overtaker {
    Psn before;
    std::uint8_t path;
    TimePoint sent_at;
  };

  std::vector<Overtaker> arrived_;
};

}  // namespace weft::srd
