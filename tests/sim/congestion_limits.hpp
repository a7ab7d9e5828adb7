// Owns what is asked of congestion controls, and by name what the published algorithms do not keep.
#pragma once

#include <span>
#include <string_view>

#include "tests/sim/congestion_world.hpp"

namespace weft::testing {

// What is asked of every control and setup; a test that asks for less says so in kKnownWeaknesses.
struct Limits {
  double queue;        // mean, in bandwidth-delay products: at most
  double utilisation;  // at least
  double fairness;     // Jain's index: at least
};

[[nodiscard]] Limits demanded(const CongestionSetup& setup);

enum class Property { queue, utilisation, fairness, timeouts, late_share };
inline constexpr const char* kPropertyNames[] = {"queue", "utilisation", "fairness", "timeouts",
                                                 "late share"};

// Which of the tests below a setup belongs to: a bit each.
using Rooms = unsigned;
inline constexpr Rooms kBottleneck = 1;
inline constexpr Rooms kPaths = 2;
inline constexpr Rooms kDistances = 4;
inline constexpr Rooms kLate = 8;

// What a control does not keep, beside what is asked. The test prints it, and fails when a line is
// no longer needed: this table may only shrink.
struct Weakness {
  std::string_view control;
  Rooms rooms;
  bool (*where)(const CongestionSetup&);
  Property property;
  // The limit follows from the algorithm, and from the queue that was measured, in products; or
  double (*by_construction)(const CongestionSetup&, double queue);
  double measured;  // it is what was measured, rounded outward
  std::string_view reason;

  [[nodiscard]] double limit(const CongestionSetup& setup, double queue) const {
    return by_construction != nullptr ? by_construction(setup, queue) : measured;
  }
};

[[nodiscard]] std::span<const Weakness> known_weaknesses();

}  // namespace weft::testing
