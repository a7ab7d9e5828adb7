// Owns the attacker of a swarm run: keeps packets that it saw, and sends random bytes, mutations
// and replays.
//
// A mutated or truncated packet is not `genuine`: it must have no effect. A replay is genuine, and
// must be recognised as old; a replay from a foreign address is, as far as a transport can know, a
// new message of a stranger.
#pragma once

#include <cstdint>
#include <vector>

#include "emu/swarm/plan.hpp"
#include "emu/swarm/world_names.hpp"
#include "srd/base/rng.hpp"

namespace weft::swarm {

// Draws from a generator of its own, so that attacks use up no draws of the network.
class Attacker {
 public:
  explicit Attacker(std::uint64_t seed) : rng_(seed) {}

  // Sees every packet that is sent and remembers some, old and new.
  void overhear(const VirtualNetwork::InFlight& packet);
  // Injects step.length packets.
  void act(TimePoint now, const Step& step, VirtualNetwork& network);

 private:
  // A packet of random bytes from step.peer to step.host.
  [[nodiscard]] VirtualNetwork::InFlight rubbish(const Step& step);
  void speak_as_stranger(TimePoint now, VirtualNetwork& network, VirtualNetwork::InFlight packet);

  static constexpr std::size_t kMemory = 128;
  Rng rng_;
  std::uint64_t seen_ = 0;
  std::vector<VirtualNetwork::InFlight> remembered_;
};

}  // namespace weft::swarm
