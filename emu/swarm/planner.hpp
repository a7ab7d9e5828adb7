// Owns the order in which a plan is drawn.
#pragma once

#include <cstdint>

#include "emu/swarm/draws.hpp"
#include "emu/swarm/plan.hpp"
#include "srd/base/rng.hpp"

namespace weft::swarm {

// Draws in a fixed order from one generator: a seed stands for one plan, until a draw is added.
class Planner {
 public:
  explicit Planner(std::uint64_t seed) : rng_(mix64(seed ^ 0x57A2)) { plan_.seed = seed; }

  [[nodiscard]] Plan make();

 private:
  // Settings that the whole network, or some of its hosts, must have for a mood to show.
  void adapt_to_mood();

  // plan.cpp: work and faults that have nothing to do with each other.
  [[nodiscard]] std::uint8_t any_host();
  [[nodiscard]] std::uint8_t other_host(std::uint8_t host);
  [[nodiscard]] std::uint8_t any_endpoint(std::uint8_t host);
  Step& add(Act act);
  // A fault that begins somewhere and ends before all faults end.
  void add_interval(Act begin, Act end, Duration longest);
  void add_work();
  [[nodiscard]] Step random_request(const Step& model, double bulk);
  void add_noise();
  void add_faults();
  void add_churn();
  void add_hostility();

  // pressure.cpp: work that meets a limit, a fault or other work at the worst of times.
  void add_pressure();
  // A request like `model`, some time later.
  Step& add_request(const Step& model, Act act, Duration later, std::uint32_t length);
  // A time and two hosts for what add_request() adds; no step of its own.
  [[nodiscard]] Step occasion();
  // Two hosts send to each other all that they may have under way.
  void add_full_ends();
  // One-sided work of which much waits for its turn when the life that it is meant for ends.
  void add_work_across_restarts();
  void add_cancelled_reads();
  // More writes with immediate data than a receiver has places to count them, to an endpoint that
  // never posts a receive, and others beside them.
  void add_unready_endpoint();
  void add_short_beside_long();
  // The network marks every packet: Fairness::check_path() shows which paths are taken again.
  void add_marked_bursts();
  [[nodiscard]] std::uint32_t mtu() const { return plan_.hosts[0].engine.mtu_payload; }

  static constexpr std::uint32_t kStrangersAtOnce = 8;

  Rng rng_;
  Mood mood_;
  Plan plan_;
};

}  // namespace weft::swarm
