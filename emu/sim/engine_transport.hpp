// Owns a simulated host's use of the real transport engine: a flow is an RDMA write with immediate
// data.
#pragma once

#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "emu/sim/transport.hpp"
#include "srd/engine/engine.hpp"

namespace weft::sim {

class EngineTransport final : public Transport {
 public:
  // The configuration's attachment, seed and limits are set here; the rest must have passed
  // validate().
  // `keys`: of all hosts' regions, by port; it adds its own.
  using Keys = std::vector<srd::RegionKey>;
  EngineTransport(fabric::PortId self, srd::EngineConfig config, std::shared_ptr<Keys> keys);

  [[nodiscard]] srd::Machine& machine() override { return engine_; }
  void start(TimePoint now, const FlowStart& flow) override;
  [[nodiscard]] std::size_t poll(std::span<FlowEvent> events) override;
  [[nodiscard]] bool is_control(const srd::TxPacket& packet) const override {
    return packet.payload_size() == 0;
  }
  [[nodiscard]] bool knows_trimming() const override { return true; }
  [[nodiscard]] bool checks_packets() const override { return checks_packets_; }
  [[nodiscard]] TransportCounters counters() const override;
  [[nodiscard]] srd::Engine& engine() { return engine_; }
  void prefetch(fabric::PortId from, unsigned step) const override;

 private:
  // What of a flow has not been posted yet: a write is at most kMaxTransfer, and the engine may be
  // full.
  struct Rest {
    FlowStart flow;
    Bytes posted = 0;
  };
  void post(Rest& rest);

  bool checks_packets_;
  srd::Engine engine_;
  std::shared_ptr<Keys> keys_;
  std::deque<Rest> waiting_;
  std::unordered_map<std::uint32_t, std::uint32_t>
      pieces_;  // of flows of more than one write: still out
};

}  // namespace weft::sim
