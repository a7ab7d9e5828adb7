// Owns the rule for a loop that finds nothing to do: spin briefly, then yield the core, then block.
#pragma once

#include <chrono>

#include "srd/base/time.hpp"
#include "srd/net/packet_io.hpp"
#include "srd/run/short_turns.hpp"

namespace weft::srd {

struct IdleLimits {
  // Short: with more runnable processes than cores, one that spins delays all others.
  Duration spin = std::chrono::microseconds{1};
  // A peer that shares the core answers within a yield or two; a blocked one costs a wake-up of
  // 20-50 us.
  Duration yield = std::chrono::microseconds{100};
};

// How long a process spins for what may come: not at all where a third process, weftd, has to run
// in between, perhaps on the same core.
[[nodiscard]] inline IdleLimits process_idle(const IoCapabilities& carrier) {
  IdleLimits limits;
  if (carrier.network.round_trip > Duration::zero()) {
    limits.spin = Duration::zero();
  }
  return limits;
}

class Idler {
 public:
  explicit Idler(const IdleLimits& limits = {}) : limits_(limits) {}

  void worked() { idle_since_ = kNever; }

  // Spins or yields once. True: that has been tried long enough, block.
  [[nodiscard]] bool pause(TimePoint now) {
    if (idle_since_ == kNever) {
      idle_since_ = now;
    }
    const Duration idle = now - idle_since_;
    if (idle < limits_.spin) {
      __builtin_ia32_pause();
      return false;
    }
    if (idle < limits_.spin + limits_.yield) {
      give_way();
      return false;
    }
    return true;
  }

 private:
  IdleLimits limits_;
  TimePoint idle_since_ = kNever;
};

}  // namespace weft::srd
