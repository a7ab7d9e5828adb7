// Owns what a seed stands for: hosts, connections, their limits, and the faults of the network.
#pragma once

#include <cstdint>
#include <vector>

#include "emu/roce/swarm/world.hpp"

namespace weft::roce::swarm {

// Both ends have the same attributes.
struct ConnectionPlan {
  QpType type = QpType::rc;
  std::uint32_t hosts[2] = {0, 1};
  std::uint32_t psn[2] = {0, 0};  // of the first packet from each end
  std::uint8_t path_mtu = 1;
  std::uint8_t timeout = 1;
  std::uint8_t retry_count = 7;
  std::uint8_t rnr_retry = 7;
  std::uint8_t min_rnr_timer = 1;
  std::uint8_t reads = 1;  // under way, and kept for replay
  std::uint32_t sends = 8;
  std::uint32_t receives = 8;
  std::uint32_t steps[2] = {0, 0};  // requests of each end
};

// A function of the seed; describes a run completely.
struct Plan {
  std::uint64_t seed = 0;
  std::uint32_t hosts = 2;
  bool shared_receives = false;
  bool congestion_control = false;
  std::uint32_t window = 128;
  LinkFaults faults;
  double bad_requests = 0;   // chance of one that must be refused
  double lazy_receives = 0;  // chance that a receive is not posted again at once
  std::uint32_t deaths = 0;  // hosts that die
  double breaks = 0;         // chance that an application ends a queue pair, whenever it acts
  std::vector<ConnectionPlan> connections;
  Duration busy = std::chrono::milliseconds{20};  // faults and deaths happen in this time
};

[[nodiscard]] Plan plan_of(std::uint64_t seed);

}  // namespace weft::roce::swarm
