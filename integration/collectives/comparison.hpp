// Owns the comparison of plugins: in which order they run, and what is printed of their times.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "integration/collectives/session.hpp"

namespace weft::collectives {

// The networks of a comparison. The first one is what the others are compared with.
struct Contestant {
  std::string name;  // in the head of its column
  std::string key;   // in JSON
};

// Collects the times of all rounds and prints their medians. `options` has to outlive it.
class Comparison {
 public:
  Comparison(const SessionOptions& options, std::vector<Contestant> contestants);

  // The networks in turn, and in the next round from the last to the first: what changes steadily
  // while they run, such as the machine's temperature, then favours none of them.
  [[nodiscard]] std::vector<std::size_t> order(std::uint32_t round) const;
  // What one of them has measured in one round: all of SessionOptions::results.
  void add(std::size_t contestant, std::span<const Measured> measured);

  // A line for each size and placement: median times, and ratios of them to the first one's.
  [[nodiscard]] std::string table() const;
  [[nodiscard]] std::string json() const;

 private:
  [[nodiscard]] double median(std::size_t contestant, std::size_t row) const;
  [[nodiscard]] double ratio(std::size_t contestant, std::size_t row) const;

  const SessionOptions& options_;
  std::vector<Contestant> contestants_;
  std::vector<std::size_t> sizes_;
  std::vector<std::vector<std::vector<double>>> times_;  // by contestant and row, of all rounds
  std::vector<std::uint64_t> wrong_;                     // by row
  std::size_t rounds_ = 0;                               // of the first one
};

}  // namespace weft::collectives
