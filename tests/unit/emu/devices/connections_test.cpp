// Tests of how connection management leaves the NICs at the end of a process.
//
// At the end it says good-bye to its peers through the NICs, whose lock another thread may hold and
// never give back.
#include "emu/devices/connections.hpp"

#include <gtest/gtest.h>

#include <array>
#include <future>
#include <memory>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "emu/devices/rxe/personality.hpp"
#include "srd/io/memory_io.hpp"

namespace weft::devices {
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

}  // namespace
}  // namespace weft::devices
