// Owns random runs of connection managers: hosts that connect to each other over a network that
// loses, repeats and delays their messages, hosts that die and come back, programs that think long,
// refuse, part and forget, and tables with hardly any room.
#pragma once

#include <cstdint>
#include <string>

#include "srd/base/time.hpp"

namespace weft::roce::cm {

// What a seed stands for.
struct SwarmPlan {
  std::uint64_t seed = 0;
  std::uint32_t hosts = 2;
  std::uint32_t connects = 8;  // that the programs of all hosts together ask for
  double lose = 0;
  double repeat = 0;
  double late = 0;  // chance that a message takes seconds
  Duration delay = std::chrono::milliseconds{1};
  Duration jitter{};
  Duration longest_thought = std::chrono::milliseconds{100};
  double destroys = 0;  // chance that a program destroys an id, instead of what it should do
  double rejects = 0;
  double same_pairs = 0;  // chance that a queue pair is used again that still had a connection
  std::uint32_t deaths = 0;
  std::uint32_t max_ids = 64;
  std::uint32_t max_outgoing = 1024;
  std::uint32_t backlog = 16;
  bool listeners_come_and_go = false;
  Duration busy = std::chrono::seconds{60};  // then all heals, and programs do what they should

  // Nothing goes wrong but by the programs.
  [[nodiscard]] bool calm() const {
    return lose == 0 && late == 0 && jitter == Duration{} && deaths == 0 && !tight();
  }
  [[nodiscard]] bool tight() const { return max_ids < 64 || max_outgoing < 1024 || backlog < 16; }
};

[[nodiscard]] SwarmPlan swarm_plan_of(std::uint64_t seed);

struct SwarmOutcome {
  std::string failure;  // the first rule that was broken, or empty
  std::uint64_t asked = 0;
  std::uint64_t connected = 0;  // on the passive side, and datagram services found
  std::uint64_t rejected = 0;
  std::uint64_t unreachable = 0;
  std::uint64_t disconnected = 0;
  std::uint64_t messages = 0;
};

[[nodiscard]] SwarmOutcome carry_out(const SwarmPlan& plan);

}  // namespace weft::roce::cm
