// Owns the rules by which a receiver on an unordered network believes a counter: writes arrive in
// any order, and so does the message that says how many there were.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace weft::workloads {

// count: a counter waits until as many writes of its group have arrived as it says. sequence:
// writes and counters of a group are numbered, and are believed in this order. strong: the sender
// lets a counter go when the writes before it have been acknowledged. none: a counter is believed
// when it arrives, as on an ordered network.
enum class Ordering : std::uint8_t { count, sequence, strong, none };
inline constexpr const char* kOrderingNames[] = {"count", "sequence", "strong", "none"};

// Immediate data of a write: 32 bits.
struct Mark {
  static constexpr std::uint32_t kMaxGroup = 1U << 10;
  static constexpr std::uint32_t kMaxValue = 1U << 15;
  static constexpr std::uint32_t kSequences = 16;

  bool counter = false;  // else one of the writes that are counted
  bool combine = false;
  bool odd = false;  // which of two buffers
  std::uint32_t group = 0;
  std::uint32_t value = 0;
  std::uint32_t sequence = 0;

  [[nodiscard]] std::uint32_t word() const {
    return static_cast<std::uint32_t>(counter) << 31 | static_cast<std::uint32_t>(combine) << 30 |
           static_cast<std::uint32_t>(odd) << 29 | group << 19 | value << 4 | sequence;
  }
  [[nodiscard]] static Mark of(std::uint32_t word) {
    return {(word >> 31) != 0,           (word >> 30 & 1) != 0,
            (word >> 29 & 1) != 0,       word >> 19 & (kMaxGroup - 1),
            word >> 4 & (kMaxValue - 1), word & (kSequences - 1)};
  }
};

struct OrderingCounters {
  std::uint64_t counters = 0;  // that have arrived
  std::uint64_t held = 0;      // of them those that had to wait
  std::uint64_t deepest = 0;   // most that waited at a time
  std::uint64_t stray = 0;     // numbers that no sender of ours gives

  void add(const OrderingCounters& other) {
    counters += other.counters;
    held += other.held;
    deepest = deepest > other.deepest ? deepest : other.deepest;
    stray += other.stray;
  }
};

// One group of one sender: what has arrived of it, and what may be believed. Groups are independent
// of each other.
class GroupArrivals {
 public:
  // A mark has arrived. Returns the counter's value if it may be believed now.
  [[nodiscard]] std::optional<std::uint32_t> take(Ordering ordering, const Mark& mark,
                                                  OrderingCounters& totals,
                                                  std::uint64_t& waiting_now);

 private:
  [[nodiscard]] std::optional<std::uint32_t> take_in_sequence(const Mark& mark,
                                                              OrderingCounters& totals,
                                                              std::uint64_t& waiting_now);
  void hold(OrderingCounters& totals, std::uint64_t& waiting_now);

  std::uint32_t arrived_ = 0;  // writes since the last counter
  std::optional<std::uint32_t> pending_;
  std::uint32_t next_ = 0;  // sequence number
  struct Early {
    std::uint32_t sequence = 0;
    std::optional<std::uint32_t> counter;
  };
  std::vector<Early> early_;
};

// The sender's side of `sequence`. An acknowledged number has arrived, so at most kSequences
// numbers are on their way at a time, and none is used again before the receiver has passed its
// former use.
class SequenceWindow {
 public:
  [[nodiscard]] bool has_room() const { return next_ - oldest_ < Mark::kSequences; }
  [[nodiscard]] std::uint32_t take() { return next_++ % Mark::kSequences; }
  void acknowledge(std::uint32_t sequence);

 private:
  std::uint32_t next_ = 0;
  std::uint32_t oldest_ = 0;        // that has not been acknowledged
  std::uint32_t acknowledged_ = 0;  // bits: of those from the oldest on
};

}  // namespace weft::workloads
