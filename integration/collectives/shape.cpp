// Owns how an operation becomes programs: what each rank gives and gets, and the cutting of it.
//
// An operation becomes a list of steps for each rank and channel. Steps say offsets and sizes only;
// nothing here knows a plugin or memory. Sizes are cut into channels, those into chunks (a step's
// worth), those into slices (a message's worth), by the rules of NCCL.
#include "integration/collectives/shape.hpp"

#include <algorithm>

#include "integration/collectives/shape_parts.hpp"

namespace weft::collectives {
namespace {

constexpr std::size_t kCell = std::size_t{32}
                              << 10;    // bytes of traffic, of which channels get some
constexpr std::size_t kAlignment = 16;  // bytes

}  // namespace

Counts counts_of(const Problem& problem) {
  const std::size_t all = problem.bytes / problem.element;
  const std::size_t part = all / problem.ranks;
  switch (problem.operation) {
    case NcclOperation::all_gather:
    case NcclOperation::gather:
    case NcclOperation::hypercube:
      return {part, part * problem.ranks, part};
    case NcclOperation::reduce_scatter:
    case NcclOperation::scatter:
      return {part * problem.ranks, part, part};
    case NcclOperation::alltoall:
      return {part * problem.ranks, part * problem.ranks, part};
    default:
      return {all, all, all};
  }
}

std::size_t RankProgram::messages_in(std::size_t end) const {
  return slices * static_cast<std::size_t>(std::count_if(
                      steps.begin(), steps.end(),
                      [&](const ProgramStep& one) { return one.receives_from(end); }));
}

std::size_t RankProgram::messages_out(std::size_t end) const {
  return slices * static_cast<std::size_t>(
                      std::count_if(steps.begin(), steps.end(),
                                    [&](const ProgramStep& one) { return one.sends_to(end); }));
}

bool is_reduction(NcclOperation operation) {
  return operation == NcclOperation::all_reduce || operation == NcclOperation::reduce ||
         operation == NcclOperation::reduce_scatter;
}

bool is_for_pat(NcclOperation operation) {
  return operation == NcclOperation::all_gather || operation == NcclOperation::reduce_scatter;
}

bool is_point_to_point(NcclOperation operation) { return operation >= NcclOperation::sendrecv; }

std::size_t buffer_of(const Buffers& buffers, const RankProgram& program) {
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

std::size_t chunk_of(const Problem& problem) {
  RankProgram program;
  program.protocol = problem.protocol;
  return data_bytes(problem.protocol, buffer_of(problem.buffers, program) / kSteps) /
         problem.element;
}

std::vector<RankProgram> programs_of(const Problem& problem) {
  if (is_point_to_point(problem.operation)) {
    return pair_programs(problem);
  }
  if (problem.algorithm == Algorithm::pat && is_for_pat(problem.operation)) {
    return pat_programs(problem);
  }
  return problem.algorithm == Algorithm::tree && problem.operation == NcclOperation::all_reduce
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

double bus_factor(NcclOperation operation, std::uint32_t ranks) {
  const double n = ranks;
  switch (operation) {
    case NcclOperation::all_reduce:
      return 2 * (n - 1) / n;
    case NcclOperation::all_gather:
    case NcclOperation::reduce_scatter:
    case NcclOperation::alltoall:
    case NcclOperation::gather:
    case NcclOperation::scatter:
      return (n - 1) / n;
    default:
      return 1;
  }
}

}  // namespace weft::collectives
