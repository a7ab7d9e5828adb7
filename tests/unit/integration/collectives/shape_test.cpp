// Owns the proof that both ends of every connection count the same messages of the same sizes, and
// that programs move the right elements. Nothing checks that at run time: ends that disagree by one
// message hang, and ends that disagree by a byte mix up data.
#include "integration/collectives/shape.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <tuple>
#include <vector>

#include "integration/collectives/data.hpp"
#include "srd/base/rng.hpp"

namespace weft::collectives {
namespace {

constexpr NcclOperation kAll[] = {NcclOperation::all_reduce,     NcclOperation::all_gather,
                                  NcclOperation::reduce_scatter, NcclOperation::broadcast,
                                  NcclOperation::reduce,         NcclOperation::sendrecv,
                                  NcclOperation::alltoall,       NcclOperation::gather,
                                  NcclOperation::scatter,        NcclOperation::hypercube};

// Bytes of data that a message may have.
std::size_t slot_of(const Problem& problem, const RankProgram& program) {
  return data_bytes(program.protocol,
                    buffer_of(problem.buffers, program) / kSteps * program.steps_of_slice);
}

// The sizes of the messages of a program to or from one of its peers, in order.
std::vector<std::size_t> sizes(const Problem& problem, const RankProgram& program, bool out,
                               std::size_t end) {
  std::vector<std::size_t> all;
  for (const ProgramStep& step : program.steps) {
    const bool moves = out ? step.sends_to(end) : step.receives_from(end);
    for (std::uint32_t i = 0; moves && i < program.slices; ++i) {
      all.push_back(program.slices == 1 ? step.count
                                        : slice_of(step.count, program.slices, i,
                                                   slot_of(problem, program) / problem.element)
                                              .count);
    }
  }
  return all;
}

TEST(Shape, BothEndsAgreeOnEveryMessage) {
  using Key = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>;
  Rng rng(5);
  for (int i = 0; i < 2000; ++i) {
    Problem problem;
    problem.operation = kAll[rng.below(std::size(kAll))];
    problem.ranks =
        // A hypercube needs a power of two.
        problem.operation == NcclOperation::hypercube ? 2U << rng.below(3) : 2 + rng.below(7);
    problem.algorithm = static_cast<Algorithm>(rng.below(3));
    problem.protocol = static_cast<Protocol>(rng.below(3));
    problem.root = rng.below(problem.ranks);
    problem.channels = 1 + rng.below(4);
    problem.element = std::size_t{1} << rng.below(4);
    // From a few bytes to 32 MiB, each magnitude as often as the others.
    problem.bytes = rng.below(1U << (4 + rng.below(22)));
    std::map<Key, std::vector<std::size_t>> sent;
    std::map<Key, std::vector<std::size_t>> received;
    for (problem.rank = 0; problem.rank < problem.ranks; ++problem.rank) {
      for (const RankProgram& program : programs_of(problem)) {
        for (std::size_t end = 0; end < program.to.size(); ++end) {
          for (const std::size_t size : sizes(problem, program, true, end)) {
            ASSERT_LE(size * problem.element, slot_of(problem, program));
            sent[{problem.rank, program.to[end], program.channel}].push_back(size);
          }
        }
        for (std::size_t end = 0; end < program.from.size(); ++end) {
          for (const std::size_t size : sizes(problem, program, false, end)) {
            received[{program.from[end], problem.rank, program.channel}].push_back(size);
          }
        }
      }
    }
    ASSERT_EQ(sent, received) << to_string(problem.operation) << " of " << problem.bytes
                              << " bytes, " << problem.ranks << " ranks";
  }
}

// Two slices of a chunk, each of at least a thirty-second of the slot (here 32 KiB): the second one
// may be empty, and is sent all the same.
TEST(Shape, SlicesAreNccls) {
  const std::size_t slot = (std::size_t{1} << 20) / 4;
  const auto bytes = [&](std::size_t chunk, std::uint32_t index) {
    return slice_of(chunk / 4, 2, index, slot).count * 4;
  };
  EXPECT_EQ(bytes(40960, 0), 32768U);
  EXPECT_EQ(bytes(40960, 1), 8192U);
  EXPECT_EQ(bytes(20480, 0), 20480U);
  EXPECT_EQ(bytes(20480, 1), 0U) << "an empty message";
  EXPECT_EQ(bytes(std::size_t{2} << 20, 0), std::size_t{1} << 20);
  EXPECT_EQ(bytes(std::size_t{2} << 20, 1), std::size_t{1} << 20);
}

TEST(Shape, ChannelsShareEverything) {
  for (std::size_t elements : {0UL, 1UL, 4096UL, 4097UL, 1000000UL}) {
    const auto parts = split_to_channels(elements, 4, 4, 2);
    std::size_t at = 0;
    for (const Slice& part : parts) {
      EXPECT_EQ(part.offset, at);
      EXPECT_GT(part.count, 0U);
      at += part.count;
    }
    EXPECT_EQ(at, elements);
  }
  EXPECT_EQ(split_to_channels(4095, 4, 2, 2).size(), 1U) << "below 16 KiB one channel";
}

// All ranks in one thread, with queues for a network.
class Model {
 public:
  Model(const Problem& problem, Reduction reduction) : problem_(problem), reduction_(reduction) {}

  std::size_t wrong(bool in_place) {
    const Pattern pattern{Type::int32, reduction_, 1};
    for (problem_.rank = 0; problem_.rank < problem_.ranks; ++problem_.rank) {
      const Counts counts = counts_of(problem_);
      const std::size_t all = std::max(counts.send, counts.receive);
      // Painted, so that what was never written does not look like zeros that belong there.
      outputs_.emplace_back(all * 4, std::byte{0xC3});
      inputs_.emplace_back(counts.send * 4);
      fill_input(pattern, problem_, inputs_.back());
      if (in_place) {
        const std::size_t at = gathers_to(problem_.operation) ? problem_.rank * counts.send : 0;
        std::copy(inputs_.back().begin(), inputs_.back().end(),
                  outputs_.back().begin() + static_cast<std::ptrdiff_t>(at * 4));
      }
      for (const RankProgram& program : programs_of(problem_)) {
        running_.push_back({problem_.rank, program, 0});
      }
    }
    // Until nobody can go on: programs that wait for each other in a circle end it, too, with steps
    // left.
    for (bool moved = true; moved;) {
      moved = false;
      for (Running& one : running_) {
        moved = advance(one, in_place) || moved;
      }
    }
    std::size_t wrong = 0;
    for (problem_.rank = 0; problem_.rank < problem_.ranks; ++problem_.rank) {
      const Counts counts = counts_of(problem_);
      auto output = std::span{outputs_[problem_.rank]};
      const bool scatters = in_place && scatters_from(problem_.operation);
      output =
          output.subspan(scatters ? problem_.rank * counts.receive * 4 : 0, counts.receive * 4);
      wrong += count_wrong(pattern, problem_, output);
    }
    for (const Running& one : running_) {
      wrong += one.step != one.program.steps.size() ? 1 : 0;
    }
    return wrong;
  }

 private:
  struct Running {
    std::uint32_t rank;
    RankProgram program;
    std::size_t step;
  };
  using Line = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>;

  bool advance(Running& one, bool in_place) {
    if (one.step == one.program.steps.size()) {
      return false;
    }
    const ProgramStep& step = one.program.steps[one.step];
    for (std::size_t i = 0; i < one.program.from.size(); ++i) {
      if (step.receives_from(i) &&
          lines_[{one.program.from[i], one.rank, one.program.channel}].empty()) {
        return false;
      }
    }
    for (std::size_t i = 0; i < one.program.to.size(); ++i) {
      const auto& line = lines_[{one.rank, one.program.to[i], one.program.channel}];
      if (step.sends_to(i) &&
          line.size() * one.program.slices * one.program.steps_of_slice >= kSteps) {
        return false;  // a connection holds no more
      }
    }
    if (!begins(one)) {
      return false;
    }
    std::vector<std::byte> data(step.count * 4);
    const Counts counts = counts_of(problem_);
    std::byte* input = inputs_[one.rank].data();
    std::byte* output = outputs_[one.rank].data();
    if (in_place && scatters_from(problem_.operation)) {
      input = output;
      output += one.rank * counts.receive * 4;
    } else if (in_place) {
      input = output + (gathers_to(problem_.operation) ? one.rank * counts.send : 0) * 4;
    }
    bool first = true;
    if (step.from != ProgramStep::kNone) {
      std::copy_n((step.from_output ? output : input) + step.from * 4, data.size(), data.begin());
      first = false;
    }
    for (std::size_t i = 0; i < one.program.from.size(); ++i) {
      if (!step.receives_from(i)) {
        continue;
      }
      auto& inbox = lines_[{one.program.from[i], one.rank, one.program.channel}];
      EXPECT_EQ(inbox.front().size(), data.size());
      if (!first) {
        reduce(Type::int32, Reduction::sum, data.data(), inbox.front().data(), step.count);
      } else {
        data = inbox.front();
      }
      first = false;
      inbox.pop_front();
    }
    if (step.finishes) {
      finish(Type::int32, reduction_, problem_.ranks, data.data(), step.count);
    }
    if (step.to != ProgramStep::kNone) {
      std::copy(data.begin(), data.end(), output + step.to * 4);
    }
    for (std::size_t i = 0; i < one.program.to.size(); ++i) {
      if (step.sends_to(i)) {
        lines_[{one.rank, one.program.to[i], one.program.channel}].push_back(data);
      }
    }
    ++one.step;
    return true;
  }

  // No program of an earlier phase of this rank goes on.
  [[nodiscard]] bool begins(const Running& one) const {
    return std::ranges::none_of(running_, [&](const Running& other) {
      return other.rank == one.rank && other.program.phase < one.program.phase &&
             other.step != other.program.steps.size();
    });
  }
  static bool gathers_to(NcclOperation operation) {
    return operation == NcclOperation::all_gather || operation == NcclOperation::gather ||
           operation == NcclOperation::hypercube;
  }
  static bool scatters_from(NcclOperation operation) {
    return operation == NcclOperation::reduce_scatter || operation == NcclOperation::scatter;
  }

  Problem problem_;
  Reduction reduction_;
  std::vector<std::vector<std::byte>> inputs_;
  std::vector<std::vector<std::byte>> outputs_;
  std::vector<Running> running_;
  std::map<Line, std::deque<std::vector<std::byte>>> lines_;
};

struct Way {
  NcclOperation operation;
  Algorithm algorithm = Algorithm::ring;
  Protocol protocol = Protocol::simple;
};

void expect_right(const Way& way, std::uint32_t ranks, std::size_t bytes, bool in_place) {
  Problem problem{.operation = way.operation,
                  .bytes = bytes,
                  .ranks = ranks,
                  .root = ranks - 1,
                  .channels = 2,
                  .algorithm = way.algorithm,
                  .protocol = way.protocol};
  // Smaller than NCCL's, so that the larger problems go round them several times.
  problem.buffers.simple = std::size_t{64} << 10;
  problem.buffers.ll = std::size_t{16} << 10;
  problem.buffers.ll128 = std::size_t{64} << 10;
  EXPECT_EQ(Model(problem, bytes % 3 == 0 ? Reduction::sum : Reduction::avg).wrong(in_place), 0U)
      << to_string(way.operation) << " of " << bytes << " bytes, " << ranks << " ranks, "
      << kAlgorithmNames[static_cast<int>(way.algorithm)] << ", "
      << kProtocolNames[static_cast<int>(way.protocol)]
      << (in_place ? ", in place" : ", out of place");
}

TEST(Shape, ProgramsComputeWhatTheyAreNamedFor) {
  std::vector<Way> ways;
  for (const NcclOperation operation : kAll) {
    for (int protocol = 0; protocol < (is_point_to_point(operation) ? 1 : 3); ++protocol) {
      ways.push_back({operation, Algorithm::ring, static_cast<Protocol>(protocol)});
    }
  }
  for (int protocol = 0; protocol < 3; ++protocol) {
    ways.push_back({NcclOperation::all_reduce, Algorithm::tree, static_cast<Protocol>(protocol)});
  }
  ways.push_back({NcclOperation::all_gather, Algorithm::pat});
  ways.push_back({NcclOperation::reduce_scatter, Algorithm::pat});
  for (const Way& way : ways) {
    for (const std::uint32_t ranks : {2U, 3U, 4U, 5U, 8U}) {
      if (way.operation == NcclOperation::hypercube && (ranks & (ranks - 1)) != 0) {
        continue;
      }
      // Nothing, one element, less than a slice, and sizes that no power of two divides.
      for (const std::size_t bytes : {0UL, 4UL, 64UL, 4096UL, 65532UL, 262148UL}) {
        expect_right(way, ranks, bytes, false);
        if (way.operation != NcclOperation::sendrecv && way.operation != NcclOperation::alltoall) {
          expect_right(way, ranks, bytes, true);
        }
      }
    }
  }
}

// A part reaches its last rank after as many hops as the number of ranks has bits, and rings need
// all ranks. More ranks than a connection holds messages do not block each other.
TEST(Shape, PatIsShallowAndNeverBlocks) {
  for (const std::uint32_t ranks : {2U, 3U, 5U, 6U, 7U, 16U, 31U, 64U}) {
    for (const NcclOperation operation :
         {NcclOperation::all_gather, NcclOperation::reduce_scatter}) {
      expect_right({operation, Algorithm::pat}, ranks, std::size_t{ranks} * 3000, false);
      const Problem problem{.operation = operation,
                            .bytes = std::size_t{1} << 20,
                            .ranks = ranks,
                            .rank = ranks / 2,
                            .channels = 1,
                            .algorithm = Algorithm::pat};
      std::size_t distances = 0;
      while ((std::size_t{1} << distances) < ranks) {
        ++distances;
      }
      const RankProgram program = programs_of(problem)[0];
      EXPECT_EQ(program.to.size(), distances);
      std::size_t messages = 0;
      for (std::size_t end = 0; end < distances; ++end) {
        EXPECT_EQ(program.messages_in(end), program.messages_out(end));
        messages += program.messages_out(end);
      }
      EXPECT_EQ(messages % (ranks - 1), 0U) << "each part goes to each other rank once";
    }
  }
}

// Of both trees together no rank has more than two above and four below, and one that has many
// below in one has at most one in the other.
TEST(Shape, TreesShareTheWork) {
  for (std::uint32_t ranks = 2; ranks <= 16; ++ranks) {
    std::uint32_t roots = 0;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      const Problem problem{.operation = NcclOperation::all_reduce,
                            .bytes = 1 << 20,
                            .ranks = ranks,
                            .rank = rank,
                            .channels = 2,
                            .algorithm = Algorithm::tree};
      std::size_t most = 0;
      std::size_t least = 2;
      for (std::uint32_t channel = 0; channel < 2; ++channel) {
        std::size_t children = 0;
        for (const RankProgram& program : programs_of(problem)) {
          if (program.channel == channel && program.steps[0].from != ProgramStep::kNone) {
            children = program.from.size();
            roots += program.steps[0].finishes ? 1 : 0;
          }
        }
        most = std::max(most, children);
        least = std::min(least, children);
      }
      EXPECT_LE(most, 2U);
      EXPECT_TRUE(ranks % 2 != 0 || least <= 1) << "rank " << rank << " of " << ranks;
    }
    EXPECT_EQ(roots, 2U) << ranks << " ranks";
  }
}

}  // namespace
}  // namespace weft::collectives
