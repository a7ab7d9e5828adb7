// Owns what the makers of programs have in common: one for each of NCCL's algorithms, and one for
// the point-to-point operations.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "integration/collectives/shape.hpp"

namespace weft::collectives {

[[nodiscard]] inline std::size_t divide_up(std::size_t a, std::size_t b) { return (a + b - 1) / b; }
[[nodiscard]] inline std::size_t round_up(std::size_t a, std::size_t b) {
  return divide_up(a, b) * b;
}

// A step for the elements from `offset` on: a whole chunk, or what is left before `end`.
[[nodiscard]] inline ProgramStep step(std::size_t offset, std::size_t chunk, std::size_t end) {
  ProgramStep made;
  made.count = offset < end ? std::min(chunk, end - offset) : 0;
  return made;
}

// Elements of a step.
[[nodiscard]] std::size_t chunk_of(const Problem& problem);

[[nodiscard]] std::vector<RankProgram> ring_programs(const Problem& problem);
[[nodiscard]] std::vector<RankProgram> tree_programs(const Problem& problem);
[[nodiscard]] std::vector<RankProgram> pat_programs(const Problem& problem);
[[nodiscard]] std::vector<RankProgram> pair_programs(const Problem& problem);

}  // namespace weft::collectives
