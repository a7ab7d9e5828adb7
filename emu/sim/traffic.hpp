// Owns the generators of traffic: from a few numbers to flows and triggers. All randomness comes
// from the Rng given, so the same seed gives the same matrix.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "emu/fabric/traffic_matrix.hpp"
#include "srd/base/rng.hpp"

namespace weft::sim {

// The sizes of flows as a cumulative distribution: straight lines between the points, which never
// fall and end at share 1.
struct SizeDistribution {
  struct Point {
    double bytes;
    double share;  // of flows not larger
  };
  std::vector<Point> points;

  [[nodiscard]] Bytes draw(Rng& rng) const;
  // In bytes.
  [[nodiscard]] double mean() const;
};
// web-search, hadoop, ai; empty points for any other name.
[[nodiscard]] SizeDistribution size_distribution(std::string_view name);

// Appends to `matrix`; all flows get `group`. Ports are 0 .. n-1 unless said otherwise.
class TrafficBuilder {
 public:
  TrafficBuilder(fabric::TrafficMatrix& matrix, std::uint32_t group)
      : matrix_(matrix), group_(group) {}

  // Each port sends to one other port.
  void permutation(std::uint32_t n, Bytes bytes, Rng& rng, fabric::Picos start = 0);
  void incast(const std::vector<fabric::PortId>& senders, fabric::PortId receiver, Bytes bytes,
              fabric::Picos start = 0);
  // One sends to many at once.
  void fan_out(fabric::PortId sender, const std::vector<fabric::PortId>& receivers, Bytes bytes,
               fabric::Picos start = 0);
  // Each port sends to every other one, in a random order of its own, `window` flows at a time: the
  // end of one starts the next.
  void all_to_all(std::uint32_t n, Bytes bytes, std::uint32_t window, Rng& rng);
  // The same in rounds: ports stand in a circle of random order, and in a round each sends to the
  // ports at the same `window` distances. While all are equally fast, each receiver then has
  // `window` senders, too. This is what htsim's generator of serial all-to-alls writes.
  void staggered_all_to_all(std::uint32_t n, Bytes bytes, std::uint32_t window, Rng& rng);
  // Each port sends to the one half way round, the longest way in a ring or a torus.
  void tornado(std::uint32_t n, Bytes bytes);
  // `flows` flows between random pairs. They start as a Poisson process whose rate makes NICs of
  // `rate` carry `load` (0..1) on average.
  void random(std::uint32_t n, std::uint32_t flows, const SizeDistribution& sizes, double load,
              Rate rate, Rng& rng);
  void flow(fabric::PortId from, fabric::PortId to, Bytes bytes, fabric::Picos start);

  // Collectives over `ranks` (ports); `bytes` is each rank's whole buffer. A step starts when the
  // data it passes on has arrived.
  void ring_all_reduce(const std::vector<fabric::PortId>& ranks, Bytes bytes) {
    ring(ranks, bytes, 2);
  }
  void ring_pass(const std::vector<fabric::PortId>& ranks, Bytes bytes) {
    ring(ranks, bytes, 1);
  }  // gather or scatter
  void tree_all_reduce(const std::vector<fabric::PortId>& ranks, Bytes bytes);
  void recursive_doubling(const std::vector<fabric::PortId>& ranks, Bytes bytes);

 private:
  void ring(const std::vector<fabric::PortId>& ranks, Bytes bytes, std::uint32_t rounds);
  std::uint32_t trigger(fabric::TriggerSpec::Kind kind, std::uint32_t count = 1);
  fabric::FlowSpec& add(fabric::PortId from, fabric::PortId to, Bytes bytes);

  fabric::TrafficMatrix& matrix_;
  std::uint32_t group_;
};

}  // namespace weft::sim
