// Owns the programs of the point-to-point operations.
#include "integration/collectives/shape_parts.hpp"

namespace weft::collectives {
namespace {

// What goes from one rank to another, in chunks. Sends and receives are programs of their own:
// neither waits for the other.
class Pairs {
 public:
  explicit Pairs(const Problem& problem) : problem_(problem) {}

  void send(std::uint32_t to, std::size_t from, std::size_t count, bool from_output = false) {
    RankProgram program = empty();
    program.to = {to};
    each_chunk(count, program, [&](ProgramStep& made, std::size_t base) {
      made.sends = true;
      made.from_output = from_output;
      made.from = from + base;
    });
  }
  void receive(std::uint32_t from, std::size_t to, std::size_t count) {
    RankProgram program = empty();
    program.from = {from};
    each_chunk(count, program, [&](ProgramStep& made, std::size_t base) {
      made.receives = true;
      made.to = to + base;
    });
  }
  // A rank's part for itself, which goes over no connection.
  void copy(std::size_t from, std::size_t to, std::size_t count) {
    RankProgram program = empty();
    ProgramStep made = step(0, count, count);
    made.from = from;
    made.to = to;
    program.steps.push_back(made);
    programs_.push_back(std::move(program));
  }
  void next_phase() { ++phase_; }
  [[nodiscard]] std::vector<RankProgram> take() { return std::move(programs_); }

 private:
  [[nodiscard]] RankProgram empty() const {
    RankProgram program;
    program.point_to_point = true;
    program.slices = program.steps_of_slice = 1;
    program.phase = phase_;
    return program;
  }
  template <class F>
  void each_chunk(std::size_t count, RankProgram& program, F&& f) {
    const std::size_t chunk = problem_.buffers.point_to_point / problem_.element;
    for (std::size_t base = 0; base < count; base += chunk) {
      ProgramStep made = step(base, chunk, count);
      f(made, base);
      program.steps.push_back(made);
    }
    programs_.push_back(std::move(program));
  }

  const Problem& problem_;
  // Of the programs that are made next.
  std::uint32_t phase_ = 0;
  std::vector<RankProgram> programs_;
};

// An all-gather in log2(ranks) phases: in each, two ranks exchange all that they have, so that each
// has twice as much afterwards.
void hypercube(const Problem& problem, std::size_t part, Pairs& pairs) {
  pairs.copy(0, problem.rank * part, part);
  for (std::uint32_t mask = 1; mask < problem.ranks; mask <<= 1) {
    const std::size_t mine = problem.rank & ~(mask - 1);
    const std::uint32_t other = problem.rank ^ mask;
    pairs.next_phase();
    pairs.send(other, mine * part, part * mask, true);
    pairs.receive(other, (mine ^ mask) * part, part * mask);
  }
}

}  // namespace

std::vector<RankProgram> pair_programs(const Problem& problem) {
  const Counts counts = counts_of(problem);
  const std::size_t part = counts.shown;
  const std::uint32_t ranks = problem.ranks;
  const std::uint32_t rank = problem.rank;
  const bool is_root = rank == problem.root;
  Pairs pairs(problem);
  switch (problem.operation) {
    case NcclOperation::sendrecv:
      pairs.send((rank + 1) % ranks, 0, counts.send);
      pairs.receive((rank + ranks - 1) % ranks, 0, counts.send);
      break;
    case NcclOperation::hypercube:
      hypercube(problem, part, pairs);
      break;
    case NcclOperation::gather:
    case NcclOperation::scatter: {
      const bool gathers = problem.operation == NcclOperation::gather;
      if (!is_root) {
        gathers ? pairs.send(problem.root, 0, part) : pairs.receive(problem.root, 0, part);
        break;
      }
      gathers ? pairs.copy(0, rank * part, part) : pairs.copy(rank * part, 0, part);
      for (std::uint32_t other = 0; other < ranks; ++other) {
        if (other != rank) {
          gathers ? pairs.receive(other, other * part, part)
                  : pairs.send(other, other * part, part);
        }
      }
      break;
    }
    default:
      pairs.copy(rank * part, rank * part, part);
      for (std::uint32_t distance = 1; distance < ranks; ++distance) {
        const std::uint32_t to = (rank + distance) % ranks;
        const std::uint32_t from = (rank + ranks - distance) % ranks;
        pairs.send(to, to * part, part);
        pairs.receive(from, from * part, part);
      }
      break;
  }
  return pairs.take();
}

}  // namespace weft::collectives
