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

// Flows are taken in the order in which they are handed over. The last write of a flow carries the
// flow's number as its immediate: when it arrives, the receiver has everything.
class EngineTransport final : public HostTransport {
 public:
  // The configuration must have passed validate(); its attachment and seed are set here, so that
  // hosts draw differently from one seed. `keys`: of all hosts' regions, by port. Each host adds
  // its own, and none may start a flow before all have.
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
  // A flow that has not been posted whole: a write is at most kMaxTransfer, and the engine may be
  // full.
  struct Rest {
    FlowStart flow;
    Bytes posted = 0;
  };
  // Posts as much as the engine takes, and removes the flow from waiting_, of which it must be the
  // first, when all is posted.
  void post(Rest& rest);

  bool checks_packets_;
  srd::Engine engine_;
  std::shared_ptr<Keys> keys_;
  std::deque<Rest> waiting_;
  // Of flows of more than one write: how many have been posted and have not completed.
  std::unordered_map<std::uint32_t, std::uint32_t> pieces_;
};

}  // namespace weft::sim
