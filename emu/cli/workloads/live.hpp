// Owns running workers as processes of this machine, over the rings of a weftd of their own.
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

struct LiveJob {
  std::string command;  // for what it says
  std::uint32_t ranks = 2;
  bool through_weftd = false;
  std::string topology{};  // a file
  std::vector<std::string> faults{};
  std::uint64_t seed = 1;
  double dilation = 1;
  double patience = 60;  // seconds without anything moving
  Duration peer_timeout = std::chrono::seconds{10};
  std::optional<std::uint32_t> victim{};  // a rank whose death is part of the run

  // In the process of the rank.
  std::function<std::unique_ptr<workloads::Worker>(srd::Engine&, std::uint32_t rank,
                                                   workloads::RankPlace& place)>
      make;
  // At its end, into its part of `results`.
  std::size_t result_bytes = 0;
  std::function<void(std::uint32_t rank, workloads::Worker& worker,
                     const workloads::PacketCounters& packets, std::span<std::byte> result)>
      collect;
};

// Returns whether all ranks ended well; says what did not. `results`: one part for each rank, zero
// where a rank did not get so far.
[[nodiscard]] bool run_live(const LiveJob& job, std::vector<std::byte>& results);

}  // namespace weft::cli
