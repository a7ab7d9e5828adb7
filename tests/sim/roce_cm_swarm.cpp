// Owns the course of a run, and what a seed stands for.
#include "tests/sim/roce_cm_swarm.hpp"

#include <algorithm>

#include "tests/sim/roce_cm_swarm_run.hpp"

namespace weft::roce::cm {
namespace {

// From the healing on: sixteen tries, each after the longest wait that a busy program may ask for.
constexpr Duration kPatience = seconds{16 * 80};

}  // namespace

SwarmOutcome Swarm::carry_out() {
  hosts_.resize(plan_.hosts);
  for (std::uint32_t host = 0; host < plan_.hosts; ++host) {
    start(host);
  }
  // Drawn from the time before all heals.
  const auto moment = [this] {
    return now_ + Duration{static_cast<std::int64_t>(
                      rng_.between(0, static_cast<std::uint64_t>(plan_.busy.count())))};
  };
  for (std::uint32_t i = 0; i < plan_.deaths; ++i) {
    SwarmHost& host = hosts_[rng_.below(plan_.hosts)];
    host.dies_at = moment();
    host.returns_at = rng_.chance(0.7) ? host.dies_at + seconds{rng_.below(20)} : kNever;
  }
  for (std::uint32_t i = 0; i < plan_.connects; ++i) {
    connects_.push_back(moment());
  }
  // The next one is taken from the back.
  std::ranges::sort(connects_, std::greater<>{});
  healing_ = now_ + plan_.busy;
  run_until(healing_);
  for (SwarmHost& host : hosts_) {
    // A program that was going to think for long over a request that has come answers soon: from
    // now on nothing may stand in the way of a connection.
    for (const auto& [handle, number] : host.parties) {
      Party& party = parties_[number];
      const bool waits = party.role == Party::Role::passive && party.act_at != kNever;
      party.act_at = waits ? std::min(party.act_at, now_ + thought()) : party.act_at;
    }
  }
  run_until(now_ + kPatience);
  if (outcome_.failure.empty()) {
    check_the_end();
  }
  if (outcome_.failure.empty()) {
    check_nothing_stays();
  }
  if (outcome_.failure.empty()) {
    check_a_new_connection();
  }
  return outcome_;
}

SwarmPlan swarm_plan_of(std::uint64_t seed) {
  // Each trouble has its own draw, so that some seeds have none, some a single one and some all of
  // them.
  Rng rng(mix64(seed));
  SwarmPlan plan;
  plan.seed = seed;
  plan.hosts = 2 + rng.below(3);
  plan.connects = rng.chance(0.2) ? 60 : 1 + rng.below(20);
  const double severity = rng.chance(0.3) ? 0 : rng.unit() * 0.4;
  plan.lose = rng.chance(0.6) ? severity : 0;
  plan.repeat = rng.chance(0.5) ? severity : 0;
  plan.late = rng.chance(0.3) ? severity / 2 : 0;
  plan.delay = milliseconds{rng.chance(0.7) ? 1 : rng.below(3000)};
  plan.jitter = rng.chance(0.5) ? Duration{milliseconds{rng.below(40)}} : Duration{};
  plan.longest_thought = rng.chance(0.3)   ? Duration{seconds{90}}
                         : rng.chance(0.5) ? Duration{seconds{10}}
                                           : Duration{milliseconds{100}};
  plan.destroys = rng.chance(0.4) ? rng.unit() * 0.4 : 0;
  plan.rejects = rng.chance(0.4) ? rng.unit() * 0.4 : 0;
  plan.same_pairs = rng.chance(0.2) ? 0.5 : 0;
  plan.deaths = rng.chance(0.3) ? 1 + rng.below(3) : 0;
  plan.max_ids = rng.chance(0.2) ? 4 + rng.below(8) : 4096;
  plan.max_outgoing = rng.chance(0.2) ? 1 + rng.below(4) : 1024;
  plan.backlog = rng.chance(0.3) ? 1 + rng.below(3) : 1024;
  plan.listeners_come_and_go = rng.chance(0.3);
  plan.busy = seconds{10 + rng.below(120)};
  return plan;
}

SwarmOutcome carry_out(const SwarmPlan& plan) { return Swarm(plan).carry_out(); }

}  // namespace weft::roce::cm
