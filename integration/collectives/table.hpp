// Owns what is printed: the columns of nccl-tests, or one JSON object per line.
#pragma once

#include <cstdint>
#include <string>

#include "integration/collectives/session.hpp"

namespace weft::collectives {

// Printed by rank 0 alone: head(), a row() for each size, tail(). Keeps the sums for the last
// lines.
class Table {
 public:
  Table(const SessionOptions& options, std::string plugin, int version)
      : options_(options), plugin_(std::move(plugin)), version_(version) {}

  void head() const;
  void row(const Problem& problem, const Measured& out_of_place, const Measured& in_place);
  void tail() const;

 private:
  [[nodiscard]] double bandwidth(const Problem& problem, const Measured& one) const;
  [[nodiscard]] std::string cells(const Problem& problem, const Measured& one) const;
  void print_json(const Problem& problem, const Measured& one, bool in_place) const;

  const SessionOptions& options_;
  std::string plugin_;
  int version_;
  double bus_sum_ = 0;
  std::uint32_t bus_count_ = 0;
  std::uint64_t wrong_ = 0;
};

}  // namespace weft::collectives
