// Owns a run of `weft nccl-perf` as one rank sees it: sizes, iterations, checks, and the table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "integration/collectives/data.hpp"
#include "integration/collectives/rank.hpp"

namespace weft::collectives {

struct SessionOptions {
  Operation operation = Operation::all_reduce;
  std::uint32_t ranks = 2;
  std::uint32_t threads = 1;  // ranks of a process
  std::uint32_t channels = 2;
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
  std::string plugin;  // a file
  std::optional<int> version;
  std::string bug;                     // planted on purpose, to see it found
  std::optional<std::uint64_t> chaos;  // seed
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

// One rank, in a thread or a process of its own. Returns whether all went well; throws otherwise.
// Rank 0 prints.
[[nodiscard]] bool run_session(const SessionOptions& options, std::uint32_t rank, Board& board);

}  // namespace weft::collectives
