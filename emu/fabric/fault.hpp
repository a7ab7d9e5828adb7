// Owns the description of faults, as data, and how several impairments of one link add up.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "emu/fabric/picos.hpp"
#include "emu/fabric/topology.hpp"

namespace weft::fabric {

// Burst loss after Gilbert and Elliott: two states, each with its own loss probability.
struct BurstLoss {
  double enter = 0;  // per frame, from good to bad
  double leave = 1;  // per frame, from bad to good
  double loss = 1;   // while bad
};

// The impairment of one link, or the sum of several. Probabilities are per frame.
struct Impairment {
  bool down = false;
  double rate_factor = 1;  // of the link's own rate; what is left is kMinRate at least
  Duration extra_delay{};
  Duration jitter{};  // uniform 0..jitter on top; frames may overtake each other
  double loss = 0;
  BurstLoss burst;
  double corruption = 0;
  double duplication = 0;
  double reordering = 0;  // chance to be held back by reorder_delay
  Duration reorder_delay{};
  double grey = 0;              // share of flow-and-path hashes whose frames all vanish
  std::uint32_t min_bytes = 0;  // losses of any kind spare smaller frames

  // Adds another one that acts on the link at the same time. The order does not matter.
  void merge(const Impairment& other);
};

// One fault and its schedule. Times count from apply().
struct Fault {
  enum class Target : std::uint8_t { links, node, host };
  std::string name;  // for reports and to end it by; may be empty
  Target target = Target::links;
  std::string where;      // Topology::find_links() pattern, or the name of a switch or host
  double share = 1;       // of the links found, at least one: a seeded choice
  Impairment impairment;  // links only; a node dies with all its links, a host is paused
  Duration at{};
  Duration lasts{};         // 0: until the end
  Duration every{};         // 0: once; else again and again
  std::uint32_t times = 1;  // how often, with `every`
};

}  // namespace weft::fabric
