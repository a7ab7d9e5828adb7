// Owns a few connection managers in virtual time, and the network between them: it loses, repeats,
// delays and reorders their messages as a test wants it.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <set>
#include <vector>

#include "emu/roce/cm/manager.hpp"
#include "srd/base/rng.hpp"

namespace weft::roce::cm {

inline constexpr std::uint16_t kTestPort = 7174;

// Grants all services but those that a test has given away, and notices claims that are made twice
// or never given back.
struct OpenClaims final : ServiceClaims {
  bool claim(std::uint64_t service) override {
    if (taken.contains(service)) {
      return false;
    }
    EXPECT_TRUE(own.insert(service).second) << "claimed twice";
    return true;
  }
  void release(std::uint64_t service) override {
    EXPECT_EQ(own.erase(service), 1U) << "released without a claim";
  }
  std::set<std::uint64_t> taken;
  std::set<std::uint64_t> own;
};

// All hosts can be reached but one.
struct OpenReachability final : Reachability {
  [[nodiscard]] int reach(const srd::Address& /*source*/,
                          const srd::Address& destination) const override {
    return destination == nowhere ? EHOSTUNREACH : 0;
  }
  srd::Address nowhere = srd::Address::v4(10, 9, 0, 99);
};

// GUIDs and addresses are those of the captures: host 0 has 10.9.0.1, host 1 10.9.0.2.
inline srd::Address address_of(std::size_t host) {
  return srd::Address::v4(10, 9, 0, static_cast<unsigned>(host + 1));
}

inline Config config_of(std::size_t host) {
  Config config;
  config.nics.push_back(
      {.guid = 0x505400FFFE000001U + host, .attachment = static_cast<std::uint8_t>(host + 1)});
  config.addresses.push_back({address_of(host), 0, 1});
  // Sequence and transaction numbers are drawn by it, so a run can be repeated.
  config.seed = 77 + host;
  return config;
}

// What becomes of one message.
struct Fate {
  bool lost = false;
  bool twice = false;
  Duration delay = std::chrono::milliseconds{1};
};

class World {
 public:
  explicit World(std::size_t hosts, const std::function<void(Config&)>& change = {}) {
    for (std::size_t i = 0; i < hosts; ++i) {
      Config config = config_of(i);
      if (change) {
        change(config);
      }
      claims.push_back(std::make_unique<OpenClaims>());
      managers.push_back(std::make_unique<Manager>(config, *claims.back(), reachability));
    }
    heard.resize(hosts);
  }

  // Everything that happens up to `end`, or until nothing is left to happen.
  void run_until(TimePoint end) {
    while (true) {
      settle();
      TimePoint next = flights_.empty() ? kNever : flights_.begin()->first;
      for (const auto& manager : managers) {
        next = std::min(next, manager->next_timeout());
      }
      // Messages under way, and deadlines of managers: whatever comes first.
      if (next > end || next == kNever) {
        break;
      }
      now = std::max(now, next);
      const auto landed = flights_.upper_bound(now);
      const std::vector<Flight> arriving = take(landed);
      for (const Flight& flight : arriving) {
        arrive(flight);
      }
      for (const auto& manager : managers) {
        manager->on_timeout(now);
      }
    }
    if (end != kNever) {
      now = std::max(now, end);
    }
  }
  void run() { run_until(kNever); }
  void run_for(Duration time) { run_until(now + time); }

  // The next event that `host` has heard, or fails.
  Event next(std::size_t host) {
    settle();
    if (heard[host].empty()) {
      // Longer than a message needs, shorter than one takes to be sent again.
      run_for(std::chrono::seconds{3});
    }
    Event event;
    EXPECT_FALSE(heard[host].empty()) << "host " << host << " hears nothing";
    if (!heard[host].empty()) {
      event = heard[host].front();
      heard[host].erase(heard[host].begin());
    }
    return event;
  }

  Handle listener(std::size_t host, std::uint32_t backlog = 8, PortSpace space = PortSpace::tcp) {
    const Handle id =
        *managers[host]->create(space, space == PortSpace::udp ? Transport::ud : Transport::rc);
    EXPECT_EQ(managers[host]->bind(id, {srd::Address::v4(0, 0, 0, 0), kTestPort}), 0);
    EXPECT_EQ(managers[host]->listen(id, backlog), 0);
    return id;
  }
  // An id with a route to kTestPort of `to`; its events have been taken.
  Handle routed(std::size_t host, std::size_t to, PortSpace space = PortSpace::tcp) {
    Manager& manager = *managers[host];
    const Handle id =
        *manager.create(space, space == PortSpace::udp ? Transport::ud : Transport::rc);
    EXPECT_EQ(manager.resolve_address(id, {}, {address_of(to), kTestPort}), 0);
    EXPECT_EQ(next(host).kind, EventKind::address_resolved);
    EXPECT_EQ(manager.resolve_route(id), 0);
    EXPECT_EQ(next(host).kind, EventKind::route_resolved);
    return id;
  }

  // What is ready leaves, events are heard.
  void settle() {
    for (std::size_t i = 0; i < managers.size(); ++i) {
      Outgoing out;
      while (managers[i]->next_mad(now, out)) {
        send(out);
      }
      Event event;
      while (managers[i]->next_event(event)) {
        heard[i].push_back(event);
      }
    }
  }

  std::vector<std::unique_ptr<OpenClaims>> claims;
  OpenReachability reachability;
  std::vector<std::unique_ptr<Manager>> managers;
  std::vector<std::vector<Event>> heard;
  std::function<Fate(const wire::CmMessage&)> fate;
  std::vector<wire::CmMessage> sent;
  TimePoint now{};

 private:
  struct Flight {
    Outgoing message;
  };
  std::vector<Flight> take(std::multimap<TimePoint, Flight>::iterator end) {
    std::vector<Flight> arriving;
    for (auto at = flights_.begin(); at != end; ++at) {
      arriving.push_back(at->second);
    }
    flights_.erase(flights_.begin(), end);
    return arriving;
  }
  void send(const Outgoing& out) {
    wire::CmMessage message;
    ASSERT_EQ(wire::parse_cm(out.mad, message), wire::MadFault::none);
    sent.push_back(message);
    const Fate what = fate ? fate(message) : Fate{};
    if (!what.lost) {
      flights_.emplace(now + what.delay, Flight{out});
    }
    if (what.twice) {
      flights_.emplace(now + 2 * what.delay, Flight{out});
    }
  }
  void arrive(const Flight& flight) {
    for (std::size_t i = 0; i < managers.size(); ++i) {
      if (flight.message.to == address_of(i)) {
        managers[i]->on_mad(now, flight.message.from, flight.message.to, flight.message.mad);
      }
    }
  }

  std::multimap<TimePoint, Flight> flights_;
};

inline ConnectParameters parameters_of(std::uint32_t qpn) {
  ConnectParameters parameters;
  parameters.qpn = qpn;
  parameters.responder_resources = 1;
  parameters.initiator_depth = 1;
  parameters.retry_count = 7;
  parameters.rnr_retry_count = 7;
  return parameters;
}

// Two ids that are connected: the active one of host 1, the passive one of host 0.
struct Connected {
  Handle active;
  Handle passive;
};
inline Connected connect(World& world, Handle listener, std::uint32_t qpn = 0x11) {
  Connected both;
  both.active = world.routed(1, 0);
  EXPECT_EQ(world.managers[1]->connect(world.now, both.active, parameters_of(qpn)), 0);
  const Event request = world.next(0);
  EXPECT_EQ(request.kind, EventKind::connect_request);
  EXPECT_EQ(request.id, listener);
  both.passive = request.connection;
  world.managers[0]->took_request(listener);
  const ConnectParameters parameters = parameters_of(qpn + 1);
  EXPECT_EQ(world.managers[0]->accept(world.now, both.passive, &parameters), 0);
  EXPECT_EQ(world.next(1).kind, EventKind::connect_response);
  EXPECT_EQ(world.managers[1]->accept(world.now, both.active, nullptr), 0);
  EXPECT_EQ(world.next(0).kind, EventKind::established);
  return both;
}

}  // namespace weft::roce::cm
