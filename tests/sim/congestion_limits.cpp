// Owns the table of what controls do not keep, and what their own rules say of it.
#include "tests/sim/congestion_limits.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace weft::testing {
namespace {

bool shallow(const CongestionSetup& s) { return s.buffer_products < 1; }
bool deep(const CongestionSetup& s) { return s.buffer_products > 1; }
bool many(const CongestionSetup& s) { return s.senders >= 64; }
bool many_and_small(const CongestionSetup& s) { return many(s) && !deep(s); }
bool many_and_deep(const CongestionSetup& s) { return many(s) && deep(s); }
bool many_deep_ecn(const CongestionSetup& s) { return many_and_deep(s) && s.ecn; }
bool many_deep_without_ecn(const CongestionSetup& s) { return many_and_deep(s) && !s.ecn; }
bool few(const CongestionSetup& s) { return !many(s); }
bool anywhere(const CongestionSetup&) { return true; }
bool where_only_losses_tell(const CongestionSetup& s) { return !deep(s) && !s.ecn && !s.trimming; }
bool two_in_one_product_that_trims(const CongestionSetup& s) {
  return s.senders == 2 && s.buffer_products == 1 && s.trimming;
}
bool two_apart_in_one_product_that_trims(const CongestionSetup& s) {
  return two_in_one_product_that_trims(s) && !s.ecn && s.nearest < 1;
}
bool deep_without_ecn(const CongestionSetup& s) { return deep(s) && !s.ecn; }

double product_of(const CongestionSetup& s) {
  return static_cast<double>(s.rate.bytes_in(s.base_rtt));
}
double packet_of(const CongestionSetup& s) { return (s.payload + 64.0) / product_of(s); }

// What no control can shrink: the first windows, less what is on the wires. That is a product, or
// the part of one that the nearest sender's distance holds, without the packet at the sender's port
// and the one at the bottleneck, whose times the round trip contains.
double first_windows(const CongestionSetup& s, double) {
  return std::min(s.buffer_products, 1.5 * s.senders - s.nearest + 2 * packet_of(s));
}

// The distance of a sender, in base RTTs.
double distance_of(const CongestionSetup& s, std::uint32_t sender) {
  return s.senders == 1 ? 1 : s.nearest + (1 - s.nearest) * sender / (s.senders - 1);
}

// Jain's index of `rate` for each sender's distance.
template <class RateOf>
double fairness_of(const CongestionSetup& s, RateOf&& rate) {
  double sum = 0;
  double squares = 0;
  for (std::uint32_t i = 0; i < s.senders; ++i) {
    const double each = rate(distance_of(s, i));
    sum += each;
    squares += each * each;
  }
  return sum * sum / squares / s.senders;
}

// Who adds a constant to its window in each of its round trips, and takes the same share of it from
// all when the queue says so, has a window in inverse proportion to its round trip if that is said
// to all at one time, and an equal one if each is told once in a round trip of its own. So rates
// are in inverse proportion to the round trip, or to its square, and to nothing worse.
double by_squares_of_round_trips(const CongestionSetup& s, double queue) {
  return fairness_of(s, [&](double distance) { return std::pow(distance + queue, -2); });
}

// Swift compares the whole round trip with one target, so a near sender lets the queue grow further
// than a far one does, and only the far one's shrinking window, which raises its target, ends that.
// At the rates at which all are at their targets they are least equal: this is Swift's target()
// turned round, with the queue at which those rates are the line's.
double by_targets_of_swift(const CongestionSetup& s, double) {
  const double packet = packet_of(s);
  const double low = 1 / std::sqrt(100.0);
  const double high = 1 / std::sqrt(0.1);
  const auto rate = [&](double distance, double queue) {
    const double beyond = (distance + queue - (1.5 + 4 * packet)) / (1.5 + 8 * packet);
    const double packets = std::pow(std::max(beyond, 0.0) * (high - low) + low, -2);
    return std::clamp(packets, 0.1, 1.5 / packet) * packet / (distance + queue);
  };
  double least = 0;
  double most = 100;
  for (int i = 0; i < 60; ++i) {
    const double queue = (least + most) / 2;
    double sum = 0;
    for (std::uint32_t n = 0; n < s.senders; ++n) {
      sum += rate(distance_of(s, n), queue);
    }
    (sum > 1 ? least : most) = queue;
  }
  return fairness_of(s, [&](double distance) { return rate(distance, most); });
}

constexpr std::string_view kOnlyMarks = "without marks nothing but loss shrinks a window";
constexpr std::string_view kOneSample =
    "not isolated; with one packet in flight single samples may decide who shrinks";
constexpr std::string_view kSteps =
    "not isolated; n constant steps a round trip may lift the queue over the target";
constexpr std::string_view kBursts = "bursts at line rate collide in a queue of four packets";
constexpr std::string_view kDraining =
    "the first windows drain by a part of them in a round trip, which their own queue makes long";
constexpr std::string_view kFirstFlight =
    "what the luck of the first flight has given to one of two is given back slowly";
constexpr std::string_view kQueueAsDistance =
    "a near sender that is first measured behind a queue takes it for distance";
constexpr std::string_view kWholeRoundTrip =
    "one target for whole round trips, of which a far sender's distance takes more";
constexpr std::string_view kNearGrowFaster = "a constant step in each round trip";

constexpr Rooms kEverywhere = kBottleneck | kPaths | kDistances | kLate;
constexpr Weakness kKnownWeaknesses[] = {
    {"srd", kDistances, two_in_one_product_that_trims, Property::fairness, nullptr, 0.93,
     kFirstFlight},
    {"srd", kLate, two_apart_in_one_product_that_trims, Property::late_share, nullptr, 0.60,
     kFirstFlight},
    {"nscc", kEverywhere, deep_without_ecn, Property::queue, first_windows, 0, kOnlyMarks},
    {"nscc", kBottleneck | kPaths | kDistances, many_deep_ecn, Property::queue, nullptr, 1.2,
     kSteps},
    {"nscc", kBottleneck | kPaths, many_deep_without_ecn, Property::fairness, nullptr, 0.80,
     kOneSample},
    {"nscc", kBottleneck, many_and_small, Property::fairness, nullptr, 0.84, kOneSample},
    {"nscc", kPaths, many_and_small, Property::fairness, nullptr, 0.73, kOneSample},
    {"nscc", kPaths, few, Property::fairness, nullptr, 0.88, kOneSample},
    {"nscc", kDistances, anywhere, Property::fairness, nullptr, 0.56, kQueueAsDistance},
    {"nscc", kLate, anywhere, Property::late_share, nullptr, 0.71, kOneSample},
    {"nscc", kBottleneck, shallow, Property::utilisation, nullptr, 0.85, kBursts},
    {"nscc", kPaths, shallow, Property::utilisation, nullptr, 0.79, kBursts},
    {"swift", kBottleneck | kDistances | kLate, many_and_deep, Property::queue, nullptr, 27,
     kDraining},
    {"swift", kPaths, many_and_deep, Property::queue, nullptr, 30, kDraining},
    {"swift", kDistances, deep, Property::queue, nullptr, 2.1, kWholeRoundTrip},
    {"swift", kBottleneck | kPaths, many_and_small, Property::fairness, nullptr, 0.70, kOneSample},
    {"swift", kDistances, shallow, Property::fairness, by_squares_of_round_trips, 0,
     kNearGrowFaster},
    {"swift", kDistances, anywhere, Property::fairness, by_targets_of_swift, 0, kWholeRoundTrip},
    {"swift", kBottleneck | kPaths | kDistances, shallow, Property::utilisation, nullptr, 0.55,
     kBursts},
    {"swift", kPaths, few, Property::fairness, nullptr, 0.92, kOneSample},
    {"swift", kLate, shallow, Property::late_share, nullptr, 0.75, kOneSample},
    {"dctcp", kEverywhere, deep_without_ecn, Property::queue, first_windows, 0, kOnlyMarks},
    {"dctcp", kDistances, many_deep_ecn, Property::queue, nullptr, 1.14, kDraining},
    {"dctcp", kBottleneck, many_and_small, Property::fairness, nullptr, 0.90, kOneSample},
    {"dctcp", kPaths, many_and_small, Property::fairness, nullptr, 0.86, kOneSample},
    {"dctcp", kDistances, anywhere, Property::fairness, by_squares_of_round_trips, 0,
     kNearGrowFaster},
    {"dctcp", kBottleneck, shallow, Property::utilisation, nullptr, 0.50, kBursts},
    {"dctcp", kPaths, shallow, Property::utilisation, nullptr, 0.44, kBursts},
    {"dctcp", kDistances, shallow, Property::utilisation, nullptr, 0.50, kBursts},
    {"dctcp", kPaths, few, Property::fairness, nullptr, 0.94, kOneSample},
    {"dctcp", kLate, anywhere, Property::late_share, nullptr, 0.74, kOneSample},
    {"mprdma", kEverywhere, deep_without_ecn, Property::queue, first_windows, 0, kOnlyMarks},
    {"mprdma", kEverywhere, many_deep_ecn, Property::queue, nullptr, 54, kDraining},
    {"mprdma", kDistances, deep, Property::queue, nullptr, 3.5, kDraining},
    {"mprdma", kBottleneck, many_and_small, Property::fairness, nullptr, 0.87, kOneSample},
    {"mprdma", kPaths, many_and_small, Property::fairness, nullptr, 0.81, kOneSample},
    {"mprdma", kDistances, where_only_losses_tell, Property::fairness, nullptr, 0.53, kOneSample},
    {"mprdma", kDistances, anywhere, Property::fairness, by_squares_of_round_trips, 0,
     kNearGrowFaster},
    {"mprdma", kBottleneck | kPaths | kDistances, shallow, Property::utilisation, nullptr, 0.60,
     kBursts},
    {"mprdma", kLate, where_only_losses_tell, Property::late_share, nullptr, 0.69, kOneSample},
};

}  // namespace

// Without marks a control has to make a queue in order to see one, and a shallow buffer cannot hold
// what covers the gaps between two senders.
Limits demanded(const CongestionSetup& setup) {
  return {setup.ecn ? 1.0 : 1.5, setup.buffer_products < 1 ? 0.90 : 0.95, 0.95};
}

std::span<const Weakness> known_weaknesses() { return kKnownWeaknesses; }

}  // namespace weft::testing
