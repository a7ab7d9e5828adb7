// Owns the order of a run: connect, warm up, measure, check. For each size: out of place and in
// place, some untimed iterations, the timed ones, and then a few with fresh data whose result is
// checked element by element.
#include "integration/collectives/session.hpp"

#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <stdexcept>
#include <vector>

#include "integration/collectives/bug_net.hpp"
#include "integration/collectives/chaos_net.hpp"
#include "integration/collectives/clock.hpp"
#include "integration/collectives/stand_still.hpp"
#include "integration/collectives/table.hpp"
#include "integration/collectives/trace_net.hpp"
#include "integration/collectives/watched_net.hpp"
#include "srd/base/rng.hpp"

namespace weft::collectives {
namespace {

// User buffers between guards: a plugin or a step that writes beyond a buffer changes one of these.
class Memory {
 public:
  explicit Memory(std::size_t bytes) : bytes_(bytes), all_(bytes + 2 * kGuard, kGuardByte) {}
  [[nodiscard]] std::span<std::byte> user() { return std::span{all_}.subspan(kGuard, bytes_); }
  [[nodiscard]] std::uint64_t touched_guards() const {
    const auto touched = [](std::byte one) { return one != kGuardByte; };
    return static_cast<std::uint64_t>(std::count_if(all_.begin(), all_.begin() + kGuard, touched) +
                                      std::count_if(all_.end() - kGuard, all_.end(), touched));
  }

 private:
  static constexpr std::ptrdiff_t kGuard = 4096;
  static constexpr std::byte kGuardByte{0x5A};
  std::size_t bytes_;
  std::vector<std::byte> all_;
};

// One rank's way through the measurements. All ranks go through it in step: each measurement has
// the same barriers in all of them.
class Session {
 public:
  Session(const SessionOptions& options, std::uint32_t rank, Board& board, Net& net)
      : options_(options),
        rank_(rank),
        board_(board),
        where_(board.where(rank)),
        ranks_(net, board,
               {.ranks = options.ranks,
                .rank = rank,
                .channels = options.channels,
                .devices = options.devices,
                .buffers = options.buffers,
                .type = options.type,
                .reduction = options.reduction,
                .patience = options.patience_time()}) {}

  [[nodiscard]] Problem problem(std::size_t bytes) const {
    return {.operation = options_.operation,
            .bytes = bytes,
            .element = size_of(options_.type),
            .ranks = options_.ranks,
            .rank = rank_,
            .root = options_.root,
            .channels = options_.channels,
            .algorithm = options_.algorithm,
            .protocol = options_.protocol,
            .buffers = options_.buffers};
  }

  void connect() {
    // A small operation uses few channels. Connecting for a large one keeps the making of
    // connections out of all measurements.
    const std::size_t enough = std::size_t{1} << 26;  // all channels have something to do
    ranks_.connect(problem(std::max(options_.largest, enough)));
    board_.barrier(rank_);
  }

  void leave_in_chaos() { ranks_.leave_in_chaos(*options_.chaos); }

  [[nodiscard]] Measured measure(std::size_t bytes, bool in_place) {
    // For these nccl-tests has no run in place.
    const bool pairs = options_.operation == NcclOperation::sendrecv ||
                       options_.operation == NcclOperation::alltoall;
    if (in_place && pairs) {
      return {};
    }
    const Problem what = problem(bytes);
    const Counts counts = counts_of(what);
    Memory big(std::max(counts.send, counts.receive) * what.element);
    Memory other(std::max(counts.send, counts.receive) * what.element);
    std::span<std::byte> input = other.user().first(counts.send * what.element);
    std::span<std::byte> output = big.user().first(counts.receive * what.element);
    // In place as in nccl-tests: the smaller buffer is this rank's part of the larger one.
    if (in_place) {
      input = big.user();
      if (options_.operation == NcclOperation::all_gather ||
          options_.operation == NcclOperation::gather ||
          options_.operation == NcclOperation::hypercube) {
        input = input.subspan(rank_ * counts.send * what.element, counts.send * what.element);
      } else if (options_.operation == NcclOperation::reduce_scatter ||
                 options_.operation == NcclOperation::scatter) {
        output = big.user().subspan(rank_ * counts.receive * what.element,
                                    counts.receive * what.element);
      }
    }
    Measured result{.valid = true};
    for (std::uint32_t i = 0; i < options_.warm_up; ++i) {
      once(what, input, output, false);
    }
    settle_and_meet();
    const TimePoint begin = now();
    for (std::uint32_t i = 0; i < options_.iterations; ++i) {
      once(what, input, output, false);
    }
    // The time includes the end of our own sends.
    ranks_.settle();
    const double mine = static_cast<double>(nanoseconds(now() - begin)) / 1e3 / options_.iterations;
    // The average of all ranks, as nccl-tests has it.
    result.microseconds = board_.sum(rank_, mine) / options_.ranks;
    if (options_.check) {
      result.wrong = check(what, input, output);
      result.wrong += static_cast<std::uint64_t>(
          board_.sum(rank_, static_cast<double>(big.touched_guards() + other.touched_guards())));
    }
    return result;
  }

 private:
  // One iteration, counted for --kill and --stop.
  void once(const Problem& what, std::span<std::byte> input, std::span<std::byte> output,
            bool audit) {
    // The fault that was asked for: to die, or to stop the whole process for a while.
    if (options_.fault && options_.fault->rank == rank_ &&
        options_.fault->iteration == iteration_) {
      (void)std::fflush(stdout);
      if (options_.fault->seconds <= 0) {
        (void)::raise(SIGKILL);
      }
      stand_still(options_.fault->seconds);
    }
    ++iteration_;
    ranks_.run(what, input, output, audit);
  }

  // No thread makes progress for a rank that waits at a barrier: its last messages must have left.
  void settle_and_meet() {
    ranks_.settle();
    board_.barrier(rank_);
  }

  // Fresh data each time. Three rounds, so that every slot is used again and an old message in it
  // would be taken for a new one if the plugin let it.
  [[nodiscard]] std::uint64_t check(const Problem& what, std::span<std::byte> input,
                                    std::span<std::byte> output) {
    constexpr int kRounds = 3;
    std::size_t wrong = 0;
    for (int round = 0; round < kRounds; ++round) {
      Pattern pattern{options_.type, options_.reduction, ++pattern_round_};
      where_.computes(true);
      std::fill(output.begin(), output.end(), std::byte{0xC3});
      fill_input(pattern, what, input);
      where_.computes(false);
      board_.barrier(rank_);
      once(what, input, output, true);
      ranks_.settle();
      where_.computes(true);
      wrong += count_wrong(pattern, what, output);
      where_.computes(false);
    }
    return static_cast<std::uint64_t>(board_.sum(rank_, static_cast<double>(wrong)));
  }

  const SessionOptions& options_;
  std::uint32_t rank_;
  Board& board_;
  RankActivity& where_;
  Rank ranks_;
  std::uint64_t iteration_ = 0;
  std::uint64_t pattern_round_ = 0;
};

}  // namespace

std::vector<std::size_t> sizes_of(const SessionOptions& options) {
  std::vector<std::size_t> sizes;
  for (std::size_t bytes = options.smallest; bytes <= options.largest;) {
    sizes.push_back(bytes);
    const auto next = options.step != 0
                          ? bytes + options.step
                          : static_cast<std::size_t>(static_cast<double>(bytes) * options.factor);
    bytes = std::max(next, bytes + 1);
  }
  return sizes;
}

bool run_session(const SessionOptions& options, std::uint32_t rank, Board& board) {
  auto loaded = load_net(options.plugin, options.version);
  if (!loaded) {
    throw std::runtime_error(loaded.error().message);
  }
  // The decorators from the inside out. The bug is next to the plugin, as if it were the plugin's.
  // Chaos disturbs both. The trace shows what the harness asked, and the watch sees every call.
  std::unique_ptr<Net> net =
      options.bug.empty() ? std::move(loaded->net) : plant(std::move(loaded->net), options.bug);
  if (options.chaos) {
    net = add_chaos(std::move(net), mix64(*options.chaos) + rank);
  }
  if (!options.trace.empty()) {
    net = add_trace(std::move(net), options.trace, rank);
  }
  WatchedNet watched(std::move(net), board.where(rank));
  Table table(options, loaded->name, loaded->version);
  Session session(options, rank, board, watched);
  session.connect();
  const bool prints = rank == 0 && options.results.empty();
  if (prints) {
    table.head();
  }
  std::uint64_t wrong = 0;
  std::size_t count = 0;
  for (const std::size_t bytes : sizes_of(options)) {
    const Measured out_of_place = session.measure(bytes, false);
    const Measured in_place = session.measure(bytes, true);
    wrong += out_of_place.wrong + in_place.wrong;
    if (prints) {
      table.row(session.problem(bytes), out_of_place, in_place);
    } else if (rank == 0) {
      options.results[count++] = out_of_place;
      options.results[count++] = in_place;
    }
  }
  board.barrier(rank);  // none closes while another one still uses the plugin
  if (options.chaos) {
    session.leave_in_chaos();
  }
  if (prints) {
    table.tail();
  }
  return wrong == 0;
}

}  // namespace weft::collectives
