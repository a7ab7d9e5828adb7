// Owns the generators of traffic: from a few numbers to flows and triggers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "emu/fabric/traffic_matrix.hpp"
#include "srd/base/rng.hpp"

namespace weft::sim {

// Sizes of flows as a cumulative distribution: straight lines between the points.
struct SizeDistribution {
  struct Point {
    double bytes;
    double share;  // of flows not larger
  };
  std::vector<Point> points;

  [[nodiscard]] Bytes draw(Rng& rng) const;
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
  // Each port sends to each other one, in a random order of its own, `window` at a time.
  void all_to_all(std::uint32_t n, Bytes bytes, std::uint32_t window, Rng& rng);
  // The same in step: in a circle of random order each port sends to those at the same distances,
  // so that while all are equally fast each receiver has `window` senders too. What htsim's
  // generator of serial all-to-alls writes.
  void staggered_all_to_all(std::uint32_t n, Bytes bytes, std::uint32_t window, Rng& rng);
  // Everybody to the one half way round.
  void tornado(std::uint32_t n, Bytes bytes);
  // `flows` flows between random pairs, at random times so that the NICs (of that rate) carry
  // `load` on average.
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
