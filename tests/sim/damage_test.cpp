// Owns what becomes of frames with a wrong bit in the simulator.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <set>
#include <vector>

#include "emu/sim/result.hpp"
#include "emu/sim/scenario.hpp"
#include "emu/sim/simulation.hpp"

namespace weft::sim {
namespace {

const char* const kDamaged = R"(
topology: {generator: fat-tree, hosts: 16}
traffic: {kind: permutation, bytes: 400000}
transport: {paths: 16}
faults: [{link: "*->*", corruption: 0.002}]
)";

// The scenario above with `settings` on top of it, run to its end.
RunResult run(const Settings& settings) {
  const auto scenario = read_scenario("test.yaml", kDamaged, settings, "");
  EXPECT_TRUE(scenario) << (scenario ? "" : scenario.error().message);
  Simulation simulation(scenario->topology, scenario->traffic, scenario->options,
                        transport_factory(*scenario));
  for (const fabric::Fault& fault : scenario->faults) {
    EXPECT_TRUE(simulation.fabric().apply(0, fault));
  }
  simulation.run();
  return summarise(*scenario, simulation);
}

TEST(Damage, IsALossThatEveryTransportRepairs) {
  for (const Settings& settings :
       {Settings{}, Settings{{"transport.checksum", "false"}}, Settings{{"transport.kind", "rc"}},
        Settings{{"transport.kind", "tcp-reno"}}, Settings{{"transport.kind", "dctcp"}}}) {
    const RunResult result = run(settings);
    EXPECT_EQ(result.finished, result.flows);
    EXPECT_EQ(result.failed, 0U);
    EXPECT_EQ(result.conservation, "");
    EXPECT_GT(result.damaged, 10U);
    // The fabric counts each hit. A frame that is hit on two links arrives damaged once, one that
    // is lost afterwards not at all.
    EXPECT_LE(result.damaged, result.fabric.corrupted);
    EXPECT_GE(result.transport.retransmitted, 5U);
  }
}

// The simulator turns the engine's checksum on only where a fault can damage packets: else its cost
// would be in every run.
TEST(Damage, ThePacketsOwnChecksumFindsItUnlessToldNotToLook) {
  const auto checksum = [](const std::string& faults, const Settings& settings = {}) {
    const auto scenario =
        read_scenario("test.yaml",
                      "topology: {generator: fat-tree, hosts: 16}\ntraffic: {kind: permutation, "
                      "bytes: 400000}\nfaults: [" +
                          faults + "]\n",
                      settings, "");
    EXPECT_TRUE(scenario) << (scenario ? "" : scenario.error().message);
    return scenario->transport.engine.checksum;
  };
  EXPECT_FALSE(checksum(""));
  EXPECT_FALSE(checksum("{link: \"*->*\", loss: 0.01}"));
  EXPECT_TRUE(checksum("{link: \"*->*\", loss: 0.01}, {link: \"*->*\", corruption: 0.01}"));
  EXPECT_FALSE(checksum("{link: \"*->*\", corruption: 0.01}", {{"transport.checksum", "false"}}));
}

// Sends packets of known bytes and looks where they come out wrong.
class Probe final : public HostTransport, private srd::Machine {
 public:
  static constexpr std::size_t kHeader = 40;
  static constexpr std::size_t kPayload = 960;

  explicit Probe(fabric::PortId self) : self_(self) {}

  [[nodiscard]] srd::Machine& machine() override { return *this; }
  void start(TimePoint, const FlowStart& flow) override { left_ = flow.bytes / kPayload; }
  [[nodiscard]] std::size_t poll(std::span<FlowEvent> events) override {
    if (self_ != 0 || left_ != 0 || done_) {
      return 0;
    }
    done_ = true;
    events[0] = {0, FlowEvent::Kind::sent};
    return 1;
  }
  [[nodiscard]] bool is_control(const srd::TxPacket&) const override { return false; }
  [[nodiscard]] bool checks_packets() const override { return true; }
  [[nodiscard]] TransportCounters counters() const override { return {}; }

  std::set<std::size_t> wrong_at;
  std::size_t packets = 0;

 private:
  void on_packet(TimePoint, const srd::RxPacket& packet) override {
    ++packets;
    std::size_t wrong = 0;
    const auto look = [&](std::span<const std::byte> bytes, std::byte right, std::size_t from) {
      for (std::size_t i = 0; i < bytes.size(); ++i) {
        if (bytes[i] != right) {
          wrong_at.insert(from + i);
          ++wrong;
        }
      }
    };
    look(packet.bytes, std::byte{0xA5}, 0);
    look(packet.more, std::byte{0}, kHeader);
    EXPECT_EQ(packet.more.size(), kPayload);
    EXPECT_LE(wrong, 1U);  // the first frame leaves before the fault begins
  }
  void on_timeout(TimePoint) override {}
  [[nodiscard]] bool next_transmit(TimePoint, srd::TxPacket& out) override {
    if (left_ == 0) {
      return false;
    }
    --left_;
    out = {};
    out.to = address_of(1);
    out.header_size = kHeader;
    std::memset(out.header.data(), 0xA5, kHeader);
    out.payload[0] = phantom_payload(kPayload);
    return true;
  }
  [[nodiscard]] TimePoint next_timeout() const override { return kNever; }

  fabric::PortId self_;
  std::uint64_t left_ = 0;
  bool done_ = false;
};

TEST(Damage, HitsAnyBitOfAFrameAndOnlyThatFrame) {
  const auto scenario = read_scenario("test.yaml",
                                      "topology: {generator: leaf-spine, hosts: 2, "
                                      "hosts_per_leaf: 2}\nmtu: 1024\n"
                                      "traffic: {kind: flows, flows: [{from: 0, to: 1, bytes: "
                                      "4000000}]}\nfaults: [{link: \"host0->*\", corruption: 1}]\n",
                                      {}, "");
  ASSERT_TRUE(scenario) << scenario.error().message;
  std::vector<Probe*> probes(2, nullptr);
  Simulation simulation(scenario->topology, scenario->traffic, scenario->options,
                        [&](fabric::PortId port) {
                          auto probe = std::make_unique<Probe>(port);
                          probes[port] = probe.get();
                          return probe;
                        });
  ASSERT_TRUE(simulation.fabric().apply(0, scenario->faults[0]));
  simulation.run();
  simulation.run_for(1'000'000'000);
  simulation.fabric().advance(simulation.now() + 1'000'000'000, simulation);
  EXPECT_GT(probes[1]->packets, 4000U);
  // Nearly every byte was hit, of the header and of the payload.
  EXPECT_GT(probes[1]->wrong_at.size(), 900U);
  EXPECT_GT(*probes[1]->wrong_at.rbegin(), Probe::kHeader + Probe::kPayload - 20);
}

}  // namespace
}  // namespace weft::sim
