// Owns the programs of rings.
#include <algorithm>

#include "integration/collectives/shape_parts.hpp"

namespace weft::collectives {
namespace {

struct Ring {
  const Problem& problem;
  std::uint32_t ranks;
  std::uint32_t rank;

  // The rank `back` places before this one.
  [[nodiscard]] std::uint32_t before(std::uint32_t back) const {
    return (rank + ranks - back) % ranks;
  }
};

// Each piece goes round the ring twice. On the first round each rank adds its own part to it and
// passes it on, until it reaches the rank of the same number, which so has the sum; the second
// round carries the sum to all. A rank begins with the piece of the rank before it.
void all_reduce(const Ring& ring, const Slice& part, std::size_t chunk_limit,
                RankProgram& program) {
  const std::size_t end = part.offset + part.count;
  for (std::size_t base = part.offset; base < end;) {
    const std::size_t left = end - base;
    const std::size_t align = grain_of(ring.problem.protocol) / ring.problem.element;
    // The last round may be short: it is cut evenly, in whole grains of the protocol.
    const std::size_t chunk =
        left < chunk_limit * ring.ranks
            ? std::min(chunk_limit, round_up(divide_up(left, ring.ranks), align))
            : chunk_limit;
    const auto add = [&](std::uint32_t piece, bool receives, bool sends, bool reads, bool writes) {
      const std::size_t offset = base + piece * chunk;
      ProgramStep made = step(offset, chunk, end);
      made.receives = receives;
      made.sends = sends;
      made.from = reads ? offset : ProgramStep::kNone;
      made.to = writes ? offset : ProgramStep::kNone;
      program.steps.push_back(made);
    };
    add(ring.before(1), false, true, true, false);
    for (std::uint32_t back = 2; back < ring.ranks; ++back) {
      add(ring.before(back), true, true, true, false);
    }
    add(ring.rank, true, true, true, true);
    program.steps.back().finishes = true;
    for (std::uint32_t back = 1; back + 1 < ring.ranks; ++back) {
      add(ring.before(back), true, true, false, true);
    }
    add((ring.rank + 1) % ring.ranks, true, false, false, true);
    base += chunk * ring.ranks;
  }
}

// Each rank's part goes round once. The part of the next rank is not passed on: its owner has it.
void all_gather(const Ring& ring, const Slice& part, std::size_t chunk, std::size_t per_rank,
                RankProgram& program) {
  const std::size_t end = part.offset + part.count;
  for (std::size_t base = part.offset; base < end; base += chunk) {
    const auto add = [&](std::uint32_t owner, bool receives, bool sends) {
      ProgramStep made = step(base, chunk, end);
      made.receives = receives;
      made.sends = sends;
      made.from = receives ? ProgramStep::kNone : base;
      made.to = owner * per_rank + base;
      program.steps.push_back(made);
    };
    add(ring.rank, false, true);
    for (std::uint32_t back = 1; back + 1 < ring.ranks; ++back) {
      add(ring.before(back), true, true);
    }
    add((ring.rank + 1) % ring.ranks, true, false);
  }
}

// The first half of all_reduce().
void reduce_scatter(const Ring& ring, const Slice& part, std::size_t chunk, std::size_t per_rank,
                    RankProgram& program) {
  const std::size_t end = part.offset + part.count;
  for (std::size_t base = part.offset; base < end; base += chunk) {
    const auto add = [&](std::uint32_t owner, bool receives, bool sends) {
      ProgramStep made = step(base, chunk, end);
      made.receives = receives;
      made.sends = sends;
      made.from = owner * per_rank + base;
      made.to = sends ? ProgramStep::kNone : base;
      program.steps.push_back(made);
    };
    add(ring.before(1), false, true);
    for (std::uint32_t back = 2; back < ring.ranks; ++back) {
      add(ring.before(back), true, true);
    }
    add(ring.rank, true, false);
    program.steps.back().finishes = true;
  }
}

// Broadcast and reduce: one way along the ring, from the root to the rank before it, or from the
// rank after it to the root.
void chain(const Ring& ring, const Slice& part, std::size_t chunk, RankProgram& program) {
  const bool reduces = ring.problem.operation == NcclOperation::reduce;
  const bool is_root = ring.rank == ring.problem.root;
  const bool before_root = (ring.rank + 1) % ring.ranks == ring.problem.root;
  const bool after_root = ring.before(1) == ring.problem.root;
  const std::size_t end = part.offset + part.count;
  for (std::size_t base = part.offset; base < end; base += chunk) {
    ProgramStep made = step(base, chunk, end);
    made.receives = reduces ? !after_root : !is_root;
    made.sends = reduces ? !is_root : !before_root;
    made.from = reduces || is_root ? base : ProgramStep::kNone;
    made.to = !reduces || is_root ? base : ProgramStep::kNone;
    made.finishes = reduces && is_root;
    program.steps.push_back(made);
  }
}

}  // namespace

std::vector<RankProgram> ring_programs(const Problem& problem) {
  const Ring ring{problem, problem.ranks, problem.rank};
  const Counts counts = counts_of(problem);
  const bool chains =
      problem.operation == NcclOperation::broadcast || problem.operation == NcclOperation::reduce;
  const bool simple = problem.protocol == Protocol::simple;
  const bool one_step = chains || !simple;  // else a chunk is two slices of two steps
  const std::size_t chunk = chunk_of(problem) * (one_step ? 1 : 4);
  const std::size_t per_rank = std::min(counts.send, counts.receive);
  // How often an element crosses a link. NCCL counts traffic, not data, when it decides how many
  // channels a small operation is worth.
  const std::size_t factor = problem.operation == NcclOperation::all_reduce ? 2
                             : chains                                       ? 1
                                                                            : problem.ranks;
  const auto parts = split_to_channels(chains ? std::max(counts.send, counts.receive) : per_rank,
                                       problem.element, problem.channels, factor);
  std::vector<RankProgram> programs;
  for (std::uint32_t channel = 0; channel < parts.size(); ++channel) {
    RankProgram program;
    program.channel = channel;
    program.from = {ring.before(1)};
    program.to = {(ring.rank + 1) % ring.ranks};
    program.protocol = problem.protocol;
    program.slices = one_step ? 1 : 2;
    program.steps_of_slice = one_step ? 1 : 2;
    switch (problem.operation) {
      case NcclOperation::all_reduce:
        all_reduce(ring, parts[channel], chunk, program);
        break;
      case NcclOperation::all_gather:
        all_gather(ring, parts[channel], chunk, per_rank, program);
        break;
      case NcclOperation::reduce_scatter:
        reduce_scatter(ring, parts[channel], chunk, per_rank, program);
        break;
      default:
        chain(ring, parts[channel], chunk, program);
        break;
    }
    programs.push_back(std::move(program));
  }
  return programs;
}

}  // namespace weft::collectives
