// Owns the programs of trees: of two that share the work, and of parallel aggregated ones (PAT).
#include <algorithm>

#include "integration/collectives/shape_parts.hpp"

namespace weft::collectives {
namespace {

constexpr std::uint32_t kNobody = ~std::uint32_t{0};

// The neighbours of a rank in a tree.
struct Node {
  std::uint32_t up = kNobody;
  std::vector<std::uint32_t> down;
};

// The binary tree of NCCL. The lowest bit that is set in a rank tells how far up it stands: odd
// ranks are leaves, 0 is the root, which has one child. Where the number of ranks is no power of
// two, a place that does not exist is replaced by the next one below it.
Node binary_tree(std::uint32_t rank, std::uint32_t ranks) {
  std::uint32_t bit = 1;
  while (bit < ranks && (rank & bit) == 0) {
    bit <<= 1;
  }
  Node node;
  if (rank == 0) {
    if (ranks > 1) {
      node.down.push_back(bit >> 1);
    }
    return node;
  }
  node.up = (rank ^ bit) | (bit << 1);
  if (node.up >= ranks) {
    node.up = rank ^ bit;
  }
  std::uint32_t half = bit >> 1;
  if (half != 0) {
    node.down.push_back(rank - half);
    while (half != 0 && rank + half >= ranks) {
      half >>= 1;
    }
    if (half != 0) {
      node.down.push_back(rank + half);
    }
  }
  return node;
}

// The place of a rank in the first or the second tree. A rank that has much to do in one of them
// has little in the other: the second is the first one mirrored, if the ranks are even in number,
// else shifted by one rank.
Node node_of(std::uint32_t rank, std::uint32_t ranks, bool second) {
  if (!second) {
    return binary_tree(rank, ranks);
  }
  // Mirroring makes every leaf an inner node only if the number of ranks is even.
  const bool mirrors = ranks % 2 == 0;
  const auto there = [&](std::uint32_t one) {
    return mirrors ? ranks - 1 - one : (one + ranks - 1) % ranks;
  };
  const auto back = [&](std::uint32_t one) {
    return one == kNobody ? kNobody : mirrors ? ranks - 1 - one : (one + 1) % ranks;
  };
  Node node = binary_tree(there(rank), ranks);
  node.up = back(node.up);
  for (std::uint32_t& one : node.down) {
    one = back(one);
  }
  return node;
}

}  // namespace

// Up to the root it is reduced, and the result comes down again, both at the same time; the root
// turns what has come around at once.
std::vector<RankProgram> tree_programs(const Problem& problem) {
  const std::size_t chunk = chunk_of(problem);
  const std::size_t elements = counts_of(problem).send;
  const auto parts = split_to_channels(elements, problem.element, problem.channels, 2);
  std::vector<RankProgram> programs;
  for (std::uint32_t channel = 0; channel < parts.size(); ++channel) {
    const Node node =
        node_of(problem.rank, problem.ranks, channel >= std::max(problem.channels / 2, 1U));
    const bool root = node.up == kNobody;
    RankProgram up;
    up.channel = channel;
    up.protocol = problem.protocol;
    up.slices = up.steps_of_slice = 1;
    RankProgram down = up;
    up.from = node.down;
    up.to = root ? node.down : std::vector{node.up};
    down.from = {node.up};
    down.to = node.down;
    const std::size_t end = parts[channel].offset + parts[channel].count;
    for (std::size_t base = parts[channel].offset; base < end; base += chunk) {
      ProgramStep made = step(base, chunk, end);
      made.receives = !up.from.empty();
      made.sends = true;
      made.from = base;
      made.to = root ? base : ProgramStep::kNone;
      made.finishes = root;
      up.steps.push_back(made);
      made = step(base, chunk, end);
      made.receives = true;
      made.sends = !down.to.empty();
      made.to = base;
      down.steps.push_back(made);
    }
    programs.push_back(std::move(up));
    if (!root) {
      programs.push_back(std::move(down));
    }
  }
  return programs;
}

// --- Parallel aggregated trees. A rank is `away` places after the owner of a part. In the owner's
// tree it hangs below the place without its lowest bit, and has below it those with one bit more,
// lower than all of its own. Parts near in time go over the same few connections: to and from ranks
// at distances that are powers of two.

namespace {

// Smaller chunks for smaller operations, so that there are enough of them for all connections; 64
// KiB at least.
std::size_t pat_chunk(const Problem& problem) {
  constexpr std::size_t kMinChunk = std::size_t{64} << 10;
  const std::size_t parts = problem.operation == NcclOperation::all_gather ? 32 : 16;
  std::size_t bytes = problem.buffers.simple / kSteps;
  while (bytes * problem.channels * parts > problem.bytes && bytes > kMinChunk) {
    bytes /= 2;
  }
  return bytes / problem.element;
}

// Bits of the distances below `away` in a tree.
std::uint32_t children_of(std::uint32_t away, std::uint32_t ranks) {
  std::uint32_t ends = 0;
  for (std::uint32_t end = 0; away + (1U << end) < ranks && (away >> end & 1) == 0; ++end) {
    ends |= 1U << end;
  }
  return ends;
}

// One step of PAT for the part whose owner is `away` places before this rank: from the owner on for
// all_gather, towards it for reduce_scatter. All ranks take the parts in the order of the distance
// from their owner, so both ends of a connection have the same order of messages.
ProgramStep pat_step(const Problem& problem, std::uint32_t away, std::size_t base,
                     std::size_t chunk, std::size_t per_rank) {
  const std::uint32_t owner = (problem.rank + problem.ranks - away) % problem.ranks;
  const std::uint32_t below = children_of(away, problem.ranks);
  const std::uint32_t above = away & (~away + 1);
  const bool gathers = problem.operation == NcclOperation::all_gather;
  ProgramStep made = step(base, chunk, per_rank);
  made.from_ends = gathers ? above : below;
  made.to_ends = gathers ? below : above;
  made.receives = made.from_ends != 0;
  made.sends = made.to_ends != 0;
  if (gathers) {
    made.from = away == 0 ? base : ProgramStep::kNone;
    made.to = owner * per_rank + base;
  } else {
    made.from = owner * per_rank + base;
    made.to = away == 0 ? base : ProgramStep::kNone;
    made.finishes = away == 0;
  }
  return made;
}

}  // namespace

std::vector<RankProgram> pat_programs(const Problem& problem) {
  const Counts counts = counts_of(problem);
  const std::size_t per_rank = std::min(counts.send, counts.receive);
  const bool gathers = problem.operation == NcclOperation::all_gather;
  const std::size_t chunk = pat_chunk(problem);
  const auto parts = split_to_channels(per_rank, problem.element, problem.channels, problem.ranks);
  std::vector<RankProgram> programs;
  for (std::uint32_t channel = 0; channel < parts.size(); ++channel) {
    RankProgram program;
    program.channel = channel;
    program.slices = program.steps_of_slice = 1;
    for (std::uint32_t distance = 1; distance < problem.ranks; distance *= 2) {
      const std::uint32_t after = (problem.rank + distance) % problem.ranks;
      const std::uint32_t before = (problem.rank + problem.ranks - distance) % problem.ranks;
      program.from.push_back(gathers ? before : after);
      program.to.push_back(gathers ? after : before);
    }
    const std::size_t end = parts[channel].offset + parts[channel].count;
    for (std::size_t base = parts[channel].offset; base < end; base += chunk) {
      for (std::uint32_t i = 0; i < problem.ranks; ++i) {
        ProgramStep made =
            pat_step(problem, gathers ? i : problem.ranks - 1 - i, base, chunk, per_rank);
        made.count = std::min(made.count, end - base);
        program.steps.push_back(made);
      }
    }
    programs.push_back(std::move(program));
  }
  return programs;
}

}  // namespace weft::collectives
