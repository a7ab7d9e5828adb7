// Owns what a frame needs at the least to cross an empty network. All times are picoseconds, as
// double: they are lower bounds, and a bound may be too low but never too high.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "emu/sim/ideal_time.hpp"

namespace weft::sim {

// A lower bound on a time as a linear function of the frame's size in bytes.
struct LeastTime {
  double nothing = 0;   // of a frame of 0 bytes: delays
  double per_byte = 0;  // serialisation

  [[nodiscard]] double of(double bytes) const { return nothing + per_byte * bytes; }
};

// What holds for every shortest path between two switches that hosts are plugged into: minima and
// maxima over all of them, so that no choice of a path can beat a bound made from it. Without
// links: the two switches are the same one, or there is no path.
struct Way {
  unsigned links = 0;
  LeastTime all;
  double first_per_byte = 0;   // picoseconds, of the slowest link that may come first
  LeastTime last_most;         // of the link that may come last and takes longest
  double last_delay = 0;       // the shortest of those that may come last
  double narrowest = 0;        // bytes/ps of all links at one distance together, the least
  double narrow_per_byte = 0;  // of the slowest link among them
};

// The data frames of a flow. Sizes are bytes on the wire, overhead included.
struct FlowFrames {
  double count = 0;
  double bytes = 0;  // of all
  double full = 0;
  double last = 0;        // the shortest of them
  bool one_short = true;  // all but one are full ones
};

// The bounds of single frames and of a flow that has the network to itself. Keeps the ways it has
// searched: ask one object for all flows. The question must outlive it.
class IdealNetwork {
 public:
  explicit IdealNetwork(const IdealQuestion& question);

  [[nodiscard]] const IdealQuestion& question() const { return question_; }
  [[nodiscard]] FlowFrames frames_of(const fabric::FlowSpec& flow) const;
  // Between the switches of two ports; no links if they are the same, or if there is no way.
  [[nodiscard]] const Way& way(fabric::PortId from, fabric::PortId to);
  // True if a cable joins the two hosts without a switch: uplink and downlink are one link then.
  [[nodiscard]] bool is_direct(fabric::PortId from, fabric::PortId to) const;
  // The first link, from the host, and the last one, to the host.
  [[nodiscard]] LeastTime up(fabric::PortId port) const;
  [[nodiscard]] LeastTime down(fabric::PortId port) const;
  // The least time of an acknowledgement from the flow's receiver back to its sender.
  [[nodiscard]] double ack(const fabric::FlowSpec& flow);
  // Faults that touch the link.
  [[nodiscard]] const std::vector<const fabric::Fault*>& faults_of(fabric::LinkId link) const;

  // When the receiver has all, and when the sender knows of it, in picoseconds after the start of a
  // flow that is alone in the network.
  struct Alone {
    double received = 0;
    double known = 0;
  };
  [[nodiscard]] Alone alone(const fabric::FlowSpec& flow);

 private:
  [[nodiscard]] LeastTime least_time(fabric::LinkId link) const;
  [[nodiscard]] Way find(fabric::PortId from, fabric::PortId to);
  [[nodiscard]] LeastTime& reach(fabric::NodeId node);

  const IdealQuestion& question_;
  std::vector<double> ps_per_byte_;
  std::unordered_map<fabric::LinkId, std::vector<const fabric::Fault*>> faults_of_;
  std::unordered_map<std::uint64_t, Way> ways_;  // by the two switches

  // Of the search that is under way: nodes at one distance and at the next one, and which place in
  // `next_` each node of the network has.
  struct Reached {
    fabric::NodeId node;
    LeastTime least;
  };
  std::vector<Reached> here_;
  std::vector<Reached> next_;
  std::vector<std::uint32_t> places_;
};

// Picoseconds until all flows have ended, if each starts at the earliest at its time in `starts`:
// the largest of the bounds of all cuts (ideal_cuts.cpp).
[[nodiscard]] double all_cuts(IdealNetwork& network, const std::vector<double>& starts);

}  // namespace weft::sim
