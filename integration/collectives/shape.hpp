// Owns NCCL's arithmetic: which chunk goes where in which step of an operation, and in which
// slices. All of it is a function of the operation, its size and the number of ranks.
//
// The result is a list of programs for each rank, one or more for each channel. A program is a list
// of steps; a step handles one chunk, in `slices` messages of `steps_of_slice` buffer steps each.
// Every rank computes its own programs, and they fit together because all ranks use the same rules.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "integration/collectives/lines.hpp"

namespace weft::collectives {

enum class NcclOperation : std::uint8_t {
  all_reduce,
  all_gather,
  reduce_scatter,
  broadcast,
  reduce,
  sendrecv,
  alltoall,
  gather,
  scatter,
  hypercube,
};
inline constexpr const char* kOperationNames[] = {
    "all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce",
    "sendrecv",   "alltoall",   "gather",         "scatter",   "hypercube"};
[[nodiscard]] inline const char* to_string(NcclOperation operation) {
  return kOperationNames[static_cast<std::size_t>(operation)];
}

// A rank gives all that it has to each of the others, or gets it: over connections for this alone.
[[nodiscard]] bool is_point_to_point(NcclOperation operation);

// Whether elements are combined. What only moves them takes any bits, NaNs among them.
[[nodiscard]] bool is_reduction(NcclOperation operation);

// NCCL has PAT for these only.
[[nodiscard]] bool is_for_pat(NcclOperation operation);

// pat: a binomial tree for each rank's part, all of them at the same time.
enum class Algorithm : std::uint8_t { ring, tree, pat };
inline constexpr const char* kAlgorithmNames[] = {"ring", "tree", "pat"};

inline constexpr std::size_t kSteps = 8;  // of a connection's buffer

// Bytes of the buffers; NCCL_BUFFSIZE, NCCL_LL_BUFFSIZE, NCCL_LL128_BUFFSIZE and
// NCCL_P2P_NET_CHUNKSIZE.
struct Buffers {
  std::size_t simple = std::size_t{4} << 20;
  std::size_t ll = std::size_t{512} << 10;
  std::size_t ll128 = std::size_t{4800} << 10;
  std::size_t point_to_point = std::size_t{128} << 10;
};

struct Problem {
  NcclOperation operation = NcclOperation::all_reduce;
  std::size_t bytes = 0;    // as the user says it: of the larger buffer
  std::size_t element = 4;  // bytes
  std::uint32_t ranks = 2;
  std::uint32_t rank = 0;
  std::uint32_t root = 0;
  std::uint32_t channels = 2;
  Algorithm algorithm = Algorithm::ring;
  Protocol protocol = Protocol::simple;
  Buffers buffers{};
};

// How many elements a rank gives and gets.
struct Counts {
  std::size_t send = 0;
  std::size_t receive = 0;
  std::size_t shown = 0;  // in the table's column
};
[[nodiscard]] Counts counts_of(const Problem& problem);

// What a rank does with a chunk. Offsets and counts are elements; the data is what is received from
// all ranks that the program receives from, and (or) what the input has.
struct ProgramStep {
  static constexpr std::size_t kNone = ~std::size_t{0};
  bool receives = false;
  bool sends = false;
  bool finishes = false;     // the result is complete, as far as sums go
  bool from_output = false;  // what an earlier phase has put there
  std::size_t from = kNone;  // in the input
  std::size_t to = kNone;    // in the output
  std::size_t count = 0;
  // Bits: of the program's peers those that take part.
  std::uint32_t from_ends = ~std::uint32_t{0};
  std::uint32_t to_ends = ~std::uint32_t{0};

  [[nodiscard]] bool receives_from(std::size_t end) const {
    return receives && (from_ends >> end & 1) != 0;
  }
  [[nodiscard]] bool sends_to(std::size_t end) const { return sends && (to_ends >> end & 1) != 0; }
};

// The steps of a rank, one after the other, over a connection from each of some peers and to each
// of others. Ends are numbered by their place in `from` and `to`.
struct RankProgram {
  std::uint32_t channel = 0;
  std::vector<std::uint32_t> from;
  std::vector<std::uint32_t> to;
  bool point_to_point = false;
  Protocol protocol = Protocol::simple;
  std::uint32_t phase = 0;           // begins when all of the phases before have ended
  std::uint32_t slices = 2;          // of a step: so many messages, the last ones may be empty
  std::uint32_t steps_of_slice = 2;  // of the connection's buffer
  std::vector<ProgramStep> steps;

  // From and to one of its peers.
  [[nodiscard]] std::size_t messages_in(std::size_t end) const;
  [[nodiscard]] std::size_t messages_out(std::size_t end) const;
};

// Bytes of the connections' buffers for a program.
[[nodiscard]] std::size_t buffer_of(const Buffers& buffers, const RankProgram& program);

// Programs of one rank run at the same time, phase by phase.
[[nodiscard]] std::vector<RankProgram> programs_of(const Problem& problem);

// The elements of slice `index` of a chunk, from where on.
struct Slice {
  std::size_t offset = 0;
  std::size_t count = 0;
};
[[nodiscard]] Slice slice_of(std::size_t chunk, std::uint32_t slices, std::uint32_t index,
                             std::size_t slot_elements);

// The parts of the elements that the channels care for. A small operation has fewer parts than
// channels. `factor`: how often an element crosses a link.
[[nodiscard]] std::vector<Slice> split_to_channels(std::size_t elements, std::size_t element,
                                                   std::uint32_t channels, std::size_t factor);

// Bus bandwidth as a multiple of algorithm bandwidth, as nccl-tests defines it: how often each byte
// crosses a link.
[[nodiscard]] double bus_factor(NcclOperation operation, std::uint32_t ranks);

}  // namespace weft::collectives
