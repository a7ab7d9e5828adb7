// Tests of how connection management leaves the NICs at the end of a process.
//
// At the end it says good-bye to its peers through the NICs, whose lock another thread may hold and
// never give back.
#include "emu/devices/connections.hpp"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "emu/devices/rxe/personality.hpp"
#include "emu/roce/wire/roce_codec.hpp"
#include "srd/io/memory_io.hpp"
#include "srd/io/ring_io.hpp"

namespace weft::devices {

namespace cm = roce::cm;

namespace {

// Two NICs, as one process may have, over carriers whose other ends the test holds.
class Leaving : public ::testing::Test {
 protected:
  Leaving() {
    for (std::size_t i = 0; i < 2; ++i) {
      Network network;
      network.address.bytes[15] = static_cast<std::byte>(i + 1);
      std::tie(network.io, peers[i]) = srd::MemoryIo::create_pair({}, {});
      auto started = rxe::kPersonality.start({}, std::move(network), nullptr);
      EXPECT_TRUE(started) << started.error().message;
      runners[i] = std::move(*started);
    }
    std::vector<Connections::Nic> nics;
    for (const auto& runner : runners) {
      nics.push_back({runner.get(), 0, [](std::uint64_t, bool) { return true; }});
    }
    connections = std::make_unique<Connections>(
        std::move(nics), 1, [](int) { return std::shared_ptr<kernel::CmFile>(); });
  }

  std::array<std::unique_ptr<srd::PacketIo>, 2> peers;
  std::array<std::unique_ptr<NicRunner>, 2> runners;
  std::unique_ptr<Connections> connections;
};

// A thread that waits for the end of the process, below a signal handler that has interrupted it in
// the device, must not keep the process from ending.
TEST_F(Leaving, DoesNotWaitForWhoKeepsANic) {
  for (const auto& runner : runners) {
    // A thread that is inside the NIC and stays there until the end of the round.
    std::promise<void> inside;
    std::promise<void> left;
    std::thread keeper([&] {
      runner->exclusively([&] {
        inside.set_value();
        left.get_future().wait();
      });
    });
    inside.get_future().wait();
    bool done = false;
    EXPECT_FALSE(runner->try_exclusively([&] { done = true; }));
    EXPECT_FALSE(done);
    connections->leave();
    left.set_value();
    keeper.join();
  }
  bool done = false;
  EXPECT_TRUE(runners[0]->try_exclusively([&] { done = true; }));
  EXPECT_TRUE(done);
  connections->leave();
}

// One of two processes with a NIC each. Ids are looked at by their handles, which count up from 0:
// no program has them.
struct Side {
  Side(std::uint8_t number, std::unique_ptr<srd::PacketIo> io) {
    Network network;
    network.address = srd::Address::v4(10, 9, 0, number);
    network.first_qpn = std::uint32_t{number} << roce::wire::RoceCodec::kQpnBits;
    network.qpn_count = 16;
    network.io = std::move(io);
    auto started = rxe::kPersonality.start({}, std::move(network), nullptr);
    EXPECT_TRUE(started) << started.error().message;
    runner = std::move(*started);
    connections = std::make_unique<Connections>(
        std::vector<Connections::Nic>{
            {runner.get(), 0, [](std::uint64_t, bool) { return true; }, {}}},
        number, [](int) { return std::shared_ptr<kernel::CmFile>(); });
  }
  void act(const std::function<void(cm::Manager&, TimePoint)>& work) const {
    connections->exclusively(work);
  }

  std::unique_ptr<NicRunner> runner;
  std::unique_ptr<Connections> connections;
};

class ManyConnections : public ::testing::Test {
 protected:
  static constexpr std::uint32_t kMany = 1200;  // more than messages that wait for a NIC
  static constexpr std::uint16_t kPort = 7174;

  using Rings = srd::RingIo<roce::wire::RoceCodec>;

  // Whose reader is the same thread, however long that may be off its core.
  static Rings::Config end_of(std::uint8_t number) {
    return {.own = srd::Address::v4(10, 9, 0, number),
            .mtu = 4096 + 64,
            .patience = std::chrono::hours{1},
            .uplink_patience = std::chrono::hours{1}};
  }
  ManyConnections() {
    auto ends = Rings::create_pair(end_of(1), end_of(2));
    EXPECT_TRUE(ends) << ends.error().message;
    server = std::make_unique<Side>(1, std::move(ends->first));
    client = std::make_unique<Side>(2, std::move(ends->second));
    server->act([](cm::Manager& manager, TimePoint) {
      const cm::Handle listener = *manager.create(cm::PortSpace::tcp, cm::Transport::rc);
      EXPECT_EQ(manager.bind(listener, {srd::Address::v4(0, 0, 0, 0), kPort}), 0);
      EXPECT_EQ(manager.listen(listener, 0), 0);
    });
    for (std::uint32_t i = 0; i < kMany; ++i) {
      connect(i);
    }
  }
  // The server's id is the next one after the listener's.
  void connect(std::uint32_t i) const {
    const cm::Handle active{i};
    const cm::Handle passive{i + 1};
    cm::ConnectParameters parameters;
    parameters.qpn = 16 + i;
    client->act([&](cm::Manager& manager, TimePoint now) {
      EXPECT_EQ(*manager.create(cm::PortSpace::tcp, cm::Transport::rc), active);
      EXPECT_EQ(manager.resolve_address(active, {}, {srd::Address::v4(10, 9, 0, 1), kPort}), 0);
      EXPECT_EQ(manager.resolve_route(active), 0);
      EXPECT_EQ(manager.connect(now, active, parameters), 0);
    });
    server->runner->poll();
    server->act([&](cm::Manager& manager, TimePoint now) {
      manager.took_request(cm::Handle{0});
      EXPECT_EQ(manager.accept(now, passive, &parameters), 0);
    });
    client->runner->poll();
    client->act([&](cm::Manager& manager, TimePoint now) {
      EXPECT_EQ(manager.accept(now, active, nullptr), 0);
    });
    server->runner->poll();
  }
  // How many peers know that the client has gone.
  [[nodiscard]] std::uint32_t left() const {
    std::uint32_t count = 0;
    server->act([&](cm::Manager& manager, TimePoint) {
      for (std::uint32_t i = 0; i < kMany; ++i) {
        const cm::Phase phase = manager.look(cm::Handle{i + 1}).phase;
        count += phase == cm::Phase::disconnect_received ? 1 : 0;
      }
    });
    return count;
  }

  std::unique_ptr<Side> server;
  std::unique_ptr<Side> client;
};

// A file that closes destroys its ids in one round, and the NIC takes 64 messages in each.
TEST_F(ManyConnections, EachPeerHearsThatAllHaveGone) {
  client->act([](cm::Manager& manager, TimePoint now) {
    for (std::uint32_t i = 0; i < kMany; ++i) {
      manager.destroy(now, cm::Handle{i});
    }
  });
  for (bool moved = true; moved;) {
    moved = client->runner->poll();
    moved = server->runner->poll() || moved;
  }
  EXPECT_EQ(left(), kMany);
}

}  // namespace
}  // namespace weft::devices
