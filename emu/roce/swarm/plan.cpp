// Owns the distribution of plans: how often each type, size and fault is drawn.
//
// Small numbers are drawn often where a limit lies: queues of one or two requests, sequence numbers
// just before their wrap, connections of a host with itself.
#include "emu/roce/swarm/plan.hpp"

namespace weft::roce::swarm {
namespace {

ConnectionPlan connection_of(Rng& rng, std::uint32_t hosts) {
  ConnectionPlan plan;
  plan.type = rng.chance(0.8) ? QpType::rc : rng.chance(0.5) ? QpType::uc : QpType::ud;
  plan.hosts[0] = rng.below(hosts);
  plan.hosts[1] = rng.chance(0.1) ? plan.hosts[0] : (plan.hosts[0] + 1) % hosts;
  for (std::uint32_t& psn : plan.psn) {
    psn = rng.chance(0.5) ? kPsnMask - rng.below(40) : rng.below(kPsnMask);
  }
  plan.path_mtu = static_cast<std::uint8_t>(1 + rng.below(3));
  plan.timeout = static_cast<std::uint8_t>(1 + rng.below(8));
  plan.retry_count = rng.chance(0.8) ? 7 : static_cast<std::uint8_t>(rng.below(4));
  plan.rnr_retry = rng.chance(0.8) ? 7 : static_cast<std::uint8_t>(rng.below(7));
  plan.min_rnr_timer = static_cast<std::uint8_t>(1 + rng.below(12));
  plan.reads = static_cast<std::uint8_t>(1 + rng.below(5));
  plan.sends = rng.chance(0.3) ? 1 + rng.below(2) : 4 + rng.below(20);
  plan.receives = rng.chance(0.3) ? 1 + rng.below(2) : 4 + rng.below(20);
  for (std::uint32_t& steps : plan.steps) {
    steps = rng.chance(0.2) ? 0 : 1 + rng.below(30);
  }
  return plan;
}

}  // namespace

Plan plan_of(std::uint64_t seed) {
  Rng rng(mix64(seed));
  Plan plan;
  plan.seed = seed;
  plan.hosts = 2 + rng.below(3);
  plan.shared_receives = rng.chance(0.25);
  plan.congestion_control = rng.chance(0.2);
  plan.window = rng.chance(0.3) ? 4 + rng.below(12) : 128;
  LinkFaults& faults = plan.faults;
  // In a third of the runs nothing is lost, repeated or damaged: what fails there is no question of
  // recovery.
  const double severity = rng.chance(0.3) ? 0 : rng.unit() * 0.15;
  faults.lose = rng.chance(0.6) ? severity : 0;
  faults.repeat = rng.chance(0.5) ? severity : 0;
  faults.damage = rng.chance(0.3) ? severity / 3 : 0;
  faults.mark = plan.congestion_control ? 0.2 : 0;
  faults.latency = std::chrono::nanoseconds{500 + rng.below(20000)};
  faults.jitter = rng.chance(0.5) ? std::chrono::nanoseconds{rng.below(60000)} : Duration{};
  plan.bad_requests = rng.chance(0.3) ? 0.03 : 0;
  plan.lazy_receives = rng.chance(0.4) ? 0.5 : 0;
  plan.deaths = rng.chance(0.15) ? 1 + rng.below(plan.hosts) : 0;
  plan.breaks = rng.chance(0.15) ? 0.005 : 0;
  for (std::uint32_t count = 1 + rng.below(4); count != 0; --count) {
    plan.connections.push_back(connection_of(rng, plan.hosts));
  }
  return plan;
}

}  // namespace weft::roce::swarm
