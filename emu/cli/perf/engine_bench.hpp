// Owns the measurement of what a packet costs the engine: both ends in one thread, nothing between
// them.
#pragma once

#include <cstdint>
#include <string>

namespace weft::cli {

struct EngineBenchCase {
  std::string operation;   // "send" or "write"
  std::uint32_t size = 0;  // bytes of a message, which is one packet
  bool checksum = false;
  std::uint32_t peers = 1;
  std::uint16_t paths = 1;
};

struct EngineBenchResult {
  double ns_per_packet = 0;   // median of the rounds
  std::uint64_t packets = 0;  // delivered in all rounds
};

// `rounds` rounds of `packets` packets each, after a warm-up of the same length.
[[nodiscard]] EngineBenchResult run_engine_bench(const EngineBenchCase& bench,
                                                 std::uint64_t packets, int rounds);

}  // namespace weft::cli
