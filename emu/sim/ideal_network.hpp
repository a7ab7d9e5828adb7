// Owns what a frame needs at the least to cross an empty network.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "emu/sim/ideal_time.hpp"

namespace weft::sim {

// Picoseconds as a function of the frame's size: at least this long.
struct LeastTime {
  double nothing = 0;   // of a frame of 0 bytes: delays
  double per_byte = 0;  // serialisation

  [[nodiscard]] double of(double bytes) const { return nothing + per_byte * bytes; }
};

// The shortest paths between two switches that hosts are plugged into.
struct Way {
  unsigned links = 0;
  LeastTime all;
  double first_per_byte = 0;   // of the slowest link that may come first
  LeastTime last_most;         // of the link that may come last and takes longest
  double last_delay = 0;       // the shortest of those that may come last
  double narrowest = 0;        // bytes per picosecond of all links at the same distance, the least
  double narrow_per_byte = 0;  // of the slowest link among them
};

// The frames of a flow, sizes on the wire.
struct FlowFrames {
  double count = 0;
  double bytes = 0;  // of all
  double full = 0;
  double last = 0;        // the shortest of them
  bool one_short = true;  // all but one are full ones
};

class IdealNetwork {
 public:
  explicit IdealNetwork(const IdealQuestion& question);

  [[nodiscard]] const IdealQuestion& question() const { return question_; }
  [[nodiscard]] FlowFrames frames_of(const fabric::FlowSpec& flow) const;
  // Between the switches of two ports; no links if they are the same, or if there is no way.
  [[nodiscard]] const Way& way(fabric::PortId from, fabric::PortId to);
  // A cable from host to host.
  [[nodiscard]] bool is_direct(fabric::PortId from, fabric::PortId to) const;
  [[nodiscard]] LeastTime up(fabric::PortId port) const;
  [[nodiscard]] LeastTime down(fabric::PortId port) const;
  // The acknowledgement's way back.
  [[nodiscard]] double ack(const fabric::FlowSpec& flow);
  // Faults that touch the link.
  [[nodiscard]] const std::vector<const fabric::Fault*>& faults_of(fabric::LinkId link) const;

  // When the receiver has all, and when the sender knows, both after the start of the flow.
  struct Alone {
    double received = 0;
    double known = 0;
  };
  [[nodiscard]] Alone alone(const fabric::FlowSpec& flow);

 private:
  [[nodiscard]] LeastTime least_time(fabric::LinkId link) const;
  [[nodiscard]] Way find(fabric::PortId from, fabric::PortId to) const;

  const IdealQuestion& question_;
  std::vector<double> ps_per_byte_;
  std::unordered_map<fabric::LinkId, std::vector<const fabric::Fault*>> faults_of_;
  std::unordered_map<std::uint64_t, Way> ways_;  // by the two switches
};

// Until all flows have ended, if each starts at `starts` at the earliest; in picoseconds.
[[nodiscard]] double all_cuts(IdealNetwork& network, const std::vector<double>& starts);

}  // namespace weft::sim
