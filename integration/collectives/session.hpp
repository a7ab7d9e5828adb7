// Owns a run of `weft nccl-perf` as one rank sees it: sizes, iterations, checks, and the table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "integration/collectives/data.hpp"
#include "integration/collectives/rank.hpp"

namespace weft::collectives {

// The result of one size and placement: average time of an iteration, and wrong elements over all
// ranks.
struct Measured {
  double microseconds = 0;
  std::uint64_t wrong = 0;
  bool valid = false;  // not where there is no such thing as in place
};

struct SessionOptions {
  NcclOperation operation = NcclOperation::all_reduce;
  std::uint32_t ranks = 2;
  std::uint32_t threads = 1;  // ranks of a process
  std::uint32_t channels = 2;
  std::vector<std::uint32_t> devices{};  // empty: all of the plugin's
  Algorithm algorithm = Algorithm::ring;
  Protocol protocol = Protocol::simple;
  Buffers buffers{};
  std::size_t smallest = 8;
  std::size_t largest = std::size_t{64} << 20;
  double factor = 4;     // between sizes, if step is 0
  std::size_t step = 0;  // bytes
  std::uint32_t iterations = 20;
  std::uint32_t warm_up = 1;
  std::uint32_t root = 0;
  Type type = Type::float32;
  Reduction reduction = Reduction::sum;
  bool check = true;
  bool json = false;
  // Where rank 0 puts what it measures instead of printing it: two for each of sizes_of(), out of
  // place and in place.
  std::span<Measured> results{};
  std::string plugin;  // a file
  std::optional<int> version;
  std::string bug;                     // planted on purpose, to see it found
  std::optional<std::uint64_t> chaos;  // seed
  std::string trace;                   // a file; empty: none
  double patience = 60;                // seconds
  [[nodiscard]] Duration patience_time() const {
    return Duration{static_cast<std::int64_t>(patience * 1e9)};
  }

  struct Fault {
    std::uint32_t rank = 0;
    std::uint64_t iteration = 0;
    double seconds = 0;  // stop; 0: kill
  };
  std::optional<Fault> fault;
};

[[nodiscard]] std::vector<std::size_t> sizes_of(const SessionOptions& options);

// Runs one rank, in a thread or a process of its own. Returns whether all results were right;
// throws if the rank cannot go on. Rank 0 prints.
[[nodiscard]] bool run_session(const SessionOptions& options, std::uint32_t rank, Board& board);

}  // namespace weft::collectives
