// Owns engines joined by a virtual network in one thread, and the one clock they all live by.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "emu/world/network.hpp"
#include "srd/engine/engine.hpp"

namespace weft::world {

// The address of host `index`: an IPv4 address mapped into IPv6.
[[nodiscard]] srd::Address address_of_host(std::uint32_t index);

// Engines, a network and a clock, driven in one thread: event by event, and at each event host by
// host in the order of their numbers. No real time and no other source of chance than the seed, so
// a run can be repeated. Once broken() has a text, step() does nothing more.
class VirtualWorld {
 public:
  explicit VirtualWorld(std::uint64_t seed) : network_(seed) {}

  // Returns the host's number, which is also its number in the network.
  std::uint32_t add_host(const srd::EngineConfig& config);
  // The engine is destroyed as a crashed process is; its packets stay in flight.
  void crash(std::uint32_t host);
  void start(std::uint32_t host, const srd::EngineConfig& config);
  [[nodiscard]] bool is_up(std::uint32_t host) const { return hosts_[host].engine != nullptr; }
  // A paused host neither receives nor gets time; its packets wait in front of it.
  void pause(std::uint32_t host) { hosts_[host].paused = true; }
  void resume(std::uint32_t host);

  [[nodiscard]] srd::Engine& engine(std::uint32_t host) { return *hosts_[host].engine; }
  [[nodiscard]] std::uint32_t hosts() const { return static_cast<std::uint32_t>(hosts_.size()); }
  [[nodiscard]] VirtualNetwork& network() { return network_; }
  [[nodiscard]] TimePoint now() const { return now_; }

  // Handles everything that happens at the next point in time that has an event, if that is not
  // after `limit`, and returns true; else moves the clock to `limit` and returns false.
  bool step(TimePoint limit);
  void run_until(TimePoint limit) {
    while (step(limit)) {
    }
  }
  // Lets the engines send what they have, without moving the clock.
  void pump();
  [[nodiscard]] TimePoint next_event() const;

  // Called just before a packet is given to an engine.
  void on_delivery(std::function<void(std::uint32_t, const VirtualNetwork::InFlight&)> callback) {
    on_delivery_ = std::move(callback);
  }

  // Why the run cannot go on: an engine makes no progress, or sends without end. Empty: all is
  // well.
  [[nodiscard]] const std::string& broken() const { return broken_; }
  [[nodiscard]] std::uint64_t steps() const { return steps_; }

 private:
  // `engine` is null while the host is crashed. `waiting`: packets that arrived while it is paused,
  // in their order.
  struct Host {
    std::unique_ptr<srd::Engine> engine;
    bool paused = false;
    std::vector<VirtualNetwork::InFlight> waiting;
  };

  void deliver(std::uint32_t index, const VirtualNetwork::InFlight& packet);
  void check_progress();

  VirtualNetwork network_;
  std::vector<Host> hosts_;
  TimePoint now_ = time_at(std::chrono::milliseconds{1});
  std::function<void(std::uint32_t, const VirtualNetwork::InFlight&)> on_delivery_;
  std::string broken_;
  std::uint64_t steps_ = 0;
  // For check_progress(): how many steps did not move the clock.
  TimePoint stuck_at_{};
  std::uint32_t stuck_ = 0;
};

}  // namespace weft::world
