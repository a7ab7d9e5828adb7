// Owns running workers as processes of this machine, over the rings of a weftd of their own.
//
// A worker is made of sections with barriers between them, so that all ranks begin a section
// together; inside of a section nothing is waited for but what the network brings.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "integration/workloads/worker.hpp"

namespace weft::cli {

// A run of one worker per rank, rank n on host h<n+1>.
struct LiveJob {
  std::string command;  // name of the command, for messages
  std::uint32_t ranks = 2;
  bool through_weftd = false;
  std::string topology{};  // a file
  std::vector<std::string> faults{};
  std::uint64_t seed = 1;
  double dilation = 1;
  double patience = 60;  // seconds without anything moving
  Duration peer_timeout = std::chrono::seconds{10};
  std::optional<std::uint32_t> victim{};  // a rank whose death is part of the run

  // Makes the worker, in the process of the rank. It may complete `place`, which the other ranks
  // read after the first barrier.
  std::function<std::unique_ptr<workloads::Worker>(srd::Engine&, std::uint32_t rank,
                                                   workloads::RankPlace& place)>
      make;
  // Writes what the worker has found into the rank's part of `results`; called in the process of
  // the rank when it ends, also if it failed.
  std::size_t result_bytes = 0;
  std::function<void(std::uint32_t rank, workloads::Worker& worker,
                     const workloads::PacketCounters& packets, std::span<std::byte> result)>
      collect;
};

// Returns whether all ranks ended well; says what did not. `results`: one part for each rank, zero
// where a rank did not get so far.
[[nodiscard]] bool run_live(const LiveJob& job, std::vector<std::byte>& results);

}  // namespace weft::cli
