// Owns engines joined by a network that loses, repeats, reorders and damages frames, and the clock
// they live by.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <set>
#include <string>
#include <vector>

#include "emu/roce/engine/engine.hpp"
#include "srd/base/rng.hpp"

namespace weft::roce::swarm {

// Chances are per frame.
struct LinkFaults {
  double lose = 0;
  double repeat = 0;
  double damage = 0;
  double mark = 0;  // congestion experienced
  Duration latency = std::chrono::microseconds{5};
  Duration jitter{};  // at most so much more, each frame for itself
};

[[nodiscard]] srd::Address address_of_host(std::uint32_t host);

// Frames are real: with all their headers and the ICRC, which finds out damaged ones. All
// randomness is from the seed, and all hosts share one clock, so a run can be repeated exactly.
class World {
 public:
  World(std::uint64_t seed, const LinkFaults& faults) : rng_(seed), faults_(faults) {}

  // Returns the host's number. `config` gets its address.
  std::uint32_t add_host(EngineConfig config);
  void kill(std::uint32_t host) { hosts_[host].engine.reset(); }
  [[nodiscard]] bool is_up(std::uint32_t host) const { return hosts_[host].engine != nullptr; }
  [[nodiscard]] Engine& engine(std::uint32_t host) { return *hosts_[host].engine; }
  [[nodiscard]] Sink& sink(std::uint32_t host) { return *hosts_[host].sink; }
  [[nodiscard]] std::uint32_t hosts() const { return static_cast<std::uint32_t>(hosts_.size()); }
  [[nodiscard]] TimePoint now() const { return now_; }
  [[nodiscard]] const Engine& engine(std::uint32_t host) const { return *hosts_[host].engine; }
  // Counts each frame when it is sent, and once more for each copy that is on its way.
  [[nodiscard]] std::uint64_t frames() const { return number_; }
  // Frames that the network has lost or damaged: of UC and UD, and those that went from one host to
  // a queue pair of another.
  [[nodiscard]] std::uint64_t lost_unreliable() const { return lost_unreliable_; }
  [[nodiscard]] std::uint64_t lost_between(std::uint32_t from, std::uint32_t to,
                                           std::uint32_t qpn) const {
    const auto found = lost_.find({from, to, qpn});
    return found == lost_.end() ? 0 : found->second;
  }
  // These two queue pairs (host and number) are connected: what they say to each other is listened
  // to from now on.
  void watch(std::array<std::uint32_t, 2> one, std::array<std::uint32_t, 2> other,
             std::uint8_t path_mtu);
  // The first frame that no peer but ours would have forgiven, or empty.
  [[nodiscard]] const std::string& breach() const { return breach_; }
  void heal() { faults_.lose = faults_.repeat = faults_.damage = faults_.mark = 0; }

  // Asked about each frame: false takes it out.
  void set_filter(std::function<bool(std::uint32_t from, const wire::Packet&)> filter) {
    filter_ = std::move(filter);
  }

  // Goes on to what happens next, at `limit` at the latest.
  void step(TimePoint limit);
  void run_until(TimePoint limit) {
    while (now_ < limit) {
      step(limit);
    }
  }

 private:
  struct Frame {
    TimePoint when;
    std::uint64_t number;
    std::vector<std::byte> bytes;
    friend bool operator>(const Frame& a, const Frame& b) {
      return a.when != b.when ? a.when > b.when : a.number > b.number;
    }
  };
  // The sink outlives its engine: completions of a host that dies may still be looked at.
  struct Host {
    std::unique_ptr<Sink> sink;
    std::unique_ptr<Engine> engine;
  };

  using QpName = std::array<std::uint32_t, 2>;

  struct Leaving {
    srd::TxPacket packet;
    wire::DatagramHeader outer;
  };

  void pump();
  void put_on_wire(std::uint32_t from, const srd::TxPacket& packet,
                   const wire::DatagramHeader& outer);
  void listen(std::uint32_t from, const srd::Address& to, const wire::Packet& packet);
  void launch(std::vector<std::byte> frame);
  void note_lost(std::uint32_t from, const srd::Address& to, const wire::Packet& packet);
  void deliver(const Frame& frame);

  Rng rng_;
  LinkFaults faults_;
  std::vector<Host> hosts_;
  TimePoint now_ = time_at(std::chrono::milliseconds{1});
  std::uint64_t number_ = 0;
  std::uint64_t lost_unreliable_ = 0;
  // Of each queue pair (by host and number): its peer, and the PSNs of its READs and atomics.
  struct Asker {
    QpName peer;
    std::uint32_t mtu = 0;
    std::set<std::uint32_t> answers;
  };
  std::map<QpName, Asker> askers_;
  std::string breach_;
  std::map<std::array<std::uint32_t, 3>, std::uint64_t> lost_;  // by from, to and queue pair
  std::priority_queue<Frame, std::vector<Frame>, std::greater<>> in_flight_;
  std::function<bool(std::uint32_t, const wire::Packet&)> filter_;
  std::array<Leaving, srd::TxPacket::kMaxBurst> burst_;
};

}  // namespace weft::roce::swarm
