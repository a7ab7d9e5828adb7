// Owns how much a link, or several together, can carry by when, while faults come and go. Times are
// picoseconds of virtual time, as double.
#pragma once

#include <optional>
#include <vector>

#include "emu/fabric/fault.hpp"
#include "emu/fabric/topology.hpp"

namespace weft::sim {

// A rate in bytes per picosecond as a step function of time, and its integral. It is an upper limit
// on what is carried: see link_rate(). First changes are collected, then settle() turns them into
// steps, then carried_by() answers.
class RateOverTime {
 public:
  // Adds what another link carries; before settle() of either.
  void add(const RateOverTime& other);
  // From `when` on the rate is larger by `by` (negative: smaller). Calls may come in any order.
  void change(double when, double by) { changes_.push_back({when, by, 0}); }
  // At `when` that many bytes more are through at once, without taking time.
  void allow(double when, double bytes) { changes_.push_back({when, 0, bytes}); }

  // Call once, after the last change and before carried_by().
  void settle();
  // When `bytes` are through that begin at `from`, in picoseconds; infinity if they never are.
  [[nodiscard]] double carried_by(double from, double bytes) const;

 private:
  struct Change {
    double when = 0;
    double by = 0;
    double bytes = 0;
  };
  struct Step {
    double from = 0;
    double rate = 0;
    double before = 0;  // bytes carried until `from`, including those allowed at that moment
  };
  // Bytes carried before `when`; what is allowed exactly then does not count yet.
  [[nodiscard]] double carried_before(double when) const;

  // Empty after settle().
  std::vector<Change> changes_;
  // By time; the first begins at 0.
  std::vector<Step> steps_;
};

// Picoseconds that a byte takes on the link at its fastest: its own rate, or what a fault makes of
// it. The fabric counts a frame in whole picoseconds, rounded down, so a frame may take up to one
// picosecond less.
[[nodiscard]] double fastest_ps_per_byte(const fabric::LinkProperties& link, double fastest_factor);

// What the link carries at most under `faults`, which must all touch it. The bound has to allow for
// bytes that a fault comes too late for: up to `queue` bytes (none: no limit) that wait for the
// link keep the departures that were planned at the old rate when the link becomes slow, and so
// does a frame of up to `mtu` bytes that is on the wire when the rate changes or an outage ends.
[[nodiscard]] RateOverTime link_rate(const fabric::LinkProperties& link,
                                     const std::vector<const fabric::Fault*>& faults,
                                     std::optional<Bytes> queue, Bytes mtu);

}  // namespace weft::sim
