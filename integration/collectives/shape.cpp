// Owns the programs of the ring algorithms and of the point-to-point operations.
#include "integration/collectives/shape.hpp"

#include <algorithm>

namespace weft::collectives {
namespace {

constexpr std::size_t kCell = std::size_t{32}
                              << 10;    // bytes of traffic, of which channels get some
constexpr std::size_t kAlignment = 16;  // bytes

std::size_t divide_up(std::size_t a, std::size_t b) { return (a + b - 1) / b; }
std::size_t round_up(std::size_t a, std::size_t b) { return divide_up(a, b) * b; }

// A part of a whole that may end before it.
Step step(std::size_t offset, std::size_t chunk, std::size_t end) {
  Step made;
  made.count = offset < end ? std::min(chunk, end - offset) : 0;
  return made;
}

struct Ring {
  const Problem& problem;
  std::uint32_t ranks;
  std::uint32_t rank;

  // The rank `back` places before this one.
  [[nodiscard]] std::uint32_t before(std::uint32_t back) const {
    return (rank + ranks - back) % ranks;
  }
};

void all_reduce(const Ring& ring, const Slice& part, std::size_t chunk_limit, Program& program) {
  const std::size_t end = part.offset + part.count;
  for (std::size_t base = part.offset; base < end;) {
    const std::size_t left = end - base;
    const std::size_t align = std::max<std::size_t>(kAlignment / ring.problem.element, 1);
    const std::size_t chunk =
        left < chunk_limit * ring.ranks
            ? std::min(chunk_limit, round_up(divide_up(left, ring.ranks), align))
            : chunk_limit;
    const auto add = [&](std::uint32_t piece, bool receives, bool sends, bool reads, bool writes) {
      const std::size_t offset = base + piece * chunk;
      Step made = step(offset, chunk, end);
      made.receives = receives;
      made.sends = sends;
      made.from = reads ? offset : Step::kNone;
      made.to = writes ? offset : Step::kNone;
      program.steps.push_back(made);
    };
    add(ring.before(1), false, true, true, false);
    for (std::uint32_t back = 2; back < ring.ranks; ++back) {
      add(ring.before(back), true, true, true, false);
    }
    add(ring.rank, true, true, true, true);
    for (std::uint32_t back = 1; back + 1 < ring.ranks; ++back) {
      add(ring.before(back), true, true, false, true);
    }
    add((ring.rank + 1) % ring.ranks, true, false, false, true);
    base += chunk * ring.ranks;
  }
}

void all_gather(const Ring& ring, const Slice& part, std::size_t chunk, std::size_t per_rank,
                Program& program) {
  const std::size_t end = part.offset + part.count;
  for (std::size_t base = part.offset; base < end; base += chunk) {
    const auto add = [&](std::uint32_t owner, bool receives, bool sends) {
      Step made = step(base, chunk, end);
      made.receives = receives;
      made.sends = sends;
      made.from = receives ? Step::kNone : base;
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

void reduce_scatter(const Ring& ring, const Slice& part, std::size_t chunk, std::size_t per_rank,
                    Program& program) {
  const std::size_t end = part.offset + part.count;
  for (std::size_t base = part.offset; base < end; base += chunk) {
    const auto add = [&](std::uint32_t owner, bool receives, bool sends) {
      Step made = step(base, chunk, end);
      made.receives = receives;
      made.sends = sends;
      made.from = owner * per_rank + base;
      made.to = sends ? Step::kNone : base;
      program.steps.push_back(made);
    };
    add(ring.before(1), false, true);
    for (std::uint32_t back = 2; back < ring.ranks; ++back) {
      add(ring.before(back), true, true);
    }
    add(ring.rank, true, false);
  }
}

// From the root, or to it, along the ring.
void chain(const Ring& ring, const Slice& part, std::size_t chunk, Program& program) {
  const bool reduces = ring.problem.operation == Operation::reduce;
  const bool is_root = ring.rank == ring.problem.root;
  const bool before_root = (ring.rank + 1) % ring.ranks == ring.problem.root;
  const bool after_root = ring.before(1) == ring.problem.root;
  const std::size_t end = part.offset + part.count;
  for (std::size_t base = part.offset; base < end; base += chunk) {
    Step made = step(base, chunk, end);
    made.receives = reduces ? !after_root : !is_root;
    made.sends = reduces ? !is_root : !before_root;
    made.from = reduces || is_root ? base : Step::kNone;
    made.to = !reduces || is_root ? base : Step::kNone;
    program.steps.push_back(made);
  }
}

std::vector<Program> ring_programs(const Problem& problem) {
  const Ring ring{problem, problem.ranks, problem.rank};
  const Counts counts = counts_of(problem);
  const bool chains =
      problem.operation == Operation::broadcast || problem.operation == Operation::reduce;
  const std::size_t step_bytes = problem.buffers.simple / kSteps;
  const std::size_t chunk = step_bytes * (chains ? 1 : 4) / problem.element;
  const std::size_t per_rank = std::min(counts.send, counts.receive);
  const std::size_t factor = problem.operation == Operation::all_reduce ? 2
                             : chains                                   ? 1
                                                                        : problem.ranks;
  const auto parts = split_to_channels(chains ? std::max(counts.send, counts.receive) : per_rank,
                                       problem.element, problem.channels, factor);
  std::vector<Program> programs;
  for (std::uint32_t channel = 0; channel < parts.size(); ++channel) {
    Program program;
    program.channel = channel;
    program.from = ring.before(1);
    program.to = (ring.rank + 1) % ring.ranks;
    program.slices = chains ? 1 : 2;
    program.steps_of_slice = chains ? 1 : 2;
    switch (problem.operation) {
      case Operation::all_reduce:
        all_reduce(ring, parts[channel], chunk, program);
        break;
      case Operation::all_gather:
        all_gather(ring, parts[channel], chunk, per_rank, program);
        break;
      case Operation::reduce_scatter:
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

// Sends and receives are programs of their own: neither waits for the other.
void add_pair(const Problem& problem, std::size_t from, std::size_t to, std::size_t count,
              std::uint32_t distance, std::vector<Program>& programs) {
  const std::size_t chunk = problem.buffers.point_to_point / problem.element;
  Program sends;
  sends.point_to_point = true;
  sends.slices = sends.steps_of_slice = 1;
  Program receives = sends;
  sends.to = (problem.rank + distance) % problem.ranks;
  receives.from = (problem.rank + problem.ranks - distance) % problem.ranks;
  for (std::size_t base = 0; base < count; base += chunk) {
    Step made = step(base, chunk, count);
    made.sends = true;
    made.from = from + base;
    sends.steps.push_back(made);
    made = step(base, chunk, count);
    made.receives = true;
    made.to = to + base;
    receives.steps.push_back(made);
  }
  programs.push_back(std::move(sends));
  programs.push_back(std::move(receives));
}

std::vector<Program> pair_programs(const Problem& problem) {
  std::vector<Program> programs;
  const Counts counts = counts_of(problem);
  if (problem.operation == Operation::sendrecv) {
    add_pair(problem, 0, 0, counts.send, 1, programs);
    return programs;
  }
  const std::size_t part = counts.send / problem.ranks;
  Program own;
  Step copy = step(problem.rank * part, part, counts.send);
  copy.from = copy.to = problem.rank * part;
  own.steps.push_back(copy);
  programs.push_back(std::move(own));
  for (std::uint32_t distance = 1; distance < problem.ranks; ++distance) {
    const std::uint32_t to = (problem.rank + distance) % problem.ranks;
    const std::uint32_t from = (problem.rank + problem.ranks - distance) % problem.ranks;
    add_pair(problem, to * part, from * part, part, distance, programs);
  }
  return programs;
}

}  // namespace

Counts counts_of(const Problem& problem) {
  const std::size_t all = problem.bytes / problem.element;
  const std::size_t part = all / problem.ranks;
  switch (problem.operation) {
    case Operation::all_gather:
      return {part, part * problem.ranks, part};
    case Operation::reduce_scatter:
      return {part * problem.ranks, part, part};
    case Operation::alltoall:
      return {part * problem.ranks, part * problem.ranks, part};
    default:
      return {all, all, all};
  }
}

std::size_t Program::messages_in() const {
  return slices * static_cast<std::size_t>(std::count_if(
                      steps.begin(), steps.end(), [](const Step& one) { return one.receives; }));
}

std::size_t Program::messages_out() const {
  return slices * static_cast<std::size_t>(std::count_if(
                      steps.begin(), steps.end(), [](const Step& one) { return one.sends; }));
}

std::vector<Program> programs_of(const Problem& problem) {
  const bool pairs =
      problem.operation == Operation::sendrecv || problem.operation == Operation::alltoall;
  return pairs ? pair_programs(problem) : ring_programs(problem);
}

Slice slice_of(std::size_t chunk, std::uint32_t slices, std::uint32_t index,
               std::size_t slot_elements) {
  constexpr std::size_t kGrain = 16;  // elements
  const std::size_t size = std::max(divide_up(chunk, kGrain * slices) * kGrain, slot_elements / 32);
  const std::size_t offset = std::min(chunk, size * index);
  return {offset, std::min(size, chunk - offset)};
}

std::vector<Slice> split_to_channels(std::size_t elements, std::size_t element,
                                     std::uint32_t channels, std::size_t factor) {
  const std::size_t cell =
      std::max<std::size_t>(round_up(divide_up(kCell, factor), kAlignment) / element, 1);
  const std::size_t cells = divide_up(elements, cell);
  const std::size_t used = std::min<std::size_t>(cells, channels);
  std::vector<Slice> parts;
  std::size_t at = 0;
  for (std::size_t i = 0; i < used; ++i) {
    const std::size_t own = cells / used + (i < cells % used ? 1 : 0);
    const std::size_t end = std::min(elements, at + own * cell);
    parts.push_back({at, end - at});
    at = end;
  }
  return parts;
}

double bus_factor(Operation operation, std::uint32_t ranks) {
  const double n = ranks;
  switch (operation) {
    case Operation::all_reduce:
      return 2 * (n - 1) / n;
    case Operation::all_gather:
    case Operation::reduce_scatter:
    case Operation::alltoall:
      return (n - 1) / n;
    default:
      return 1;
  }
}

}  // namespace weft::collectives
