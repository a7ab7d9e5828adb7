// Owns what `weft perf` is asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "emu/cli/perf/endpoint.hpp"

namespace weft::cli {

struct PerfOptions {
  std::string io = "ring";
  bool through_weftd = false;
  bool block = false;
  int pin = 0;  // 1: yes, -1: no, 0: where it is what anybody would do
  bool json = false;
  std::vector<std::string> operations{"send", "write", "read"};
  std::vector<std::uint32_t> sizes{64, 4096, 65536, 1048576};
  int rounds = 5;
  double seconds = 0.2;
  std::uint32_t window = 0;
  std::string topology;
  std::uint64_t seed = 1;
  double dilation = 1;
  std::vector<std::string> faults;
  std::string capture;  // directory
  PerfTuning tuning{};
  std::string eal;
  std::vector<std::string> peers{};
  std::size_t pairs = 1;
};

// Each operation with each size that it can have.
[[nodiscard]] std::vector<PerfCase> cases_of(const PerfOptions& options);
// Packets go through weftd, and not from one side to the other.
[[nodiscard]] bool passes_weftd(const PerfOptions& options);
// Each process is told which core is its own.
[[nodiscard]] bool is_pinned(const PerfOptions& options);

// The core of weftd, where packets pass it and processes are pinned.
inline constexpr std::size_t kCoreOfWeftd = 1;
// Which of so many cores (two at least) a side of a pair has: the sides go round all of them. With
// weftd in the middle, which both sides wait for, the two sides of a pair share one that is not
// weftd's, and the pairs go round those.
[[nodiscard]] std::size_t core_of_side(std::size_t pair, std::size_t side, bool with_weftd,
                                       std::size_t cores);

}  // namespace weft::cli
