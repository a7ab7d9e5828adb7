// Owns the two ends of a ring of chunks in another rank's memory: when a place may be written, when
// its counter may go, and when what lies in it may be read. No memory and no network here.
//
// Chunks are numbered from the first one ever; chunk n lies in place n modulo the number of places.
// The counter of a chunk, the *tail*, says that all chunks up to this one are there; the *head*,
// which comes back, that all up to this one have been taken. Both travel modulo Mark::kMaxValue.
#pragma once

#include <cstdint>
#include <vector>

#include "integration/workloads/ordering.hpp"

namespace weft::workloads {

// A mark's group names a place; the last two are for what ranks tell each other besides.
inline constexpr std::uint32_t kMaxRingPlaces = Mark::kMaxGroup - 2;

// The end that writes.
class RingSender {
 public:
  explicit RingSender(std::uint32_t places) : acknowledged_(places) {}

  // The next chunk's place is free there, and what was sent from its place here has arrived.
  [[nodiscard]] bool has_room() const {
    return written_ - head_ < places() && written_ - settled_ < places();
  }
  [[nodiscard]] std::uint32_t place() const {
    return static_cast<std::uint32_t>(written_ % places());
  }
  void on_written() { ++written_; }
  // The chunk in this place has been acknowledged.
  void on_acknowledged(std::uint32_t place);

  // A chunk has been written whose counter has not been sent, and the rule lets it go.
  [[nodiscard]] bool may_tell(Ordering ordering) const {
    return told_ < (ordering == Ordering::strong ? settled_ : written_);
  }
  [[nodiscard]] bool has_told_all() const { return told_ == written_; }
  // The counter that goes next.
  [[nodiscard]] Mark tail() const {
    return {.counter = true,
            .group = static_cast<std::uint32_t>(told_ % places()),
            .value = static_cast<std::uint32_t>((told_ + 1) % Mark::kMaxValue)};
  }
  void on_told() { ++told_; }

  // False: it says that more has been taken than was sent.
  [[nodiscard]] bool take_head(std::uint32_t value);

 private:
  [[nodiscard]] std::uint64_t places() const { return acknowledged_.size(); }

  std::vector<bool> acknowledged_;  // by place
  std::uint64_t written_ = 0;
  std::uint64_t settled_ = 0;  // acknowledged, and all before them
  std::uint64_t told_ = 0;
  std::uint64_t head_ = 0;
};

// The end that reads. `count` counts the writes of each place: a counter for all of the ring could
// be made up for by chunks that are behind the one that is missing.
class RingReceiver {
 public:
  explicit RingReceiver(std::uint32_t places) : states_(places) {}

  // A chunk, or a counter, has arrived.
  void take(Ordering ordering, const Mark& mark, OrderingCounters& totals,
            std::uint64_t& waiting_now);
  // The oldest chunk that has not been taken may be read.
  [[nodiscard]] bool ready() const { return taken_ < tail_; }
  [[nodiscard]] std::uint32_t place() const {
    return static_cast<std::uint32_t>(taken_ % states_.size());
  }
  void on_taken() { ++taken_; }
  [[nodiscard]] std::uint32_t head() const {
    return static_cast<std::uint32_t>(taken_ % Mark::kMaxValue);
  }

 private:
  struct PlaceState {  // of `count`
    bool written = false;
    bool told = false;
    bool held = false;
  };

  void take_counted(const Mark& mark, OrderingCounters& totals, std::uint64_t& waiting_now);
  void believe(std::uint32_t value, OrderingCounters& totals);

  std::vector<PlaceState> states_;
  GroupArrivals numbered_;  // of `sequence`
  std::uint64_t tail_ = 0;
  std::uint64_t taken_ = 0;
};

}  // namespace weft::workloads
