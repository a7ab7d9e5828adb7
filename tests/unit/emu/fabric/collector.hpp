// Owns the sink that fabric tests use: it writes down what the network did.
#pragma once

#include <vector>

#include "emu/fabric/fabric.hpp"

namespace weft::fabric {

struct Collector {
  struct Arrival {
    Picos when = 0;
    PortId port = 0;
    CalendarEvent event;
  };
  std::vector<Arrival> arrivals;
  std::vector<std::pair<LossReason, LinkId>> drops;
  std::vector<std::pair<Picos, std::uint32_t>> wakes;
  std::vector<std::pair<PortId, bool>> pauses;
  std::uint32_t copies = 0;

  void deliver(Picos now, PortId port, const CalendarEvent& event) {
    arrivals.push_back({now, port, event});
  }
  void drop(Picos /*now*/, const CalendarEvent& /*event*/, LossReason reason, LinkId link) {
    drops.emplace_back(reason, link);
  }
  std::uint32_t duplicate(std::uint32_t handle) {
    ++copies;
    return handle + 1'000'000;
  }
  void wake(Picos now, std::uint32_t token) { wakes.emplace_back(now, token); }
  void paused(Picos /*now*/, PortId port, bool is) { pauses.emplace_back(port, is); }
};

// `hosts` hosts around one switch, 100 Gb/s and 1 us a cable; ports are numbered like hosts.
inline Topology star(std::uint32_t hosts, const LinkProperties& down = {}) {
  Topology net;
  for (std::uint32_t i = 0; i < hosts; ++i) {
    net.add_host("h" + std::to_string(i));
  }
  const NodeId hub = net.add_switch("hub");
  LinkProperties nic = down;
  nic.buffer = 0;
  nic.ecn_low = nic.ecn_high = 0;
  nic.trimming = false;
  for (std::uint32_t i = 0; i < hosts; ++i) {
    net.connect(i, hub, nic, down);
  }
  return net;
}

inline constexpr std::uint32_t kDataBytes = 4150;

inline Frame data(PortId to, std::uint32_t handle = 0) {
  return {.destination = to, .hash = handle * 2654435761U, .handle = handle, .size = kDataBytes};
}

inline LinkProperties queue_of_four() {
  LinkProperties down;
  down.buffer = 4 * kDataBytes;
  return down;
}

// At once, from h0 to h7 of a star, all to h8.
inline void send_eight(Fabric& fabric, bool trimmable = false) {
  for (std::uint32_t i = 0; i < 8; ++i) {
    Frame frame = data(8, i);
    frame.trimmable = trimmable;
    fabric.inject(0, i, frame);
  }
}

}  // namespace weft::fabric
