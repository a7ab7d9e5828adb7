// Owns the proof that a messenger that loses its partners takes time in proportion to what was
// under way to them.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "emu/world/world.hpp"
#include "srd/message/messenger.hpp"
#include "tests/sim/steps_of.hpp"
#include "tests/support/lab.hpp"

namespace weft::testing {
namespace {

// As in engine_steps_test.cpp: a bound that no walk over all messages keeps.
constexpr std::uint64_t kStepsPerMessage = 60;

srd::MessengerConfig many_messages() {
  srd::MessengerConfig config;
  config.endpoint = Qpn{8};
  config.max_partners = 1 << 16;
  config.max_sends = 1 << 16;
  config.max_receives = 1 << 16;
  config.max_completions = 1 << 17;
  return config;
}

// A messenger whose partners never answer.
struct Lonely {
  explicit Lonely(std::uint32_t partners) {
    EXPECT_TRUE(srd::validate(config));
    for (std::uint32_t i = 0; i < partners; ++i) {
      peers.push_back(engine.peer(world::address_of_host(i + 1), srd::AttachmentId{}).value());
    }
  }
  void send(std::uint32_t partner) {
    ASSERT_EQ(messenger->post_send({.to = {peers[partner], Qpn{8}, 0}, .data = {memory}}),
              srd::PostResult::accepted);
  }
  // Until the engine has given up all partners; the steps of the messenger alone.
  [[nodiscard]] std::uint64_t steps_until_given_up(std::uint32_t messages) {
    std::uint64_t steps = 0;
    std::uint32_t ended = 0;
    srd::TxPacket packet;
    std::vector<srd::MessageCompletion> batch(256);
    for (int i = 0; i < 100000 && ended < messages; ++i) {
      while (engine.next_transmit(now, packet)) {
      }
      now = std::max(now + 1us, engine.next_timeout());
      engine.on_timeout(now);
      while (const srd::Completion* found = engine.next_completion()) {
        const srd::Completion completion = *found;
        engine.pop_completion();
        steps += steps_of([&] { EXPECT_TRUE(messenger->on_completion(completion)); });
      }
      for (std::size_t n = 0; (n = messenger->poll(batch)) != 0;) {
        ended += static_cast<std::uint32_t>(n);
      }
    }
    EXPECT_EQ(ended, messages);
    return steps;
  }

  srd::EngineConfig config = [] {
    srd::EngineConfig it;
    it.congestion_control = "fixed";
    it.line_rate = Rate::gbps(400);
    it.base_rtt = 1ms;
    it.max_completions = 1 << 18;
    return it;
  }();
  srd::Engine engine{config};
  std::unique_ptr<srd::Messenger> messenger =
      srd::Messenger::create(engine, many_messages()).value();
  std::vector<srd::PeerId> peers;
  std::vector<std::byte> memory = std::vector<std::byte>(64);
  TimePoint now = time_at(1s);
};

TEST(MessengerSteps, LosingOnePartner) {
  for (const std::uint32_t n : {1000U, 4000U}) {
    Lonely lonely(1);
    for (std::uint32_t i = 0; i < n; ++i) {
      lonely.send(0);
    }
    EXPECT_LE(lonely.steps_until_given_up(n), kStepsPerMessage * n) << n;
  }
}

TEST(MessengerSteps, LosingManyPartners) {
  for (const std::uint32_t n : {1000U, 4000U}) {
    Lonely lonely(n);
    for (std::uint32_t i = 0; i < n; ++i) {
      lonely.send(i);
    }
    EXPECT_LE(lonely.steps_until_given_up(n), kStepsPerMessage * n) << n;
  }
}

}  // namespace
}  // namespace weft::testing
