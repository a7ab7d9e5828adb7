// Owns the rows that `weft perf` prints: for people, or as JSON.
#pragma once

#include <span>

#include "emu/cli/perf/options.hpp"
#include "emu/cli/perf/peers.hpp"

namespace weft::cli {

void print_head();
void print_row(const PerfOptions& options, const PerfCase& one, const PerfResult& result);
// Of another library.
void print_peer(const PerfOptions& options, const PeerRow& row);

// Of several rounds of one case: each figure's median; losses add up.
[[nodiscard]] PerfResult median(std::span<const PerfResult> results);
// Of one case in several pairs at a time: rates and losses add up, latencies are those of the
// slowest pair, and paths those of the pair that used most.
[[nodiscard]] PerfResult sum_of(std::span<const PerfResult> pairs);

}  // namespace weft::cli
