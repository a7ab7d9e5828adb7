// Owns the processes of `weft perf`: where the two sides of each pair live, and what they do.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "emu/cli/perf/dpdk.hpp"
#include "emu/cli/perf/endpoint.hpp"
#include "emu/cli/perf/options.hpp"
#include "emu/launch/weftd_process.hpp"

namespace weft::cli {

// Memory that the two sides share.
struct PairBoard {
  static constexpr std::size_t kMaxCases = 64;
  PerfBoard perf;
  std::array<PerfResult, kMaxCases> medians{};  // for a sum over several pairs
};

// Of all pairs.
class Boards {
 public:
  // Throws if there is no memory.
  explicit Boards(std::size_t pairs);
  ~Boards();
  Boards(const Boards&) = delete;
  Boards& operator=(const Boards&) = delete;

  [[nodiscard]] std::span<PairBoard> all() const { return all_; }

 private:
  std::span<PairBoard> all_;
};

// What carries the packets, made before the sides are forked and kept until they have ended. With
// neither member it is UDP over loopback.
struct Ground {
  std::optional<launch::PrivateWeftd> weftd;
  std::optional<DpdkPlan> dpdk;

  // In the process of that side.
  [[nodiscard]] PerfPlace place(int pair, int side) const;
};

// The body of one of the two processes. Returns its exit code.
[[nodiscard]] int run_side(const PerfOptions& options, PairBoard& board, int pair, int side,
                           const Ground& ground);

// The two processes of each pair. They end with this one, and never run its destructors.
class Sides {
 public:
  Sides() = default;
  ~Sides();
  Sides(const Sides&) = delete;
  Sides& operator=(const Sides&) = delete;

  // `body` returns the exit code.
  void start(int side, const std::function<int()>& body);
  // Until all have ended. If one fails the others do not wait for it. Returns the exit code of all.
  [[nodiscard]] int wait(std::span<PairBoard> boards);

 private:
  std::vector<pid_t> pids_;
};

}  // namespace weft::cli
