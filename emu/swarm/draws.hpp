// Owns drawing single things by lot: a time, an engine's configuration, a link, a request's length.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "emu/swarm/plan.hpp"
#include "srd/base/rng.hpp"

namespace weft::swarm {

// What a run is about, which is drawn first: each makes one kind of trouble likely. A run with all
// kinds at once would rarely get far enough into any of them.
struct Mood {
  bool corruption = false;
  bool hostile = false;
  bool restarts = false;
  bool flaws = false;
  bool churn = false;  // endpoints and regions come and go
  bool partitions = false;
  bool tiny = false;       // limits of a few requests, and both ends full
  bool cancels = false;    // reads are flushed, and others follow at once
  bool unready = false;    // one endpoint never posts a receive, and many want one
  bool slow = false;       // a host that looks rarely and stands still now and then
  bool bulk = false;       // short messages beside very long ones
  bool marks = false;      // every packet is marked, and they come in bursts
  bool strangers = false;  // many unknown senders speak, and there is no room for them
  double noise = 0;        // share of the largest random loss etc.
};

template <class T, std::size_t N>
const T& one_of(Rng& rng, const std::array<T, N>& choices) {
  return choices[rng.below(static_cast<std::uint32_t>(N))];
}

[[nodiscard]] Duration some_time(Rng& rng, Duration low, Duration high);
[[nodiscard]] srd::EngineConfig random_engine(Rng& rng, const Mood& mood, const LinkModel& link);
[[nodiscard]] LinkModel random_link(Rng& rng);
[[nodiscard]] std::vector<EndpointPlan> random_endpoints(Rng& rng, std::uint32_t mtu);
// Lengths around every boundary that there is.
[[nodiscard]] std::uint32_t random_length(Rng& rng, std::uint32_t mtu, bool many_packets);
[[nodiscard]] Flaw random_flaw(Rng& rng, Act act);

}  // namespace weft::swarm
