// Owns the attacker of a swarm run: keeps packets that it saw, and sends rubbish, mutations and
// replays.
#pragma once

#include <cstdint>
#include <vector>

#include "emu/swarm/plan.hpp"
#include "emu/swarm/world_names.hpp"
#include "srd/base/rng.hpp"

namespace weft::swarm {

class Attacker {
 public:
  explicit Attacker(std::uint64_t seed) : rng_(seed) {}

  // Sees every packet that is sent and remembers some, old and new.
  void overhear(const VirtualNetwork::InFlight& packet);
  // Injects step.length packets.
  void act(TimePoint now, const Step& step, VirtualNetwork& network);

 private:
  [[nodiscard]] VirtualNetwork::InFlight rubbish(const Step& step);
  void speak_as_stranger(TimePoint now, VirtualNetwork& network, VirtualNetwork::InFlight packet);

  static constexpr std::size_t kMemory = 128;
  Rng rng_;
  std::uint64_t seen_ = 0;
  std::vector<VirtualNetwork::InFlight> remembered_;
};

}  // namespace weft::swarm
