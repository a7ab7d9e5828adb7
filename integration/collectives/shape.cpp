// Owns the programs of rings and trees, and of the point-to-point operations.
//
// An operation becomes a list of steps for each rank and channel. Steps say offsets and sizes only;
// nothing here knows a plugin or memory. Sizes are cut into channels, those into chunks (a step's
// worth), those into slices (a message's worth), by the rules of NCCL.
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

// Each piece goes round the ring twice. On the first round each rank adds its own part to it and
// passes it on, until it reaches the rank of the same number, which so has the sum; the second
// round carries the sum to all. A rank begins with the piece of the rank before it.
void all_reduce(const Ring& ring, const Slice& part, std::size_t chunk_limit, Program& program) {
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

// The first half of all_reduce().
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
    program.steps.back().finishes = true;
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
    made.finishes = reduces && is_root;
    program.steps.push_back(made);
  }
}

// Elements of a step.
std::size_t chunk_of(const Problem& problem) {
  Program program;
  program.protocol = problem.protocol;
  return data_bytes(problem.protocol, buffer_of(problem.buffers, program) / kSteps) /
         problem.element;
}

std::vector<Program> ring_programs(const Problem& problem) {
  const Ring ring{problem, problem.ranks, problem.rank};
  const Counts counts = counts_of(problem);
  const bool chains =
      problem.operation == Operation::broadcast || problem.operation == Operation::reduce;
  const bool simple = problem.protocol == Protocol::simple;
  const bool one_step = chains || !simple;  // else a chunk is two slices of two steps
  const std::size_t chunk = chunk_of(problem) * (one_step ? 1 : 4);
  const std::size_t per_rank = std::min(counts.send, counts.receive);
  // How often an element crosses a link. NCCL counts traffic, not data, when it decides how many
  // channels a small operation is worth.
  const std::size_t factor = problem.operation == Operation::all_reduce ? 2
                             : chains                                   ? 1
                                                                        : problem.ranks;
  const auto parts = split_to_channels(chains ? std::max(counts.send, counts.receive) : per_rank,
                                       problem.element, problem.channels, factor);
  std::vector<Program> programs;
  for (std::uint32_t channel = 0; channel < parts.size(); ++channel) {
    Program program;
    program.channel = channel;
    program.from = {ring.before(1)};
    program.to = {(ring.rank + 1) % ring.ranks};
    program.protocol = problem.protocol;
    program.slices = one_step ? 1 : 2;
    program.steps_of_slice = one_step ? 1 : 2;
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

// --- Trees

constexpr std::uint32_t kNobody = ~std::uint32_t{0};

// The neighbours of a rank in a tree.
struct Node {
  std::uint32_t up = kNobody;
  std::vector<std::uint32_t> down;
};

// The lowest bit of a rank tells how far down it is: odd ones are leaves, the root is 0.
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

// A rank that has much to do in one of both trees has little in the other one: it is mirrored if
// the ranks are even in number, else shifted by one.
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

// Up to the root it is reduced, and the result comes down again, both at the same time; the root
// turns what has come around at once.
std::vector<Program> tree_programs(const Problem& problem) {
  const std::size_t chunk = chunk_of(problem);
  const std::size_t elements = counts_of(problem).send;
  const auto parts = split_to_channels(elements, problem.element, problem.channels, 2);
  std::vector<Program> programs;
  for (std::uint32_t channel = 0; channel < parts.size(); ++channel) {
    const Node node =
        node_of(problem.rank, problem.ranks, channel >= std::max(problem.channels / 2, 1U));
    const bool root = node.up == kNobody;
    Program up;
    up.channel = channel;
    up.protocol = problem.protocol;
    up.slices = up.steps_of_slice = 1;
    Program down = up;
    up.from = node.down;
    up.to = root ? node.down : std::vector{node.up};
    down.from = {node.up};
    down.to = node.down;
    const std::size_t end = parts[channel].offset + parts[channel].count;
    for (std::size_t base = parts[channel].offset; base < end; base += chunk) {
      Step made = step(base, chunk, end);
      made.receives = !up.from.empty();
      made.sends = true;
      made.from = base;
      made.to = root ? base : Step::kNone;
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

// Smaller chunks for smaller operations, so that there are enough of them for all connections; 64
// KiB at least.
std::size_t pat_chunk(const Problem& problem) {
  constexpr std::size_t kMinChunk = std::size_t{64} << 10;
  const std::size_t parts = problem.operation == Operation::all_gather ? 32 : 16;
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

// Of all_gather from the owner on, of reduce_scatter towards it: in the order of the distance from
// the owner, so that both ends of a connection have the same order.
Step pat_step(const Problem& problem, std::uint32_t away, std::size_t base, std::size_t chunk,
              std::size_t per_rank) {
  const std::uint32_t owner = (problem.rank + problem.ranks - away) % problem.ranks;
  const std::uint32_t below = children_of(away, problem.ranks);
  const std::uint32_t above = away & (~away + 1);
  const bool gathers = problem.operation == Operation::all_gather;
  Step made = step(base, chunk, per_rank);
  made.from_ends = gathers ? above : below;
  made.to_ends = gathers ? below : above;
  made.receives = made.from_ends != 0;
  made.sends = made.to_ends != 0;
  if (gathers) {
    made.from = away == 0 ? base : Step::kNone;
    made.to = owner * per_rank + base;
  } else {
    made.from = owner * per_rank + base;
    made.to = away == 0 ? base : Step::kNone;
    made.finishes = away == 0;
  }
  return made;
}

std::vector<Program> pat_programs(const Problem& problem) {
  const Counts counts = counts_of(problem);
  const std::size_t per_rank = std::min(counts.send, counts.receive);
  const bool gathers = problem.operation == Operation::all_gather;
  const std::size_t chunk = pat_chunk(problem);
  const auto parts = split_to_channels(per_rank, problem.element, problem.channels, problem.ranks);
  std::vector<Program> programs;
  for (std::uint32_t channel = 0; channel < parts.size(); ++channel) {
    Program program;
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
        Step made = pat_step(problem, gathers ? i : problem.ranks - 1 - i, base, chunk, per_rank);
        made.count = std::min(made.count, end - base);
        program.steps.push_back(made);
      }
    }
    programs.push_back(std::move(program));
  }
  return programs;
}

// --- Point to point

// What goes from one rank to another, in chunks. Sends and receives are programs of their own:
// neither waits for the other.
class Pairs {
 public:
  explicit Pairs(const Problem& problem) : problem_(problem) {}

  void send(std::uint32_t to, std::size_t from, std::size_t count, bool from_output = false) {
    Program program = empty();
    program.to = {to};
    each_chunk(count, program, [&](Step& made, std::size_t base) {
      made.sends = true;
      made.from_output = from_output;
      made.from = from + base;
    });
  }
  void receive(std::uint32_t from, std::size_t to, std::size_t count) {
    Program program = empty();
    program.from = {from};
    each_chunk(count, program, [&](Step& made, std::size_t base) {
      made.receives = true;
      made.to = to + base;
    });
  }
  // A rank's part for itself, which goes over no connection.
  void copy(std::size_t from, std::size_t to, std::size_t count) {
    Program program = empty();
    Step made = step(0, count, count);
    made.from = from;
    made.to = to;
    program.steps.push_back(made);
    programs_.push_back(std::move(program));
  }
  void next_phase() { ++phase_; }
  [[nodiscard]] std::vector<Program> take() { return std::move(programs_); }

 private:
  [[nodiscard]] Program empty() const {
    Program program;
    program.point_to_point = true;
    program.slices = program.steps_of_slice = 1;
    program.phase = phase_;
    return program;
  }
  template <class F>
  void each_chunk(std::size_t count, Program& program, F&& f) {
    const std::size_t chunk = problem_.buffers.point_to_point / problem_.element;
    for (std::size_t base = 0; base < count; base += chunk) {
      Step made = step(base, chunk, count);
      f(made, base);
      program.steps.push_back(made);
    }
    programs_.push_back(std::move(program));
  }

  const Problem& problem_;
  std::uint32_t phase_ = 0;
  std::vector<Program> programs_;
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

std::vector<Program> pair_programs(const Problem& problem) {
  const Counts counts = counts_of(problem);
  const std::size_t part = counts.shown;
  const std::uint32_t ranks = problem.ranks;
  const std::uint32_t rank = problem.rank;
  const bool is_root = rank == problem.root;
  Pairs pairs(problem);
  switch (problem.operation) {
    case Operation::sendrecv:
      pairs.send((rank + 1) % ranks, 0, counts.send);
      pairs.receive((rank + ranks - 1) % ranks, 0, counts.send);
      break;
    case Operation::hypercube:
      hypercube(problem, part, pairs);
      break;
    case Operation::gather:
    case Operation::scatter: {
      const bool gathers = problem.operation == Operation::gather;
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

}  // namespace

Counts counts_of(const Problem& problem) {
  const std::size_t all = problem.bytes / problem.element;
  const std::size_t part = all / problem.ranks;
  switch (problem.operation) {
    case Operation::all_gather:
    case Operation::gather:
    case Operation::hypercube:
      return {part, part * problem.ranks, part};
    case Operation::reduce_scatter:
    case Operation::scatter:
      return {part * problem.ranks, part, part};
    case Operation::alltoall:
      return {part * problem.ranks, part * problem.ranks, part};
    default:
      return {all, all, all};
  }
}

std::size_t Program::messages_in(std::size_t end) const {
  return slices *
         static_cast<std::size_t>(std::count_if(
             steps.begin(), steps.end(), [&](const Step& one) { return one.receives_from(end); }));
}

std::size_t Program::messages_out(std::size_t end) const {
  return slices *
         static_cast<std::size_t>(std::count_if(
             steps.begin(), steps.end(), [&](const Step& one) { return one.sends_to(end); }));
}

bool is_for_pat(Operation operation) {
  return operation == Operation::all_gather || operation == Operation::reduce_scatter;
}

bool is_point_to_point(Operation operation) { return operation >= Operation::sendrecv; }

std::size_t buffer_of(const Buffers& buffers, const Program& program) {
  if (program.point_to_point) {
    return buffers.point_to_point * kSteps;
  }
  switch (program.protocol) {
    case Protocol::ll:
      return buffers.ll;
    case Protocol::ll128:
      return buffers.ll128;
    case Protocol::simple:
      break;
  }
  return buffers.simple;
}

std::vector<Program> programs_of(const Problem& problem) {
  if (is_point_to_point(problem.operation)) {
    return pair_programs(problem);
  }
  if (problem.algorithm == Algorithm::pat && is_for_pat(problem.operation)) {
    return pat_programs(problem);
  }
  return problem.algorithm == Algorithm::tree && problem.operation == Operation::all_reduce
             ? tree_programs(problem)
             : ring_programs(problem);
}

// NCCL's rule: whole grains of 16 elements, and never so small that a slice is not worth a message.
// The last slices of a short chunk are empty, and are sent all the same.
Slice slice_of(std::size_t chunk, std::uint32_t slices, std::uint32_t index,
               std::size_t slot_elements) {
  constexpr std::size_t kGrain = 16;  // elements
  const std::size_t size = std::max(divide_up(chunk, kGrain * slices) * kGrain, slot_elements / 32);
  const std::size_t offset = std::min(chunk, size * index);
  return {offset, std::min(size, chunk - offset)};
}

// Even in cells, the first channels one cell more. NCCL deals the last part in a way of its own.
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
    case Operation::gather:
    case Operation::scatter:
      return (n - 1) / n;
    default:
      return 1;
  }
}

}  // namespace weft::collectives
