// Owns the proof that both ends of every connection count the same messages of the same sizes, and
// that programs move the right elements.
#include "integration/collectives/shape.hpp"

#include <gtest/gtest.h>

#include <deque>
#include <map>

#include "integration/collectives/data.hpp"
#include "srd/base/rng.hpp"

namespace weft::collectives {
namespace {

constexpr Operation kAll[] = {
    Operation::all_reduce, Operation::all_gather, Operation::reduce_scatter, Operation::broadcast,
    Operation::reduce,     Operation::sendrecv,   Operation::alltoall};

std::size_t slot_of(const Problem& problem, const Program& program) {
  const std::size_t step =
      program.point_to_point ? problem.buffers.point_to_point : problem.buffers.simple / kSteps;
  return step * program.steps_of_slice;
}

// The sizes of the messages of a program, in order.
std::vector<std::size_t> sizes(const Problem& problem, const Program& program, bool out) {
  std::vector<std::size_t> all;
  for (const Step& step : program.steps) {
    for (std::uint32_t i = 0; (out ? step.sends : step.receives) && i < program.slices; ++i) {
      all.push_back(
          slice_of(step.count, program.slices, i, slot_of(problem, program) / problem.element)
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
    problem.ranks = 2 + rng.below(7);
    problem.root = rng.below(problem.ranks);
    problem.channels = 1 + rng.below(4);
    problem.element = std::size_t{1} << rng.below(4);
    problem.bytes = rng.below(1U << (4 + rng.below(22)));
    std::map<Key, std::vector<std::size_t>> sent;
    std::map<Key, std::vector<std::size_t>> received;
    for (problem.rank = 0; problem.rank < problem.ranks; ++problem.rank) {
      for (const Program& program : programs_of(problem)) {
        for (const std::size_t size : sizes(problem, program, true)) {
          ASSERT_LE(size * problem.element, slot_of(problem, program));
          sent[{problem.rank, program.to, program.channel}].push_back(size);
        }
        for (const std::size_t size : sizes(problem, program, false)) {
          received[{program.from, problem.rank, program.channel}].push_back(size);
        }
      }
    }
    ASSERT_EQ(sent, received) << to_string(problem.operation) << " of " << problem.bytes
                              << " bytes, " << problem.ranks << " ranks";
  }
}

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
  explicit Model(const Problem& problem) : problem_(problem) {}

  std::size_t wrong(bool in_place) {
    const Pattern pattern{Type::int32, Reduction::sum, 1};
    for (problem_.rank = 0; problem_.rank < problem_.ranks; ++problem_.rank) {
      const Counts counts = counts_of(problem_);
      const std::size_t all = std::max(counts.send, counts.receive);
      outputs_.emplace_back(all * 4, std::byte{0xC3});
      inputs_.emplace_back(counts.send * 4);
      fill_input(pattern, problem_, inputs_.back());
      if (in_place) {
        const std::size_t at =
            problem_.operation == Operation::all_gather ? problem_.rank * counts.send : 0;
        std::copy(inputs_.back().begin(), inputs_.back().end(),
                  outputs_.back().begin() + static_cast<std::ptrdiff_t>(at * 4));
      }
      for (const Program& program : programs_of(problem_)) {
        running_.push_back({problem_.rank, program, 0});
      }
    }
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
      const bool scatters = in_place && problem_.operation == Operation::reduce_scatter;
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
    Program program;
    std::size_t step;
  };
  using Line = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>;

  bool advance(Running& one, bool in_place) {
    if (one.step == one.program.steps.size()) {
      return false;
    }
    const Step& step = one.program.steps[one.step];
    auto& inbox = lines_[{one.program.from, one.rank, one.program.channel}];
    if (step.receives && inbox.empty()) {
      return false;
    }
    std::vector<std::byte> data(step.count * 4);
    const Counts counts = counts_of(problem_);
    std::byte* input = inputs_[one.rank].data();
    std::byte* output = outputs_[one.rank].data();
    if (in_place && problem_.operation == Operation::reduce_scatter) {
      input = output;
      output += one.rank * counts.receive * 4;
    } else if (in_place) {
      input =
          output + (problem_.operation == Operation::all_gather ? one.rank * counts.send : 0) * 4;
    }
    if (step.from != Step::kNone) {
      std::copy_n(input + step.from * 4, data.size(), data.begin());
    }
    if (step.receives) {
      EXPECT_EQ(inbox.front().size(), data.size());
      if (step.from != Step::kNone) {
        reduce(Type::int32, Reduction::sum, data.data(), inbox.front().data(), step.count);
      } else {
        data = inbox.front();
      }
      inbox.pop_front();
    }
    if (step.to != Step::kNone) {
      std::copy(data.begin(), data.end(), output + step.to * 4);
    }
    if (step.sends) {
      lines_[{one.rank, one.program.to, one.program.channel}].push_back(data);
    }
    ++one.step;
    return true;
  }

  Problem problem_;
  std::vector<std::vector<std::byte>> inputs_;
  std::vector<std::vector<std::byte>> outputs_;
  std::vector<Running> running_;
  std::map<Line, std::deque<std::vector<std::byte>>> lines_;
};

TEST(Shape, ProgramsComputeWhatTheyAreNamedFor) {
  for (const Operation operation : kAll) {
    for (const std::uint32_t ranks : {2U, 3U, 4U, 5U, 8U}) {
      for (const std::size_t bytes : {0UL, 4UL, 64UL, 4096UL, 65532UL, 262148UL}) {
        const bool pairs = operation == Operation::sendrecv || operation == Operation::alltoall;
        for (const bool in_place : {false, true}) {
          if (in_place && pairs) {
            continue;
          }
          Problem problem{.operation = operation,
                          .bytes = bytes,
                          .ranks = ranks,
                          .root = ranks - 1,
                          .channels = 2};
          problem.buffers.simple = std::size_t{64} << 10;
          EXPECT_EQ(Model(problem).wrong(in_place), 0U)
              << to_string(operation) << " of " << bytes << " bytes, " << ranks << " ranks, "
              << (in_place ? "in place" : "out of place");
        }
      }
    }
  }
}

}  // namespace
}  // namespace weft::collectives
