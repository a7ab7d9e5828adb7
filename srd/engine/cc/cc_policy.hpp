// Owns what all congestion controls share: what they are told, and what they are tuned by.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "srd/base/time.hpp"
#include "srd/base/units.hpp"
#include "srd/engine/types.hpp"

namespace weft::srd {

enum class LossKind : std::uint8_t { trimmed, gap, timeout };

// One acknowledgement that acknowledged something new.
struct AckSample {
  TimePoint now;
  Bytes acked = 0;      // newly acknowledged, in bytes on the wire
  Bytes in_flight = 0;  // outstanding after this acknowledgement
  Duration
      rtt{};  // of the packet that the acknowledgement echoes, without the receiver's ack delay
  bool rtt_valid = false;
  bool congested = false;     // the echoed packet was marked
  bool late = false;          // acknowledges a packet that had been taken for lost
  PathId path;                // that it came along
  std::uint32_t packets = 0;  // newly acknowledged ...
  std::uint32_t marked = 0;   // ... and of these the marked ones: several may share this sample
};

// The network as known beforehand. Everything in bytes counts bytes on the wire.
struct CcTuning {
  Rate line_rate = Rate::gbps(100);
  Duration base_rtt = std::chrono::microseconds{14};
  Bytes mtu_wire = 4160;
  Bytes header = 64;         // of mtu_wire; NSCC scales by the payload
  bool trimming = false;     // target queueing delay: 0.75 base RTT with, 1.0 without
  bool credits = false;      // receivers ration: what is lost at the last hop is their business
  Bytes max_window = 0;      // 0: the policy's own, 1.5 BDP in most
  Bytes initial_window = 0;  // 0: max_window
};

// The limits of a window, and the one way into them. Windows are real numbers, because what an
// acknowledgement adds is often less than a byte.
struct WindowBounds {
  explicit WindowBounds(const CcTuning& tuning)
      : min(static_cast<double>(std::max<Bytes>(tuning.mtu_wire, 1))) {
    const double bdp = static_cast<double>(tuning.line_rate.bytes_in(tuning.base_rtt));
    max = std::max(min, tuning.max_window > 0 ? static_cast<double>(tuning.max_window) : 1.5 * bdp);
    initial = tuning.initial_window > 0 ? clamp(static_cast<double>(tuning.initial_window)) : max;
  }
  // Anything that is not a number becomes the smallest window.
  [[nodiscard]] double clamp(double window) const {
    return window > min ? std::min(window, max) : min;
  }
  [[nodiscard]] Bytes initial_bytes() const { return static_cast<Bytes>(initial); }

  double min;
  double max = 0;
  double initial = 0;
};

}  // namespace weft::srd
