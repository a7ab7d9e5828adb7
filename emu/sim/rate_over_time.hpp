// Owns how much a link, or several together, can carry by when, while faults come and go.
#pragma once

#include <optional>
#include <vector>

#include "emu/fabric/fault.hpp"
#include "emu/fabric/topology.hpp"

namespace weft::sim {

// Bytes per picosecond as a function of time, in steps. An upper limit: see link_rate().
class RateOverTime {
 public:
  // Adds what another link carries.
  void add(const RateOverTime& other);
  // From `when` on the rate is larger by `by`. In any order.
  void change(double when, double by) { changes_.push_back({when, by, 0}); }
  // At `when` so many bytes are through at once.
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
    double before = 0;  // bytes carried until `from`, and at that moment
  };
  [[nodiscard]] double carried_before(double when) const;

  std::vector<Change> changes_;
  std::vector<Step> steps_;
};

// Picoseconds that a byte takes on the link at its fastest: its own rate, or what a fault makes of
// it. The fabric counts a frame in whole picoseconds, rounded down, so a frame may take up to one
// picosecond less.
[[nodiscard]] double fastest_ps_per_byte(const fabric::LinkProperties& link, double fastest_factor);

// What the link carries at most under `faults`, those that touch it. `queue` bytes may wait for it
// (none: no limit): they keep the departures that were planned when the link becomes slow. So does
// a frame that is on the wire when an outage ends.
[[nodiscard]] RateOverTime link_rate(const fabric::LinkProperties& link,
                                     const std::vector<const fabric::Fault*>& faults,
                                     std::optional<Bytes> queue, Bytes mtu);

}  // namespace weft::sim
